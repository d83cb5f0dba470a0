"""The transaction manager and its reaper on a runtime in memory: neither a directory, nor locks, nor a store."""

from __future__ import annotations

import pytest

from logstore.coordination.transaction_manager import TransactionManager
from logstore.coordination.transaction_reaper import TransactionReaper
from logstore.coordination.transactional_offsets import LocalOffsets
from logstore.errors import ProducerFencedError
from logstore.groups.coordinator import GroupCoordinator
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.coordination.memory_coordinators import MemoryCoordinators, MemoryLog
from tests.coordination.memory_runtime import (
    MarkedPartition,
    MemoryEnds,
    MemoryIdLock,
    MemoryStoreView,
    MemoryTransactionRuntime,
)

PLACES = (TopicPartition("t", 0), TopicPartition("t", 1))


class MemoryWorld:
    """``process``: a transaction manager and its reaper, of one process more."""

    def __init__(self) -> None:
        self.logs: dict[str, MemoryLog] = {}
        self.held: dict[str, MemoryIdLock] = {}
        self.partitions = {place: MarkedPartition() for place in PLACES}
        self.store = MemoryStoreView()
        self.offsets = MemoryCoordinators(self.logs).needed("groups", {}, GroupCoordinator)

    def process(self) -> tuple[TransactionManager, TransactionReaper]:
        runtime = MemoryTransactionRuntime(self.held, self.partitions)
        offsets = LocalOffsets(self.store.clock, lambda: self.offsets, MemoryEnds())
        manager = TransactionManager(self.store, runtime, offsets, MemoryCoordinators(self.logs))
        return manager, TransactionReaper(manager)

    def outcomes(self) -> list[list[bool]]:
        return [[marker.committed for marker in self.partitions[place].markers] for place in PLACES]

    def group_offset(self) -> int | None:
        committed = self.offsets.look(lambda machine: machine.committed("g", lambda name: bytes(16)))
        found = committed.get(TopicPartition("in", 0))
        return None if found is None else found.offset


def test_commit_abort_and_fence() -> None:
    world = MemoryWorld()
    manager, _ = world.process()
    lease = manager.open("x", 60_000)
    for number, commit in enumerate((True, False)):
        lease.begin()
        lease.add_partitions(PLACES)
        lease.send_offsets("g", {TopicPartition("in", 0): OffsetAndMetadata(10 + number)})
        lease.end(commit=commit)
    assert world.outcomes() == [[True, False]] * 2
    assert world.group_offset() == 10
    lease.begin()
    lease.add_partitions(PLACES)
    manager.open("x", 60_000)
    assert world.outcomes() == [[True, False, False]] * 2
    with pytest.raises(ProducerFencedError):
        lease.end(commit=True)


def test_the_reaper_of_another_process_ends_what_a_dead_one_left() -> None:
    world = MemoryWorld()
    manager, _ = world.process()
    lease = manager.open("x", 60_000)
    lease.begin()
    lease.add_partitions(PLACES)
    _, reaper = world.process()
    reaper.step()
    assert world.outcomes() == [[], []], "its owner lives"
    world.held.clear()
    world.store.clock.advance(10_000)
    reaper.step()
    assert world.outcomes() == [[False], [False]]
