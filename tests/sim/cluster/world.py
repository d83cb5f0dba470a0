"""``World``: the machines of a simulated cluster, with production's ``ClusterNode`` on each, and calls of clients."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

from logstore.errors import LogStoreError, PartitionPoisonedError, StorageError, StoreClosedError
from logstore.seams.memory_crash import Chooser
from logstore.seams.memory_fs import MemoryFileSystem
from replication.cluster.controller import ControllerSettings
from replication.cluster_node import ClusterNode, NodeSettings
from replication.errors import PeerUnavailableError
from replication.raft.types import RaftSettings
from tests.sim.cluster.disk import ROOT, SimulatedDisk
from tests.sim.cluster.network import SimulatedLine, SimulatedNetwork
from tests.sim.cluster.scheduler import Host, Scheduler
from tests.sim.cluster.threads import Event

START_MS: Final = 1_700_000_000_000
Answer = TypeVar("Answer")
STATES: Final = (
    "starting",
    "leads none",
    "leads records",
    "coordinates",
    "controls",
    "fills learners",
    "elects",
    "disk refuses",
)
"""What a node may be doing when a fault hits it; several at a time, all but the first two."""
_NODES_OWN: Final = (StoreClosedError, StorageError, PartitionPoisonedError)
"""Errors that say that a node cannot, not that what was asked is wrong."""


class NodeClock:
    """A machine's: monotonic time since its boot, wall time that may be set. A ``Clock``."""

    def __init__(self, scheduler: Scheduler, boot_id: str) -> None:
        self._scheduler = scheduler
        self._boot_id = boot_id
        self.jumped_ms = 0

    def wall_ms(self) -> int:
        return START_MS + int(self._scheduler.now_s * 1000) + self.jumped_ms

    def monotonic_s(self) -> float:
        return self._scheduler.now_s

    def boot_id(self) -> str:
        return self._boot_id


class Machine:
    """``node``: what runs there now, None: nothing does; ``ready``: it has joined its cluster in this life."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.fs = MemoryFileSystem()
        self.boots = 0
        self.jumped_ms = 0
        self.node: ClusterNode | None = None
        self.host = Host(f"n{number}")
        self.disk: SimulatedDisk | None = None
        self.ready = False

    @property
    def runs(self) -> bool:
        return self.node is not None

    def start(self) -> None:
        """It joins beside the caller."""
        world, scheduler = self.world, self.world.scheduler
        self.boots += 1
        self.host, self.ready = Host(f"n{self.number}.{self.boots}"), False
        world.hosts.append(self.host)
        dice = random.Random(f"{world.seed}:{self.number}:{self.boots}")
        self.disk = SimulatedDisk(scheduler, random.Random(dice.random()), self.fs)
        self.disk.longest_sync_s = world.longest_sync_s
        self.fs.faults.clear()
        clock = NodeClock(scheduler, f"{self.number}.{self.boots}")
        clock.jumped_ms = self.jumped_ms
        self.clock = clock
        line = world.network.line(self.number, self.host)
        node = self.node = self.make(self.disk, clock, line, dice)
        host = self.host

        def begin() -> None:
            try:
                node.start()
            except LogStoreError as error:
                world.note(f"node {self.number} does not start: {type(error).__name__}: {error.message}")
                world.counts["starts that failed"] += 1
                self.gone(host)
                return
            self.ready = True
            world.note(f"node {self.number} has started")

        scheduler.spawn("start", begin, host)

    def make(
        self, disk: SimulatedDisk, clock: NodeClock, line: SimulatedLine, dice: random.Random
    ) -> ClusterNode:
        """A process of that number, not started yet."""
        world = self.world
        settings = NodeSettings(
            node_id=self.number,
            voters=frozenset(world.machines),
            port=9000 + self.number,
            tick_s=0.05,
            raft=RaftSettings(election_ticks=10, silent_on_empty=True),
            lag_s=2.0,
            together_from=2,
            join_timeout_s=600.0,
            controller=ControllerSettings(look_s=1.0, settle_s=2.0),
        )
        return ClusterNode(
            ROOT,
            settings,
            line,
            clock=clock,
            fs=disk,
            randomness=random.Random(dice.random()),
            store_settings=world.store_settings,
        )

    def gone(self, host: Host) -> None:
        """It has ended by itself."""
        if self.host is host:
            self.node, self.ready = None, False
            self.world.network.lines[self.number].closed = True

    def kill(self, chooser: Chooser | None) -> None:
        """``chooser``: what is left of what was not synced; None: the machine goes on, and so does its page cache."""
        line = self.world.network.lines[self.number]
        if chooser is None:
            self.world.network.tell_gone(line)
        line.closed = True
        self.fs.faults.halt()
        self.world.scheduler.kill(self.host)
        self.fs = self.fs.process_crash() if chooser is None else self.fs.crash(chooser)
        self.node, self.ready = None, False

    def stop(self) -> None:
        """In order: what it leads goes to others first."""
        node, world = self.node, self.world
        if node is None:
            return
        done = Event(world.scheduler)

        def end() -> None:
            try:
                if self.ready:
                    node.hand_over(1.0)
                node.close()
            except LogStoreError as error:
                world.note(f"node {self.number} stops with {type(error).__name__}")
            done.set()

        world.scheduler.spawn("stop", end, self.host)
        done.wait(60.0)
        world.scheduler.kill(self.host)
        self.gone(self.host)

    def states(self) -> list[str]:
        """Those of ``STATES`` that it is in."""
        node = self.node
        if node is None or not self.ready:
            return ["starting"]
        replicas = node.node.replicas()
        led = [one for one in replicas if one.is_leader]
        names = [one.where for one in led]
        applies = (
            not led,
            any(not name.startswith("__") for name in names),
            any(name.startswith(("__consumer_offsets", "__transaction_state")) for name in names),
            any(name.startswith("__cluster_metadata") for name in names),
            any(one.membership.learners for one in led),
            any(one.leader_id < 0 for one in replicas),
            node.node.disk_refuses(self.number),
        )
        return [state for state, is_so in zip(STATES[1:], applies, strict=True) if is_so]


class World:
    """``counts``: what happened, by name; ``hits``: (fault, state of the node that it hit)."""

    def __init__(self, seed: int, count: int, scheduler: Scheduler) -> None:
        self.seed = seed
        self.scheduler = scheduler
        self.network = SimulatedNetwork(scheduler, random.Random(f"{seed}:network"))
        self.machines: dict[int, Machine] = {}
        self.hosts: list[Host] = []
        self.counts: Counter[str] = Counter()
        self.hits: Counter[tuple[str, str]] = Counter()
        self.longest_sync_s = 0.002
        self.pace_s = 0.2  # clients wait for up to so long between two steps
        self.quiet = False  # clients begin nothing more
        self.traps: dict[str, list[Any]] = {}  # by their kind; see ``traps.py``
        self.trapped_until_s = 0.0  # what a trap has broken is not mended before
        self.store_settings: dict[str, Any] = {
            "lock_timeout_s": 5.0,
            "retention_check_s": 2.0,
            "maintenance_s": 0.0,
            "reserve_bytes": 0,
        }
        for number in range(1, count + 1):
            self.machines[number] = Machine(self, number)

    def note(self, line: str) -> None:
        self.scheduler.note(line)

    def now_ms(self) -> int:
        return START_MS + int(self.scheduler.now_s * 1000)

    def running(self) -> list[Machine]:
        return [one for one in self.machines.values() if one.runs]

    def ready(self) -> list[Machine]:
        return [one for one in self.machines.values() if one.ready]

    # --- calls of clients ---

    def ask(
        self, number: int, name: str, work: Callable[[ClusterNode], Answer], timeout_s: float = 10.0
    ) -> Answer:
        """The node's answer, after a way there and back. PeerUnavailableError: none came, whatever was done."""
        scheduler, network, machine = self.scheduler, self.network, self.machines[number]
        answered = Event(scheduler)
        answer: list[Answer | LogStoreError] = []
        scheduler.let_pass(network.delay_s())
        node, host = machine.node, machine.host
        if node is None or not machine.ready or host.dead:
            scheduler.let_pass(0.05)
            raise PeerUnavailableError(f"node {number} is not there")

        def run() -> None:
            found: Answer | LogStoreError
            try:
                found = work(node)
            except LogStoreError as error:
                found = error
            answer.append(found)
            answered.set()

        scheduler.spawn(name, run, host)
        deadline_s = scheduler.now_s + timeout_s
        while not answered.wait(0.2):
            if host.dead or scheduler.now_s >= deadline_s:
                raise PeerUnavailableError(f"node {number} did not answer")
        scheduler.let_pass(network.delay_s())
        if network.dice.random() < network.loss:
            raise PeerUnavailableError(f"the answer of node {number} was lost")
        found = answer[0]
        if isinstance(found, _NODES_OWN):
            self.counts[f"nodes' own errors: {type(found).__name__}"] += 1
            raise PeerUnavailableError(f"node {number}: {found.message}") from None
        if isinstance(found, LogStoreError):
            raise copy.copy(found)
        return found
