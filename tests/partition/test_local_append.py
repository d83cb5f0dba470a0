"""Both twins of an append's door and outcome: the topic's users, the look at the locks, what an append waits for."""

from __future__ import annotations

import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from logstore.config import TopicConfig
from logstore.errors import InvalidRecordError, LockLostError, OutcomeUnknownError, StoreClosedError
from logstore.format.batch import encode_batch
from logstore.log.append_validation import own_batch
from logstore.log.log_offsets import Appended
from logstore.ownership import lock_check
from logstore.partition import local_append, topic_users
from logstore.seams.clock import ManualClock
from tests.native.twins import python_twin

USERS = [topic_users, python_twin("logstore.partition.topic_users")]
CHECKS = [lock_check, python_twin("logstore.ownership.lock_check")]
APPENDS = [local_append, python_twin("logstore.partition.local_append")]


class Context:
    """As much of a store as an append asks."""

    forked = closed = read_only = False
    lock_timeout_s = 3.0

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.locks = SimpleNamespace(check=lambda: None)
        self.asked: list[Any] = []
        self.fails: Exception | None = None
        self.committer = SimpleNamespace(commit_later=lambda wants, tell: self.asked.append((wants, tell)))

    def check_writable(self) -> None:
        if self.closed:
            raise StoreClosedError("closed")
        self.locks.check()

    def commit(self, wants: list[Any]) -> None:
        self.asked += wants
        if self.fails is not None:
            raise self.fails


def users_of(module: ModuleType, context: Context) -> Any:
    class Topic(module.TopicUsers):  # type: ignore[misc,name-defined]  # of either twin
        def __init__(self) -> None:
            lock = threading.Lock()
            super().__init__(context, lock, threading.Condition(lock))
            self.waits: list[float] = []

        def _own(self, timeout_s: float) -> None:
            self.waits.append(timeout_s)
            self.owned = True

    return Topic()


@pytest.mark.parametrize("module", USERS)
def test_users_of_a_topic(module: ModuleType) -> None:
    context = Context()
    topic = users_of(module, context)
    assert not topic.try_enter()
    topic.enter()
    topic.enter(2.0)
    assert (topic.waits, topic._users) == ([3.0], 2)
    topic._draining = True
    topic.enter()  # who is inside comes in
    assert not topic.try_enter()
    assert topic._users == 3
    context.clock.advance(1000)
    topic.leave(False)
    assert topic.last_used_s == 0.0
    later = topic.leave_later()
    topic.leave()
    assert (topic._users, topic.last_used_s) == (1, 1.0)
    later()
    assert topic._users == 0
    topic._draining = False
    assert topic.try_enter()
    topic.leave()
    context.closed = True
    with pytest.raises(StoreClosedError):
        topic.enter()
    assert topic._users == 0


@pytest.mark.parametrize("module", CHECKS)
def test_locks_are_looked_at_once_a_millisecond(module: ModuleType) -> None:
    clock = ManualClock()
    looks: list[float] = []

    class Locks(module.LockCheck):  # type: ignore[misc,name-defined]  # of either twin
        def _look(self) -> None:
            looks.append(clock.monotonic_s())
            if self._lost:
                raise LockLostError("lost")

    locks = Locks(clock)
    for _ in range(3):
        locks.check()
    assert len(looks) == 1
    locks.check(now=True)
    assert len(looks) == 2
    clock.advance(2)
    locks.check()
    assert len(looks) == 3
    locks._lost = True
    for _ in range(2):
        with pytest.raises(LockLostError):
            locks.check()


@pytest.mark.parametrize("module", APPENDS)
def test_the_outcome_of_an_append(module: ModuleType) -> None:
    context = Context()
    left: list[int] = []
    topic = SimpleNamespace(leave=lambda: left.append(1), leave_later=lambda: lambda: left.append(2))
    log = SimpleNamespace(flushed_offset=0)

    def append(must_sync: bool, promised: bool, end: int = 5) -> Any:
        return module.LocalAppend(context, topic, log, Appended(end - 2, end), -1, must_sync, promised)

    one = append(False, False)
    one.wait_with((one,))
    assert (one.done, one.error, one.base_offset, one.next_offset, left) == (True, None, 3, 5, [1])
    one, two, three = append(True, True), append(True, False), append(False, False)
    one.wait_with([one, two, three])
    assert context.asked == [(log, 5), (log, 5)]
    assert (one.done, two.done, three.done, len(left)) == (True, True, True, 4)
    context.fails = OutcomeUnknownError("no")
    one, two, three = append(True, True), append(True, False), append(True, True, end=0)
    one.wait_with([one, two, three])
    assert [each.error for each in (one, two, three)] == [context.fails, None, None]
    told: list[Any] = []
    append(False, False).then(told.append)
    assert told == [None]
    del context.asked[:]
    append(True, True).then(told.append)
    ((_, decided),) = context.asked
    assert len(told) == 1
    decided(context.fails)
    assert (told[1], left[-1]) == (context.fails, 2)


@pytest.mark.parametrize("module", APPENDS)
def test_batches_that_are_appended_each_for_itself(module: ModuleType) -> None:
    """They are written together where the log takes them, and each waits for its own end of the log alone."""
    context = Context()
    context.pool = SimpleNamespace(crowded=False)
    config = TopicConfig(flush_messages=5)
    good = [own_batch(encode_batch([(None, b"x"), (None, b"y")], now_ms=0)) for _ in range(6)]
    users: list[int] = []
    calls: list[str] = []

    class Log:
        unsynced_records = log_end_offset = 0
        most = 2

        def append_run(self, batches: list[Any]) -> list[Appended]:
            calls.append(f"run of {len(batches)}")
            return [self.put() for _ in batches[: self.most]]

        def append(self, batches: list[Any], expected: int | None) -> Appended:
            calls.append("one")
            return self.put()

        def put(self) -> Appended:
            self.unsynced_records += 2
            self.log_end_offset += 2
            return Appended(self.log_end_offset - 2, self.log_end_offset)

    log = Log()
    topic = SimpleNamespace(
        config=config,
        enter=lambda until_s: users.append(1),
        leave=lambda: users.append(-1),
        stay=users.append,
        log_to_append=lambda partition: log,
    )
    appends = module.LocalAppends(context, topic, 0, "t-0")
    made: list[Any] = []
    appends.append_each(good[:4], 1, None, made)
    assert calls == ["run of 4", "run of 2"]
    assert [(one.base_offset, one.next_offset) for one in made] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert sum(users) == 4
    made[0].wait_with(made)
    assert (context.asked, sum(users)) == ([(log, 6), (log, 8)], 0)  # the others are not worth a sync yet
    log.most = 0
    del calls[:], made[:]
    appends.append_each(good[:3], "all", None, made)
    assert calls == ["run of 3", "one", "one", "one"]
    made[0].wait_with(made)
    assert sum(users) == 0
    log.most = 6
    del calls[:], made[:]
    wrong = good[1]._replace(header=good[1].header._replace(records_count=0))
    with pytest.raises(InvalidRecordError):
        appends.append_each([good[0], wrong, good[2]], 1, None, made)
    assert (calls, len(made), sum(users)) == (["one"], 1, 1)
