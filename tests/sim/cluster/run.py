"""``run_seed``: a cluster, its clients and its faults as one seed has them; then peace, in which all must agree.

The schedule of a run is a list of faults, drawn before it begins, so that a shorter list of the same seed is a run,
too: that is how a failing one is made smaller (``shrink.py``).
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import replication.cluster_node  # noqa: F401 - all of production is there before its modules are looked at
from logstore.log.log_offsets import LogOffsets
from tests.replication.sim.checks import BrokenPropertyError
from tests.sim.cluster.checks import Checks, watching
from tests.sim.cluster.churn import TopicChurn
from tests.sim.cluster.client import Client
from tests.sim.cluster.ending import check_ending
from tests.sim.cluster.faults import Fault, drawn, heal, strike
from tests.sim.cluster.operators import CONFIGS, TOPICS, Operator
from tests.sim.cluster.producer import IdempotentProducer, KeyedProducer, RetainedProducer
from tests.sim.cluster.reader import Member, Reader
from tests.sim.cluster.scheduler import KilledError, Scheduler, StuckError
from tests.sim.cluster.seconds import SECONDS
from tests.sim.cluster.threads import exchanged
from tests.sim.cluster.transactor import Transactor
from tests.sim.cluster.traps import KINDS, set_trap, with_traps
from tests.sim.cluster.witness import Witness
from tests.sim.cluster.world import World

_BEGIN_S: Final = 120.0
_TRAPS_S: Final = 20.0
_PEACE_S: Final = 120.0
"""Within so long after the last fault everything works again."""


@dataclass
class Outcome:
    """Of one run. ``broken``: "" where all was kept."""

    seed: int
    nodes: int
    faults: list[Fault]
    trace: str = ""
    broken: str = ""
    turns: int = 0
    looks: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)


def run_seed(
    seed: int,
    *,
    nodes: int | None = None,
    only: Sequence[int] | None = None,
    lines: list[str] | None = None,
    plant: Callable[[], object] | None = None,
    witnessed: bool = False,
    faults: Sequence[Fault] | None = None,
) -> Outcome:
    """Never raises for what is broken: the outcome says it. ``only``: numbers of the faults that are left, of
    all that the seed draws; ``lines``: gets the trace; ``plant``: a context in which production has a bug;
    ``witnessed``: with traps, and a client that springs them; it is another run than the same seed without;
    ``faults``: instead of those that the seed draws."""
    dice, count, schedule = _schedule(seed, nodes, witnessed=witnessed)
    if faults is not None:
        schedule = list(faults)
    chosen = schedule if only is None else [schedule[number] for number in only]
    outcome = Outcome(seed, count, chosen)
    scheduler = Scheduler(seed, preempts=dice.choice((0.0, 0.01, 0.05)))
    scheduler.lines = lines
    checks = Checks()
    gc.collect()
    gc.disable()  # what is collected when would be in the trace
    try:
        with ExitStack() as stack:
            if plant is not None:
                stack.enter_context(plant())  # type: ignore[arg-type]
            stack.enter_context(exchanged(scheduler))
            stack.enter_context(watching(checks, scheduler.fail))
            world = World(seed, count, scheduler)
            run = Run(world, witnessed=witnessed)
            try:
                run.all(outcome.faults)
            except (BrokenPropertyError, StuckError) as error:
                outcome.broken = f"{type(error).__name__}: {error}"
            except Exception as error:  # noqa: BLE001 - whatever production raises where it should not
                outcome.broken = f"{type(error).__name__}: {error}"
            except KilledError:
                outcome.broken = "the simulation's own task was killed"
            finally:
                outcome.turns = scheduler.switches
                outcome.trace = scheduler.trace()
                scheduler.end(world.hosts)
            outcome.looks = checks.looks
            outcome.counts = world.counts + world.network.counts
            outcome.hits = world.hits
    finally:
        gc.enable()
    return outcome


def _schedule(seed: int, nodes: int | None, *, witnessed: bool) -> tuple[random.Random, int, list[Fault]]:
    """Dice for what else is drawn, the number of nodes, the faults."""
    dice = random.Random(f"{seed}:schedule")
    count = nodes or dice.choice((3, 3, 5))
    schedule = drawn(dice, count)
    return dice, count, with_traps(seed, schedule) if witnessed else schedule


def traps_of(seed: int, what: str) -> list[int]:
    """Numbers of that kind of traps among the seed's faults, for ``only``."""
    schedule = _schedule(seed, None, witnessed=True)[2]
    return [number for number, fault in enumerate(schedule) if fault.what == what]


class Run:
    """One of them, in the simulation's own task."""

    def __init__(self, world: World, *, witnessed: bool) -> None:
        self.world = world
        self.scheduler = world.scheduler
        self.witnessed = witnessed
        self.clients: list[Client] = []

    def all(self, faults: list[Fault]) -> None:
        self._begin()
        self._with_clients()
        for fault in faults:
            self.scheduler.let_pass(fault.after_s)
            (set_trap if fault.what in KINDS else SECONDS.get(fault.what, strike))(self.world, fault)
        self._let_traps_spring()
        heal(self.world)
        self._peace()
        check_ending(self.world, self.clients)

    def _let_traps_spring(self) -> None:
        """Peace would end what they break before anything comes of it."""
        world = self.world
        deadline_s = self.scheduler.now_s + _TRAPS_S
        while any(world.traps.values()) and self.scheduler.now_s < deadline_s:
            self.scheduler.let_pass(0.2)
        self.scheduler.let_pass(max(world.trapped_until_s - self.scheduler.now_s, 0.0))

    def _begin(self) -> None:
        for machine in self.world.machines.values():
            machine.start()
        self.wait("the cluster begins", lambda: len(self.world.ready()) == len(self.world.machines), _BEGIN_S)
        setup = Operator(self.world, "setup")
        for name, (partitions, config) in CONFIGS.items():
            setup.create(name, partitions, config)

    def _with_clients(self) -> None:
        world = self.world
        self.clients = [
            IdempotentProducer(world, "p1", dict(TOPICS)),
            IdempotentProducer(world, "p2", dict(TOPICS)),
            Transactor(world, "t1", dict(TOPICS)),
            Reader(world, "r1", dict(TOPICS)),
            Member(world, "m1", dict(TOPICS), "members"),
            Member(world, "m2", dict(TOPICS), "members"),
            KeyedProducer(world, "k1", {"compacted": 1}),
            RetainedProducer(world, "d1", {"retained": 1}),
            TopicChurn(world, "churn"),
        ]
        if self.witnessed:
            self.clients.append(Witness(world, "w1", dict(TOPICS)))
        for client in self.clients:
            self.scheduler.spawn(client.name, client.run, world.scheduler.world)

    def wait(self, what: str, condition: Callable[[], bool], most_s: float) -> None:
        deadline_s = self.scheduler.now_s + most_s
        while not condition():
            if self.scheduler.now_s > deadline_s:
                raise BrokenPropertyError(f"not within {most_s:g} s: {what} (liveness)")
            self.scheduler.let_pass(0.2)

    def _peace(self) -> None:
        world = self.world
        self.wait("all nodes run", lambda: len(world.ready()) == len(world.machines), _PEACE_S)
        self.scheduler.let_pass(2.0)
        world.quiet = True
        self.wait(
            "clients are answered: " + ", ".join(one.name for one in self.clients if not one.idle),
            lambda: all(one.idle for one in self.clients),
            _PEACE_S,
        )
        self.wait("replicas agree", self._agree, _PEACE_S)

    def _agree(self) -> bool:
        """All replicas of each group show the same, all of it, also to readers of committed records: a decided
        transaction is answered before its markers are written."""
        ends: dict[object, set[LogOffsets]] = {}
        for machine in self.world.ready():
            assert machine.node is not None
            for replica in machine.node.node.replicas():
                if replica.failure is not None:
                    return False
                ends.setdefault(replica.group, set()).add(replica.log.bounds())
        return all(
            len({(one.last_stable_offset, one.high_watermark, one.log_end_offset) for one in found}) == 1
            and all(one.last_stable_offset == one.log_end_offset for one in found)
            for found in ends.values()
        )
