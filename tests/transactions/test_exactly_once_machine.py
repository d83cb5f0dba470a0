"""Exactly once, from the coordinator's decisions to what a reader sees: any interleaving of producers, their older
selves, those who clean up, kills and power losses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from logstore.log.producers.producer_state import Marker
from logstore.transactions.coordinator import EndedTransaction
from logstore.types import TopicPartition
from tests.transactions.exactly_once import PLACES, Job, Partition, Plan, World
from tests.transactions.test_coordinator_machine import AnOpeningAbortsACommit, NoBumpOnOpening

IDS = ("orders", "returns")
names = st.sampled_from(IDS)
plans = st.lists(
    st.builds(
        Plan,
        st.sets(st.sampled_from(PLACES), min_size=1).map(lambda found: tuple(sorted(found))),
        st.integers(1, 2),
        st.booleans(),
        st.sampled_from([True, True, False]),
    ),
    min_size=1,
    max_size=3,
)


class ExactlyOnceMachine(RuleBasedStateMachine):
    kind: type[World] = World

    def __init__(self) -> None:
        super().__init__()
        self.world = self.kind()
        self.jobs: list[Job] = []

    @rule(name=names, plans=plans)
    def start(self, name: str, plans: list[Plan]) -> None:
        """Another opening of the id; one from before may go on beside it."""
        self.jobs.append(self.world.producer(name, plans))

    @rule(name=names, fence=st.booleans())
    def clean_up(self, name: str, fence: bool) -> None:
        """The timeout, an administrator, or another process that takes the owner for dead."""
        self.jobs.append(self.world.resolver(name, fence=fence))

    @rule(pick=st.integers(0, 9), steps=st.sampled_from([1, 1, 2, 3, 5, 8, 13, 40]))
    def step(self, pick: int, steps: int) -> None:
        if not self.jobs:
            return
        job = self.jobs[-1 - pick % len(self.jobs)]
        for _ in range(steps):
            try:
                next(job)
            except StopIteration:
                self.jobs.remove(job)
                return

    @rule(pick=st.integers(0, 9))
    def kill(self, pick: int) -> None:
        if self.jobs:
            del self.jobs[pick % len(self.jobs)]

    @rule()
    def lose_power(self) -> None:
        self.jobs.clear()
        self.world.power_loss()

    @rule(power=st.booleans())
    def resolve(self, power: bool) -> None:
        """Whoever comes next finishes all; jobs that stopped half way may still go on later."""
        if power:
            self.lose_power()
        self.world.resolve_all()
        self.world.check_resolved()

    @invariant()
    def readers_see_committed_transactions_alone(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.resolve_all()
        self.world.check_resolved()


class DrivenMachine(ExactlyOnceMachine):
    """The same rules in an order of their own seed, many times as fast: for campaigns, and to find planted faults."""

    def drive(self, seed: int, steps: int = 120) -> None:
        random = Random(seed)

        def plan() -> Plan:
            places = tuple(sorted(random.sample(PLACES, random.randint(1, 3))))
            return Plan(places, random.randint(1, 2), random.random() < 0.3, random.random() < 0.7)

        rules: list[Callable[[str], None]] = [
            lambda name: self.start(name, [plan() for _ in range(random.randint(1, 3))]),
            lambda name: self.clean_up(name, random.random() < 0.5),
            lambda name: self.step(
                random.choice([0, 0, 0, 1, 2, 9]), random.choice([1, 1, 2, 3, 5, 8, 13, 40])
            ),
            lambda name: self.kill(random.randrange(10)),
            lambda name: self.lose_power(),
            lambda name: self.resolve(random.random() < 0.5),
        ]
        for rule_ in random.choices(rules, [14, 5, 75, 2, 2, 2], k=steps):
            rule_(random.choice(IDS))
            self.readers_see_committed_transactions_alone()
        self.teardown()


def campaign(kind: type[World], seeds: range) -> int:
    """How many transactions were committed, and seen."""
    machine = type("DrivenKind", (DrivenMachine,), {"kind": kind})
    committed = 0
    for seed in seeds:
        driven = machine()
        driven.drive(seed)
        committed += sum(driven.world.outcomes.values())
    return committed


def test_all_or_none_through_any_crash() -> None:
    run_state_machine_as_test(
        ExactlyOnceMachine,
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_all_or_none_over_many_seeds() -> None:
    assert campaign(World, range(100)) > 100


@pytest.mark.long
def test_all_or_none_over_very_many_seeds() -> None:
    campaign(World, range(1_000, 11_000))


# --- planted faults: each must be found -------------------------------------------------------------


class DecidesBeforeTheDataIsDurable(World):
    def before_the_decision(self, partition: Partition) -> None:
        pass


class NotesAMarkerBeforeItIsDurable(World):
    def finish(self, ended: EndedTransaction) -> Job:
        marker = Marker(ended.producer_id, ended.marker_epoch, 0, ended.commit, 0)
        for place in ended.places:
            yield
            self.mark(self.partitions[place], marker)
            yield
            self.note_marked(ended, place)


class NotesAllAfterTheFirstMarker(World):
    def note_marked(self, ended: EndedTransaction, place: TopicPartition) -> None:
        for every in ended.places:
            super().note_marked(ended, every)


class WritesASecondMarker(World):
    """What a log would do that only refuses older epochs: it ends the next transaction."""

    def mark(self, partition: Partition, marker: Marker) -> None:
        entry = partition.producers.entry(marker.producer_id)
        if entry is None or entry.epoch <= marker.epoch:
            partition.append_marker(marker)


class AbortsADecidedCommit(World):
    coordinator_kind = AnOpeningAbortsACommit


class OpensWithoutAnotherEpoch(World):
    coordinator_kind = NoBumpOnOpening


@pytest.mark.parametrize(
    "kind",
    [
        DecidesBeforeTheDataIsDurable,
        NotesAMarkerBeforeItIsDurable,
        NotesAllAfterTheFirstMarker,
        WritesASecondMarker,
        AbortsADecidedCommit,
        OpensWithoutAnotherEpoch,
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_planted_fault_is_found(kind: type[World]) -> None:
    with pytest.raises(AssertionError):
        campaign(kind, range(400))
