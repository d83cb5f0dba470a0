"""A transaction's coordinator and a group's, each a replicated log of its own on three nodes that die and are cut off.

One thread, a run a function of its seed: nodes die while a call waits for them, and at each step between coordinators.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from logstore.api.groups import MemberIdentity
from logstore.coordination.runtime import CoordinatorRuntime
from logstore.coordination.transaction_manager import TransactionManager
from logstore.coordination.transaction_reaper import TransactionReaper
from logstore.coordination.transactional_offsets import OFFSETS_PLACE, PendingCommit, commit_pending
from logstore.errors import LogStoreError, ProducerFencedError
from logstore.groups.coordinator import GroupCoordinator
from logstore.log.producers.producer_state import Marker
from logstore.machine import TransactionalWriter
from logstore.seams.memory_crash import KeepNothing
from logstore.transactions.coordinator import TransactionCoordinator
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.coordination.id_locks import NodeIdLocks
from replication.errors import LeaderNotReadyError, NotLeaderError, PeerUnavailableError
from tests.coordination.memory_runtime import MemoryEnds
from tests.replication.cluster.world import NodeView
from tests.replication.coordination.world import CoordinatorWorld
from tests.replication.nodes import ClusterNode, Nodes

Answer = TypeVar("Answer")
SOURCE = TopicPartition("in", 0)
OUT = TopicPartition("out", 0)
GROUP = "g"


class Output:
    """The partition that is written to: what is committed of it, and what is open, by producer."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self._epochs: dict[int, int] = {}
        self._open: dict[int, list[int]] = {}

    def _check(self, producer_id: int, epoch: int) -> None:
        if self._epochs.get(producer_id, -1) > epoch:
            raise ProducerFencedError(f"producer {producer_id} has a newer epoch than {epoch}")

    def append(self, writer: TransactionalWriter, value: int) -> None:
        """Idempotent, as the sequence numbers of producers make it."""
        self._check(*writer)
        self._epochs[writer.producer_id] = writer.epoch
        values = self._open.setdefault(writer.producer_id, [])
        if value not in values:
            values.append(value)

    def mark(self, marker: Marker) -> None:
        if self._epochs.get(marker.producer_id, -1) >= marker.epoch:
            return  # it is there
        self._epochs[marker.producer_id] = marker.epoch
        values = self._open.pop(marker.producer_id, [])
        if marker.committed:
            self.committed += values


class Done:
    """A ``PendingAppend`` that is decided."""

    base_offset = next_offset = append_time_ms = -1
    done = True

    def __init__(self, error: LogStoreError | None) -> None:
        self.error = error

    def wait_with(self, others: object) -> None:
        """It is."""


class Place:
    """What markers are written to."""

    def __init__(self, mark: Callable[[Marker], None]) -> None:
        self._mark = mark

    def append_marker(self, marker: Marker, *, once: bool, wait: bool) -> Done:
        assert once
        del wait
        try:
            self._mark(marker)
        except LogStoreError as error:
            return Done(error)
        return Done(None)


class Crossing:
    """``at(step)`` is called between two steps of whatever goes on: faults happen there, and while a call waits."""

    def __init__(self, seed: int, faults: float) -> None:
        self.dice = random.Random(seed)
        self.faults = faults
        self.output = Output()
        self.offsets = CoordinatorWorld(GroupCoordinator, seed=seed)
        self.state = CoordinatorWorld(TransactionCoordinator, seed=seed + 1)
        self.ids = itertools.count(1_000)
        self.managers: dict[int, tuple[TransactionManager, TransactionReaper]] = {}
        self.lost_calls = self.deaths = 0
        for world in (self.offsets, self.state):
            self._die_while_waiting(world)
        for node in self.state.nodes.nodes.values():
            self._manage(node)

    # --- faults ---

    def _die_while_waiting(self, world: CoordinatorWorld[Any]) -> None:
        nodes, tick = world.nodes, world.nodes.tick

        def faulty() -> None:
            if self.dice.random() < self.faults / 4:
                self._harm(world)
            tick()

        nodes.tick = faulty  # type: ignore[method-assign]

    def _harm(self, world: CoordinatorWorld[Any]) -> None:
        nodes = world.nodes
        what = self.dice.random()
        if what < 0.4 and len(nodes.living) == 3:
            leaders = nodes.leaders()
            node = leaders[0] if leaders and self.dice.random() < 0.7 else self.dice.choice(nodes.living)
            node.kill(KeepNothing())
            self.deaths += 1
        elif what < 0.6:
            nodes.network.cut(*self.dice.sample((1, 2, 3), 2))
        else:
            self.mend(world)

    def mend(self, world: CoordinatorWorld[Any]) -> None:
        world.nodes.network.heal()
        for node in world.nodes.nodes.values():
            if not node.alive:
                world.start(node)
                if world is self.state:
                    self._manage(node)

    def between(self) -> None:
        """A moment between two steps: a coordinator, or both, may go; time passes."""
        for world in (self.offsets, self.state):
            if self.dice.random() < self.faults:
                self._harm(world)
                for _ in range(self.dice.randrange(40)):
                    world.nodes.tick()
        if self.dice.random() < self.faults:
            self.look_after()

    def _lose(self, what: str) -> None:
        if self.dice.random() < self.faults:
            self.lost_calls += 1
            raise LeaderNotReadyError(f"the {what} is lost on its way")

    # --- what the coordinator of transactions stands on ---

    def _manage(self, node: ClusterNode) -> None:
        view = NodeView(self.state.nodes.clock_of(node))
        manager = TransactionManager(
            view,
            _Runtime(self, NodeIdLocks()),
            _Offsets(self, view),
            _One(self.state.runtimes[node.node_id]),
        )
        self.managers[node.node_id] = manager, TransactionReaper(manager, owners_return=True)

    def at_offsets(self, work: Callable[[CoordinatorRuntime[GroupCoordinator]], Answer]) -> Answer:
        """Another node's answer: the request, or the answer, may be lost, and nodes die meanwhile."""
        self._lose("request")
        self.between()
        answer = work(self.offsets.runtimes[_leader(self.offsets.nodes).node_id])
        self.between()
        self._lose("answer")
        return answer

    def look_after(self) -> None:
        """The housekeepers' turn."""
        for number, (_, reaper) in self.managers.items():
            if self.state.nodes[number].alive:
                reaper.soon()
                try:
                    reaper.step()
                except LogStoreError:
                    pass  # the next turn tries again

    # --- what there is to be seen ---

    def position(self) -> tuple[int, bool]:
        """The group's offset, and whether it may be another soon."""

        def look(machine: GroupCoordinator) -> tuple[int, bool]:
            found = machine.committed(GROUP, lambda _: bytes(16)).get(SOURCE)
            return 0 if found is None else found.offset, bool(machine.pending(GROUP))

        while True:
            try:
                runtime = self.offsets.runtimes[_leader(self.offsets.nodes).node_id]
                runtime.confirm()
                return runtime.look(look)
            except (NotLeaderError, LeaderNotReadyError, PeerUnavailableError):
                self.mend(self.offsets)
                self.offsets.nodes.tick()


class _Runtime:
    """A ``TransactionRuntime``."""

    def __init__(self, world: Crossing, locks: NodeIdLocks) -> None:
        self._world = world
        self._ids: Iterator[int] = world.ids
        self.id_lock: Any = locks.of

    def take_producer_id(self) -> int:
        return next(self._ids)

    def note_opened(self) -> None:
        """The test looks when it wants to."""

    def look_for_changes(self) -> None:
        """There are none."""

    def holder_of(self, topic: str) -> str:
        return f"nobody has {topic}"

    def partition(self, topic: str, partition: int) -> Any:
        world = self._world
        if topic == OUT.topic:
            return Place(world.output.mark)

        def mark(marker: Marker) -> None:
            world.at_offsets(
                lambda runtime: runtime.end_transaction(
                    marker.producer_id, marker.epoch, commit=marker.committed
                )
            )

        return Place(mark)


class _Offsets:
    """``TransactionalOffsets`` at other nodes."""

    only_place = None
    coordinator = None

    def __init__(self, world: Crossing, view: NodeView) -> None:
        self._world = world
        self._view = view

    def place(self, group: str) -> TopicPartition:
        del group
        return OFFSETS_PLACE

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        writer: TransactionalWriter,
        member: MemberIdentity | None,
    ) -> None:
        ends = MemoryEnds()
        self._world.at_offsets(
            lambda runtime: commit_pending(
                runtime,
                self._view.clock,
                ends,
                PendingCommit(group, offsets, writer, member, ends.of(offsets)),
            )
        )


class _One:
    """``Coordinators``: the one of a node."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def existing(self, topic: str, make: object) -> Any:
        del topic, make
        return self._runtime

    def needed(self, topic: str, config: object, make: object) -> Any:
        del topic, config, make
        return self._runtime


def _leader(nodes: Nodes) -> ClusterNode:
    """Whoever says so with the newest term; nobody: NotLeaderError, once time has passed."""
    for _ in range(60):
        leaders = nodes.leaders()
        if leaders:
            return max(leaders, key=lambda node: node.replica.term)
        nodes.tick()
    raise NotLeaderError("nobody leads")
