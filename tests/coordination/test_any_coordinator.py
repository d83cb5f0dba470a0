"""Groups and transactions on any coordinators: the embedded ones, and ones whose logs are lists in memory."""

from __future__ import annotations

import pytest

from logstore.coordination.coordinator import Coordinator, Coordinators
from logstore.errors import (
    ProducerFencedError,
    StaleGenerationError,
    TransactionAbortedError,
    TransactionTimedOutError,
)
from logstore.groups.coordinator import GroupCoordinator
from logstore.store import LogStore
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.coordination.memory_coordinators import MemoryCoordinators, MemoryLog
from tests.transaction_world import SOURCE, World, Writer, committed, group_offset, settled, states


@pytest.fixture(params=["embedded", "memory"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "memory":
        logs: dict[str, MemoryLog] = {}
        monkeypatch.setattr(
            "logstore.embedded.backend.EmbeddedCoordinators", lambda *_: MemoryCoordinators(logs)
        )
    return str(request.param)


def two() -> tuple[World, LogStore, LogStore]:
    world = World()
    return world, world.made(), world.process()


def test_the_memory_ones_are_coordinators(kind: str) -> None:
    store = World().made()
    store.commit_offsets("g", {SOURCE: OffsetAndMetadata(1)})
    assert ("__consumer_offsets" in store.list_topics(internal=True)) is (kind == "embedded")
    coordinators: Coordinators = MemoryCoordinators({})
    found: Coordinator[GroupCoordinator] = coordinators.needed("t", {}, GroupCoordinator)
    assert found.look(lambda machine: machine.groups()) == []


def test_transactions_commit_abort_and_fence() -> None:
    _, store, other = two()
    writer = Writer(store)
    for number, commit in enumerate((True, False, True)):
        writer.begin()
        writer.send(b"%d" % number, number)
        writer.offset(number + 1)
        (writer.commit if commit else writer.abort)()
    assert committed(other) == [b"0", b"2"]
    assert group_offset(other) == 3
    newer = Writer(store)
    with pytest.raises(ProducerFencedError):
        writer.begin()
    newer.begin()
    newer.offset(9)
    assert group_offset(other) == 3
    newer.commit()
    assert group_offset(other) == 9
    assert settled(store)


def test_an_overdue_and_an_abandoned_transaction_are_ended() -> None:
    world, store, other = two()
    overdue, left = Writer(store, "overdue", 1_000), Writer(other, "left")
    for writer, group in ((overdue, "overdue"), (left, "left")):
        writer.begin()
        writer.offset(5, group)
    overdue.send(b"never")
    other.abandon()
    world.turn(store, times=4)
    assert settled(store)
    assert committed(store) == []
    assert {group_offset(store, name) for name in ("overdue", "left")} == {0}
    assert set(states(store).values()) == {"COMPLETE_ABORT"}
    with pytest.raises((TransactionTimedOutError, TransactionAbortedError)):
        overdue.commit()


def test_members_share_and_their_commits_are_fenced() -> None:
    _, store, other = two()
    with store.consumer("out", group="g") as first:
        first.poll(timeout_s=0)
        assert len(first.assignment()) == 3
        with other.consumer("out", group="g") as second:
            for _ in range(4):
                first.poll(timeout_s=0)
                second.poll(timeout_s=0)
                store.backend.groups.step()
                other.backend.groups.step()
            assert len(first.assignment()) + len(second.assignment()) == 3
            (moved, *_) = second.assignment()
            with pytest.raises(StaleGenerationError):
                first.commit({moved: 0})
            second.commit({moved: 0})
    assert set(store.committed_offsets("g")) >= {moved}
    store.delete_topic("out")
    assert TopicPartition("out", 0) not in other.committed_offsets("g")
