"""Exactly once from a group to an output, over two coordinators that die at every step: neither lost nor half seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from logstore.coordination.transaction_manager import TransactionManager
from logstore.errors import (
    LogStoreError,
    OutcomeUnknownError,
    ProducerBusyError,
    ProducerFencedError,
    RetriableError,
    TopicLockedError,
    TransactionAbortedError,
    TransactionStateError,
)
from logstore.machine import TransactionalWriter
from logstore.types import OffsetAndMetadata
from replication.errors import NotLeaderError
from tests.replication.coordination.crossing_world import GROUP, OUT, SOURCE, Crossing, _leader

Answer = TypeVar("Answer")
_MOST_TRIES = 400


class Copier:
    """Reads at the group's offset, writes what it read, and commits both: as a consumer with a producer does."""

    def __init__(self, world: Crossing) -> None:
        self.world = world
        self.acknowledged = 0
        self.open()

    def open(self) -> None:
        lease = self._again(lambda manager: manager.open("x", 60_000))
        self.writer = TransactionalWriter(lease.producer_id, lease.epoch)

    def _again(self, work: Callable[[TransactionManager], Answer]) -> Answer:
        """At whoever coordinates, as clients do."""
        world = self.world
        failure: LogStoreError | None = None
        for attempt in range(_MOST_TRIES):
            if attempt > _MOST_TRIES // 2:
                world.mend(world.state)
                world.mend(world.offsets)
            try:
                return work(world.managers[_leader(world.state.nodes).node_id][0])
            except (RetriableError, OutcomeUnknownError, ProducerBusyError, TopicLockedError) as error:
                if isinstance(error, TransactionAbortedError):
                    raise
                failure = error
            world.between()
            world.state.nodes.tick()
        raise AssertionError("no coordinator answers") from failure

    def _call(self, work: Callable[[Any], Answer]) -> Answer:
        return self._again(lambda manager: work(manager.resume("x", 60_000, self.writer)))

    def copy(self) -> bool:
        """One record; whether it was told to be committed."""
        world, writer = self.world, self.writer
        try:
            while True:
                number, unstable = world.position()
                if not unstable:
                    break
                world.look_after()
                self._again(lambda manager: manager.state_of("x"))
                if self._is_open():
                    raise TransactionAbortedError("of an earlier call of this copier")
            self._call(lambda lease: lease.begin(writer))
            world.between()
            self._call(lambda lease: lease.add_partitions([OUT], offsets=True, writer=writer))
            world.between()
            world.output.append(writer, number)
            world.between()
            self._call(
                lambda lease: lease.send_offsets(
                    GROUP, {SOURCE: OffsetAndMetadata(number + 1)}, writer=writer
                )
            )
            world.between()
            self.writer = self._call(self._commit)
        except (TransactionAbortedError, ProducerFencedError):
            return False
        self.acknowledged += 1
        return True

    def _commit(self, lease: Any) -> TransactionalWriter:
        lease.end(commit=True, writer=self.writer)
        return TransactionalWriter(lease.producer_id, lease.epoch)

    def _is_open(self) -> bool:
        state = self._again(lambda manager: manager.state_of("x"))
        return state is not None and not state.status.is_decided and bool(state.places)


def check(world: Crossing) -> None:
    """What a reader sees: the outputs in their order, each once; and the offset behind them, unless it says to wait."""
    seen = list(world.output.committed)
    number, unstable = world.position()
    assert seen == list(range(len(seen)))
    assert unstable or number >= len(seen)
    assert number <= len(seen) + 1


def at_rest(world: Crossing, copier: Copier) -> None:
    """All that was decided is finished, once nothing dies any more."""
    world.faults = 0.0
    for each in (world.state, world.offsets):
        world.mend(each)
    copier.open()  # ends what is under way, as the next instance does
    number, unstable = world.position()
    assert not unstable
    assert world.output.committed == list(range(number))
    assert number >= copier.acknowledged


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in (*range(12, 150), 194))]
)
def test_a_commit_is_neither_lost_nor_half_seen(seed: int) -> None:
    world = Crossing(seed, faults=0.12)
    copier = Copier(world)
    for _ in range(12):
        if not copier.copy():
            copier.open()
        check(world)
    at_rest(world, copier)


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))]
)
def test_a_zombie_is_fenced_at_both_coordinators(seed: int) -> None:
    """Two instances under one id: the older one may fail in whatever way, and changes nothing."""
    world = Crossing(seed, faults=0.06)
    older = Copier(world)
    for _ in range(3):
        if not older.copy():
            older.open()
    number, _ = world.position()
    stale = older.writer
    steps = world.dice.randrange(4)
    if steps > 0:
        older._call(lambda lease: lease.begin(stale))
        older._call(lambda lease: lease.add_partitions([OUT], offsets=True, writer=stale))
    if steps > 1:
        world.output.append(stale, 1_000)
    if steps > 2:
        older._call(lambda lease: lease.send_offsets(GROUP, {SOURCE: OffsetAndMetadata(900)}, writer=stale))
    newer = Copier(world)
    for _ in range(4):
        with pytest.raises((ProducerFencedError, TransactionAbortedError, TransactionStateError)):
            older._call(
                lambda lease: lease.send_offsets(GROUP, {SOURCE: OffsetAndMetadata(901)}, writer=stale)
            )
        if steps > 2:
            with pytest.raises(ProducerFencedError):
                _late_offsets(world, stale)
        if steps > 0:
            with pytest.raises(ProducerFencedError):
                world.output.append(stale, 1_001)
        if not newer.copy():
            newer.open()
        check(world)
    at_rest(world, newer)
    assert world.position()[0] >= number


def _late_offsets(world: Crossing, stale: TransactionalWriter) -> None:
    """The former coordinator's call, which was on its way for long, comes to the group's."""
    while True:
        try:
            manager = world.managers[_leader(world.state.nodes).node_id][0]
            manager.send_offsets(GROUP, {SOURCE: OffsetAndMetadata(902)}, stale, None)
        except RetriableError:
            world.between()
            world.mend(world.offsets)
            continue
        except NotLeaderError:
            continue
        return
