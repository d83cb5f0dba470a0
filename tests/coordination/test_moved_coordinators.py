"""Groups and transactions whose coordinator moves to another process: what was begun goes on there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from logstore.api.groups import JoinRequest
from logstore.coordination.group_manager import GroupManager
from logstore.coordination.membership_task import MembershipTask
from logstore.coordination.transaction_manager import TransactionManager
from logstore.coordination.transaction_reaper import TransactionReaper
from logstore.coordination.transactional_offsets import LocalOffsets
from logstore.errors import (
    LogStoreError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
    UnknownMemberError,
    UnknownTransactionError,
)
from logstore.groups.coordinator import GroupCoordinator
from logstore.machine import TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.coordination.memory_coordinators import MemoryCoordinators, MemoryLog
from tests.coordination.memory_runtime import (
    MarkedPartition,
    MemoryEnds,
    MemoryLiveness,
    MemoryStoreView,
    MemoryTransactionRuntime,
)

PLACES = (TopicPartition("t", 0), TopicPartition("t", 1))
REQUEST = JoinRequest(topics=frozenset({"t"}))


class ElsewhereError(LogStoreError):
    """Another process runs the coordinator."""


class Node:
    """A process of a cluster: it shares the logs with the others, and nothing else."""

    def __init__(
        self,
        logs: dict[str, MemoryLog],
        partitions: dict[TopicPartition, MarkedPartition],
        ids: Iterator[int],
    ) -> None:
        self.moved: list[LogStoreError] = []
        self.store = MemoryStoreView()
        coordinators = MemoryCoordinators(logs, self.moved)
        runtime = MemoryTransactionRuntime({}, partitions)
        runtime._ids = ids
        groups = coordinators.needed("groups", {}, GroupCoordinator)
        self.transactions = TransactionManager(
            self.store,
            runtime,
            LocalOffsets(self.store.clock, lambda: groups, MemoryEnds()),
            coordinators,
        )
        self.reaper = TransactionReaper(self.transactions)
        self.groups = GroupManager(
            self.store,
            lambda create: groups,
            lambda: {"t": 4},
            MemoryEnds(),
            lambda: None,
            MemoryLiveness(set()),
            lambda: "a node",
        )
        self.task = MembershipTask(lambda: self.groups, threads=False)


class Cluster:
    def __init__(self) -> None:
        self.partitions = {place: MarkedPartition() for place in PLACES}
        logs: dict[str, MemoryLog] = {}
        ids = itertools.count(1_000)
        self.first, self.second = (Node(logs, self.partitions, ids) for _ in range(2))
        self.second.moved.append(ElsewhereError("the first"))

    def move(self) -> None:
        self.second.moved.clear()
        self.first.moved.append(ElsewhereError("the second"))

    def outcomes(self) -> list[list[bool]]:
        return [[marker.committed for marker in self.partitions[place].markers] for place in PLACES]


def test_a_transaction_goes_on_at_the_next_coordinator() -> None:
    cluster = Cluster()
    lease = cluster.first.transactions.open("x", 60_000)
    writer = TransactionalWriter(lease.producer_id, lease.epoch)
    lease.begin()
    lease.add_partitions(PLACES[:1])
    cluster.move()
    with pytest.raises(ElsewhereError):
        lease.add_partitions(PLACES[1:])
    resumed = cluster.second.transactions.resume("x", 60_000, writer)
    assert (resumed.producer_id, resumed.epoch, resumed.places) == (*writer, {PLACES[0]})
    assert cluster.second.transactions.resume("x", 60_000, writer) is resumed  # asked again
    resumed.add_partitions(PLACES, writer=writer)
    resumed.send_offsets("g", {PLACES[0]: OffsetAndMetadata(3)}, writer=writer)
    resumed.end(commit=True, writer=writer)
    assert cluster.outcomes() == [[True], [True]]
    lease.release()  # its client was not heard of for long: nothing of it is ended
    resumed.begin()
    resumed.add_partitions(PLACES)
    resumed.end(commit=False)
    assert cluster.outcomes() == [[True, False], [True, False]]


def test_the_former_coordinator_lets_go() -> None:
    cluster = Cluster()
    lease = cluster.first.transactions.open("x", 60_000)
    lease.begin()
    lease.add_partitions(PLACES)
    cluster.move()
    cluster.first.reaper.step()
    assert cluster.first.transactions.leases() == []
    for call in (lease.begin, lambda: lease.end(commit=True), lease.prepare):
        with pytest.raises(ElsewhereError):
            call()
    assert isinstance(lease.ended_by(), ElsewhereError)
    lease.release()
    assert cluster.outcomes() == [[], []]


def test_a_commit_whose_answer_was_lost_is_found_and_finished() -> None:
    cluster = Cluster()
    lease = cluster.first.transactions.open("x", 60_000)
    writer = TransactionalWriter(lease.producer_id, lease.epoch)
    lease.begin()
    lease.add_partitions(PLACES)
    coordinator = cluster.first.transactions.coordinator()
    coordinator.decide(lambda machine: machine.decide_end("x", *writer, commit=True, now_ms=1))
    cluster.move()
    resumed = cluster.second.transactions.resume("x", 60_000, writer)
    with pytest.raises(TransactionStateError, match="committed already"):
        resumed.end(commit=False, writer=writer)
    resumed.end(commit=True, writer=writer)
    resumed.end(commit=True, writer=writer)
    assert cluster.outcomes() == [[True], [True]]
    again = cluster.second.transactions.resume("x", 60_000, writer)
    assert again is resumed


def test_a_finished_commit_is_repeated_without_a_second_marker() -> None:
    cluster = Cluster()
    lease = cluster.first.transactions.open("x", 60_000)
    writer = TransactionalWriter(lease.producer_id, lease.epoch)
    lease.begin()
    lease.add_partitions(PLACES)
    lease.end(commit=True)
    cluster.move()
    cluster.second.transactions.resume("x", 60_000, writer).end(commit=True, writer=writer)
    assert cluster.outcomes() == [[True], [True]]
    fresh = cluster.second.transactions.resume(
        "x", 60_000, TransactionalWriter(lease.producer_id, lease.epoch)
    )
    fresh.begin()
    fresh.add_partitions(PLACES)
    fresh.end(commit=True)
    assert cluster.outcomes() == [[True, True], [True, True]]


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_what_was_begun_behind_a_commit_that_no_coordinator_was_told_of_goes_on(
    commit: bool, used: bool
) -> None:
    """A transaction's first step tells that the one before is complete: at the next coordinator, too."""
    cluster = Cluster()
    lease = cluster.first.transactions.open("x", 60_000)
    lease.begin()
    lease.add_partitions(PLACES)
    lease.end(commit=True)
    lease.begin()
    writer = TransactionalWriter(lease.producer_id, lease.epoch)
    cluster.move()
    resumed = cluster.second.transactions.resume("x", 60_000, writer)
    if used:
        resumed.add_partitions(PLACES, writer=writer)
    resumed.end(commit=commit, writer=writer)
    assert cluster.outcomes() == [[True, commit] if used else [True]] * 2
    resumed.begin()
    resumed.add_partitions(PLACES)
    resumed.end(commit=True)


def test_what_the_next_coordinator_aborted_is_told() -> None:
    cluster = Cluster()
    lease = cluster.first.transactions.open("x", 1_000)
    writer = TransactionalWriter(lease.producer_id, lease.epoch)
    lease.begin()
    lease.add_partitions(PLACES)
    cluster.move()
    cluster.second.transactions.resolve("x")
    resumed = cluster.second.transactions.resume("x", 1_000, writer)
    with pytest.raises(TransactionAbortedError):
        resumed.end(commit=True, writer=writer)
    resumed.begin()
    resumed.add_partitions(PLACES)
    resumed.end(commit=True)
    assert cluster.outcomes() == [[False, True], [False, True]]


def test_an_older_opening_is_fenced_and_a_stranger_unknown() -> None:
    cluster = Cluster()
    lease = cluster.first.transactions.open("x", 1_000)
    cluster.move()
    cluster.second.transactions.open("x", 1_000)
    with pytest.raises(ProducerFencedError):
        cluster.second.transactions.resume("x", 1_000, TransactionalWriter(lease.producer_id, lease.epoch))
    with pytest.raises(UnknownTransactionError):
        cluster.second.transactions.resume("y", 1_000, TransactionalWriter(1, 0))


def test_a_prepared_participant_waits_for_its_coordinator_elsewhere() -> None:
    cluster = Cluster()
    lease = cluster.first.transactions.open("part", 60_000, coordinator="whole")
    writer = TransactionalWriter(lease.producer_id, lease.epoch)
    lease.begin()
    lease.add_partitions(PLACES)
    prepared = lease.prepare()
    cluster.move()
    resumed = cluster.second.transactions.resume("part", 60_000, writer, coordinator="whole")
    assert resumed.prepare() == prepared
    whole = cluster.second.transactions.open("whole", 60_000, keep_prepared=True)
    whole.begin()
    assert prepared is not None
    whole.end(commit=True, prepared=[prepared])
    assert cluster.outcomes() == [[True], [True]]


def test_members_go_on_at_the_next_coordinator() -> None:
    cluster = Cluster()
    member = cluster.first.groups.join("g", REQUEST)
    view = member.view()
    cluster.move()
    assert cluster.first.task.step() is None
    assert member.view() is None
    assert isinstance(member.ended_by(), ElsewhereError)
    assert cluster.first.groups.members() == []
    resumed = cluster.second.groups.resume("g", member.member_id, REQUEST)
    assert resumed.view() == view
    assert cluster.second.groups.resume("g", member.member_id, REQUEST) is resumed
    cluster.second.groups.commit("g", {PLACES[0]: OffsetAndMetadata(1)}, member.member_id, 1)
    resumed.leave()
    with pytest.raises(UnknownMemberError):
        cluster.second.groups.resume("g", member.member_id, REQUEST)
