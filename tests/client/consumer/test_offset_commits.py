"""A consumer's commits: in one order whoever waits for them, and what a transaction may take for its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from logstore.client.consumer.fetch_state import FetchState
from logstore.client.consumer.offset_commits import OffsetCommits
from logstore.errors import InvalidArgumentError, StaleGenerationError, StorageError
from logstore.seams.clock import ManualClock
from logstore.types import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
Points = Mapping[TopicPartition, OffsetAndMetadata]


class Desk:
    """``log``: what was written, in order; ``gate``: closed, a write waits before it; ``errors``: of writes to come,
    None for one that goes well. It stands for the backend, the assignment and a membership."""

    def __init__(self, interval_s: float | None = None) -> None:
        self.clock = ManualClock()
        self.log: list[tuple[Any, ...]] = []
        self.errors: list[Exception | None] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.states = {place: FetchState(place, 0, -1, "id") for place in (A, B)}
        self.gone: set[TopicPartition] = set()
        desk: Any = self
        self.commits = OffsetCommits(desk, "g", desk, self.clock, interval_s)

    def standing(self) -> dict[TopicPartition, FetchState]:
        return {place: state for place, state in self.states.items() if place not in self.gone}

    def commit_offsets(self, group: str, points: Points) -> None:
        self._write((group, offsets(points)))

    def commit(self, points: Points, epoch: int) -> None:
        self._write((epoch, offsets(points)))

    def _write(self, row: tuple[Any, ...]) -> None:
        self.entered.set()
        assert self.gate.wait(60)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.log.append(row)


def offsets(points: Points) -> dict[int, int]:
    return {place.partition: at.offset for place, at in points.items()}


def point(a: int | None = None, b: int | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
    return {place: OffsetAndMetadata(at) for place, at in ((A, a), (B, b)) if at is not None}


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.gate.set()
    made.commits.close()


def test_what_is_committed_as_it_is_is_not_committed_again(desk: Desk) -> None:
    commits = desk.commits
    desk.states[A].seek(5, 2)
    assert offsets(commits.changed(FetchState.commit_point)) == {0: 5, 1: 0}
    commits.commit(commits.changed(FetchState.commit_point))
    assert desk.log == [("g", {0: 5, 1: 0})]
    assert commits.changed(FetchState.commit_point) == {}
    desk.states[A].seek(5, 3)  # the same offset, of a newer epoch
    assert offsets(commits.changed(FetchState.commit_point)) == {0: 5}
    desk.gone.add(A)
    assert commits.changed(FetchState.commit_point) == {}
    commits.commit({})
    assert len(desk.log) == 1


def test_a_commit_that_is_waited_for_does_not_overtake(desk: Desk) -> None:
    desk.gate.clear()
    told: list[Any] = []
    desk.commits.commit_async(point(1), lambda points, error: told.append((offsets(points), error)))
    assert desk.entered.wait(60)
    desk.commits.commit_async(point(2, 1), lambda points, error: told.append((offsets(points), error)))
    desk.commits.commit_async(point(3), None)
    assert not desk.commits.call_back(), "nothing is done yet"
    assert told == []
    opener = threading.Timer(0, desk.gate.set)
    opener.start()
    desk.commits.commit(point(9))
    opener.join()
    assert desk.log == [("g", {0: 1}), ("g", {0: 3, 1: 1}), ("g", {0: 9})], "those that waited went in one"
    assert told == [({0: 1}, None), ({0: 2, 1: 1}, None)]
    assert desk.states[A].committed == (9, -1)
    assert desk.states[B].committed == (1, -1)


def test_of_several_that_fail_together_each_gets_its_own_answer(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.gate.clear()
    told: list[Any] = []

    def tell(points: Points, error: Exception | None) -> None:
        told.append((offsets(points), None if error is None else str(error)))

    desk.commits.commit_async(point(1), tell)
    assert desk.entered.wait(60)
    desk.errors = [None, StorageError("all"), StorageError("the first"), None, ValueError("a bug")]
    for number in (2, 3):
        desk.commits.commit_async(point(number), tell)
    desk.commits.commit_async(point(4), None)
    desk.gate.set()
    desk.commits.flush()
    assert told == [({0: 1}, None), ({0: 2}, "the first"), ({0: 3}, None)]
    assert desk.log == [("g", {0: 1}), ("g", {0: 3})]
    assert "a bug" in caplog.text
    assert desk.states[A].committed == (3, -1)


def test_members_commit_under_the_generation_of_the_call(desk: Desk) -> None:
    member: Any = desk
    desk.gate.clear()
    desk.commits.member, desk.commits.epoch = member, 4
    desk.commits.commit_async(point(1), None)
    assert desk.entered.wait(60)
    desk.commits.commit_async(point(2), None)
    desk.commits.epoch = 5
    desk.commits.commit_async(point(3), None)
    desk.gate.set()
    desk.commits.commit(point(6))
    assert desk.log == [(4, {0: 1}), (4, {0: 2}), (5, {0: 3}), (5, {0: 6})], "two generations are not merged"


def test_closing_finishes_what_is_in_the_background(desk: Desk) -> None:
    told: list[Any] = []
    desk.commits.commit_async(point(7), lambda points, error: told.append((offsets(points), error)))
    desk.commits.close()
    desk.commits.close()
    assert desk.log == [("g", {0: 7})]
    assert told == [({0: 7}, None)]


def test_automatic_commits_are_due_by_time_and_before_a_revocation(desk: Desk) -> None:
    assert not desk.commits.is_due()
    desk.states[A].seek(3)
    desk.commits.before_revocation([A])
    assert desk.log == [], "not automatic"
    other = Desk(interval_s=5.0)
    assert not other.commits.is_due()
    other.clock.advance(5000)
    assert other.commits.is_due()
    assert not other.commits.is_due(), "the next is an interval away"
    other.states[A].seek(3)
    other.states[B].seek(4)
    other.commits.before_revocation([A])
    assert other.log == [("g", {0: 3})], "of what goes alone"
    other.commits.close()


def test_a_transaction_is_told_once_of_what_went_with_records_handed_out(desk: Desk) -> None:
    commits = desk.commits
    desk.states[A].seek(3)
    assert offsets(commits.to_send(FetchState.commit_point)) == {0: 3, 1: 0}
    commits.note_gone([A, B])
    assert offsets(commits.to_send(FetchState.commit_point)) == {0: 3, 1: 0}, "both were sent as they were"
    desk.states[A].seek(8)
    commits.note_gone([A])
    with pytest.raises(StaleGenerationError, match="t-0 went to another member"):
        commits.to_send(FetchState.commit_point)
    assert offsets(commits.to_send(FetchState.commit_point)) == {0: 8, 1: 0}
    desk.states[B].seek(2)
    commits.note_gone([B])
    commits.forget_gone()
    assert offsets(commits.to_send(FetchState.commit_point)) == {0: 8, 1: 2}, "it was aborted"


def test_what_was_committed_or_never_read_is_nothing_that_went(desk: Desk) -> None:
    desk.states[A].seek(3)
    desk.commits.commit(point(3))
    desk.commits.note_gone([A, B])
    assert offsets(desk.commits.to_send(FetchState.commit_point)) == {1: 0}


def test_without_a_group_there_is_nothing_to_commit_to() -> None:
    desk: Any = Desk()
    commits = OffsetCommits(desk, None, desk, ManualClock(), None)
    with pytest.raises(InvalidArgumentError, match="commit_async\\(\\) on a consumer without a group"):
        commits.need_group("commit_async()")
    with pytest.raises(InvalidArgumentError, match="without a group"):
        commits.commit(point(1))
