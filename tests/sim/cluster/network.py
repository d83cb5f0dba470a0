"""``SimulatedNetwork``: delay, loss, doubling, reordering, cuts and one-way cuts between the nodes of a simulation.

Messages of Raft may be lost, doubled and late, in any order. Calls are answered unless their way is cut; a call whose
answer is lost has been made all the same.
"""

from __future__ import annotations

import copy
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from logstore.errors import LogStoreError
from replication.errors import PeerUnavailableError
from replication.raft.messages import AppendReply
from replication.raft.types import NodeId
from replication.transport import CallHandler, Deliver, GroupId, GroupMessage, PeerGate, Presence
from tests.sim.cluster.scheduler import Host, Scheduler
from tests.sim.cluster.threads import Event

_NOTICED_S: Final = 2.0
"""After so long a broken connection is noticed."""


class SimulatedNetwork:
    """``loss``, ``doubles``: shares of the messages; ``slow``: share of those that are twenty times as late."""

    def __init__(self, scheduler: Scheduler, dice: random.Random) -> None:
        self.scheduler = scheduler
        self.dice = dice
        self.loss = self.doubles = 0.0
        self.slow = 0.02
        self.longest_s = 0.004
        self.lines: dict[NodeId, SimulatedLine] = {}
        self.cuts: dict[tuple[NodeId, NodeId], None] = {}
        self.withheld: dict[GroupId, None] = {}  # groups whose followers' words of what they have are lost
        self.counts: Counter[str] = Counter()

    def line(self, node: NodeId, host: Host) -> SimulatedLine:
        made = self.lines[node] = SimulatedLine(self, node, host)
        return made

    def cut(self, sender: NodeId, to: NodeId) -> None:
        self.cuts[sender, to] = None

    def heal(self) -> None:
        self.cuts.clear()
        self.withheld.clear()

    def reaches(self, sender: NodeId, to: NodeId) -> SimulatedLine | None:
        line = self.lines.get(to)
        if line is None or line.closed or (sender, to) in self.cuts:
            return None
        return line

    def delay_s(self) -> float:
        dice = self.dice
        return dice.random() * self.longest_s * (20 if dice.random() < self.slow else 1)

    def post(self, line: SimulatedLine, to: NodeId, message: GroupMessage) -> None:
        dice, presence = self.dice, line.presence
        if message.group in self.withheld and isinstance(message.message, AppendReply):
            self.counts["withheld"] += 1
            return
        if dice.random() < self.loss:
            self.counts["lost"] += 1
            return
        doubled = dice.random() < self.doubles
        self.counts["doubled"] += doubled
        for _ in range(2 if doubled else 1):
            self.scheduler.at(
                self.scheduler.now_s + self.delay_s(), lambda: self._arrive(line, presence, to, message)
            )

    def _arrive(self, sender: SimulatedLine, presence: Presence, to: NodeId, message: GroupMessage) -> None:
        line = self.reaches(sender.node, to)
        if line is None:
            self.counts["cut off"] += 1
        else:
            line.take(sender, presence, message)

    def tell_gone(self, gone: SimulatedLine) -> None:
        """The process has ended, and its connections with it: nodes that it could reach are told."""
        for to, line in self.lines.items():
            if line is not gone and self.reaches(gone.node, to) is line and line.gate is not None:
                line.gate.left(gone.presence)


class SimulatedLine:
    """A ``ClusterNetwork`` of one life of a node."""

    def __init__(self, network: SimulatedNetwork, node: NodeId, host: Host) -> None:
        self._network = network
        self._scheduler = network.scheduler
        self.node = node
        self.presence = Presence(node)
        self.gate: PeerGate | None = None
        self._host = host
        self._deliver: Deliver | None = None
        self._handlers: dict[str, CallHandler] = {}
        self._waiting: deque[tuple[SimulatedLine, Presence, GroupMessage]] = deque()
        self._more = Event(self._scheduler)
        self.cluster_id = ""
        self.closed = False

    def guard(self, gate: PeerGate) -> None:
        self.gate = gate

    def present(self, presence: Presence) -> None:
        self.presence = presence

    def recheck(self) -> None:
        """Each message is checked."""

    def _admits(self, sender: SimulatedLine, presence: Presence, *, messages: bool) -> bool:
        if self.gate is None:
            return True
        try:
            (self.gate.admit_messages if messages else self.gate.admit_call)(presence)
        except LogStoreError as error:
            if sender.gate is not None and not sender.closed:
                refused, found = sender.gate.refused, error
                self._scheduler.spawn("refused", lambda: refused(found), sender._host)
            return False
        return True

    def take_cluster_id(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id

    def start(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._scheduler.spawn("deliver", self._run, self._host)

    def _run(self) -> None:
        while not self.closed:
            if not self._waiting:
                self._more.clear()
                self._more.wait()
                continue
            sender, presence, message = self._waiting.popleft()
            if self._deliver is None:
                continue
            if self._admits(sender, presence, messages=True):
                self._deliver(sender.node, [message])
            else:
                self._network.counts["not admitted"] += 1

    def send(self, to: NodeId, message: GroupMessage) -> None:
        if not self.closed and self._network.reaches(self.node, to) is not None:
            self._network.post(self, to, message)

    def take(self, sender: SimulatedLine, presence: Presence, message: GroupMessage) -> None:
        if self._deliver is not None:
            self._waiting.append((sender, presence, message))
            self._more.set()

    def serve(self, operation: str, handler: CallHandler) -> None:
        self._handlers[operation] = handler

    def call(self, to: NodeId, operation: str, request: bytes, timeout_s: float) -> bytes:
        """One after the other on its way there and back; the handler's task is one of the other node's."""
        scheduler, network = self._scheduler, self._network
        presence = self.presence
        answered = Event(scheduler)
        answer: list[Any] = []

        def told(found: bytes | LogStoreError) -> None:
            if not self.closed and network.reaches(to, self.node) is not None:
                answer.append(found)
                answered.set()

        def arrive() -> None:
            line = network.reaches(self.node, to)
            if line is not None and line._deliver is not None:
                line.answer(self, presence, operation, request, told)

        network.counts["calls"] += 1
        scheduler.at(scheduler.now_s + network.delay_s(), arrive)
        deadline_s = scheduler.now_s + timeout_s
        while not answered.wait(max(min(_NOTICED_S, deadline_s - scheduler.now_s), 0.0)):
            reached = network.reaches(self.node, to) and network.reaches(to, self.node)
            if scheduler.now_s >= deadline_s or not reached:
                network.counts["calls without an answer"] += 1
                raise PeerUnavailableError(f"node {to} does not answer node {self.node}")
        found = answer[0]
        if isinstance(found, bytes):
            return found
        raise copy.copy(found)

    def answer(
        self,
        caller: SimulatedLine,
        presence: Presence,
        operation: str,
        request: bytes,
        tell: Callable[[bytes | LogStoreError], None],
    ) -> None:
        handler = self._handlers.get(operation)

        def work() -> None:
            found: bytes | LogStoreError
            try:
                if handler is None:
                    raise PeerUnavailableError(f"node {self.node} does not know the call {operation!r}")
                if not self._admits(caller, presence, messages=False):
                    raise PeerUnavailableError(f"node {self.node} does not listen to this process")
                found = handler(caller.node, request)
            except LogStoreError as error:
                found = error
            self._scheduler.at(
                self._scheduler.now_s + self._network.delay_s(), lambda: None if self.closed else tell(found)
            )

        self._scheduler.spawn(operation, work, self._host)

    def close(self) -> None:
        self._network.tell_gone(self)
        self.closed = True
        self._waiting.clear()
        self._more.set()
