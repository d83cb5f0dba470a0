"""Group commit: alone at once, together once; an error reaches exactly those who wait for that log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import LogStoreError, OutcomeUnknownError
from logstore.partition.committer import Committer
from logstore.seams.clock import ManualClock, SystemClock
from logstore.store import LogStore
from tests.open_files import open_below

DEADLINE_S = 60.0


class FakeLog:
    """Syncs everything up to ``end``; ``gate`` holds a sync up, ``failure`` fails it."""

    def __init__(self) -> None:
        self.flushed_offset = 0
        self.end = 0
        self.syncs: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.failure: BaseException | None = None

    def sync(self) -> None:
        target = self.end
        self.syncs.append(threading.current_thread().name)
        self.entered.release()
        assert self.gate.wait(DEADLINE_S)
        if self.failure is not None:
            raise self.failure
        self.flushed_offset = max(self.flushed_offset, target)


def wants(*pairs: tuple[FakeLog, int]) -> Any:
    return list(pairs)


def in_threads(calls: list[Callable[[], object]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def queued(committer: Committer, count: int) -> None:
    """Wait until that many tickets are in the queue. The committer's thread is held up: else it takes them."""
    until(lambda: len(committer._queue) >= count)


def inside(committer: Committer, count: int) -> None:
    """Wait until that many threads have begun to commit. They are held up: else they come back."""
    until(lambda: committer._inside >= count)


def test_alone_it_syncs_in_the_callers_thread() -> None:
    committer, log = Committer(SystemClock(), threads=True), FakeLog()
    log.end = 3
    committer.commit(wants((log, 3)))
    assert log.syncs == [threading.current_thread().name]
    committer.commit(wants((log, 3)))
    assert len(log.syncs) == 1  # it was durable already
    committer.close()


def test_without_threads_always() -> None:
    committer, first, second = Committer(ManualClock(), threads=False), FakeLog(), FakeLog()
    first.end = second.end = 1
    committer.commit(wants((first, 1), (second, 1)))
    assert (len(first.syncs), len(second.syncs)) == (1, 1)
    committer.close()


def test_many_share_one_sync() -> None:
    committer, log = Committer(SystemClock(), threads=True), FakeLog()
    log.gate.clear()
    log.end = 1
    (alone,) = in_threads([lambda: committer.commit(wants((log, 1)))])
    assert log.entered.acquire(timeout=DEADLINE_S)
    done: list[int] = []
    log.end = 9

    def commit(offset: int) -> None:
        committer.commit(wants((log, offset)))
        assert log.flushed_offset >= offset
        done.append(offset)

    others = in_threads([partial(commit, offset) for offset in range(2, 10)])
    inside(committer, 9)
    log.gate.set()
    for thread in (alone, *others):
        thread.join(DEADLINE_S)
    assert sorted(done) == list(range(2, 10))
    assert len(log.syncs) <= 3
    assert committer.groups >= 1
    committer.close()


def test_a_failure_reaches_exactly_those_who_wait_for_that_log() -> None:
    committer, good, bad, blocker = Committer(SystemClock(), threads=True), FakeLog(), FakeLog(), FakeLog()
    good.end = bad.end = blocker.end = 1
    blocker.gate.clear()
    bad.failure = OutcomeUnknownError("the disk said no")
    results: dict[str, LogStoreError | None] = {}

    def commit(name: str, *pairs: tuple[FakeLog, int]) -> None:
        try:
            committer.commit(wants(*pairs))
            results[name] = None
        except LogStoreError as error:
            results[name] = error

    (first,) = in_threads([lambda: commit("blocker", (blocker, 1))])
    assert blocker.entered.acquire(timeout=DEADLINE_S)
    held = in_threads([lambda: commit("held", (blocker, 1))])  # keeps the committer's thread busy
    assert blocker.entered.acquire(timeout=DEADLINE_S)
    others = in_threads(
        [
            lambda: commit("good", (good, 1)),
            lambda: commit("bad", (bad, 1)),
            lambda: commit("bad too", (bad, 1)),
            lambda: commit("both", (good, 1), (bad, 1)),
            lambda: commit("good too", (good, 1)),
        ]
    )
    queued(committer, 5)
    blocker.gate.set()
    for thread in (first, *held, *others):
        thread.join(DEADLINE_S)
    assert {name for name, error in results.items() if error is not None} == {"bad", "bad too", "both"}
    assert len(bad.syncs) == len(good.syncs) == 1
    committer.close()


def test_closing_finishes_what_is_queued_and_later_commits_still_sync() -> None:
    committer, log = Committer(SystemClock(), threads=True), FakeLog()
    log.gate.clear()
    log.end = 1
    threads = in_threads([lambda: committer.commit(wants((log, 1))) for _ in range(4)])
    assert log.entered.acquire(timeout=DEADLINE_S)
    closing = in_threads([committer.close])
    log.gate.set()
    for thread in (*threads, *closing):
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    log.end = 2
    committer.commit(wants((log, 2)))
    assert log.flushed_offset == 2


def test_a_fault_of_the_program_leaves_nobody_waiting() -> None:
    committer, log, blocker = Committer(SystemClock(), threads=True), FakeLog(), FakeLog()
    blocker.gate.clear()
    blocker.end = log.end = 1
    log.failure = ZeroDivisionError("a bug")
    errors: list[BaseException] = []

    def commit(wanted: FakeLog) -> None:
        try:
            committer.commit(wants((wanted, 1)))
        except LogStoreError as error:
            errors.append(error)

    log.gate.clear()
    first = in_threads([lambda: commit(blocker)])
    assert blocker.entered.acquire(timeout=DEADLINE_S)
    rest = in_threads([lambda: commit(log), lambda: commit(log)])
    inside(
        committer, 3
    )  # before the first leaves: one that came later would sync by itself, and see the fault bare
    blocker.gate.set()
    log.gate.set()
    for thread in (*first, *rest):
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert len(errors) == 2
    assert all("ZeroDivisionError" in str(error) for error in errors)
    log.failure = None
    committer.commit(wants((log, 1)))
    assert log.flushed_offset == 1, "the next group is served as if nothing had been"
    committer.close()


def test_sixteen_threads_on_a_real_disk_share_syncs_and_lose_nothing(tmp_path: Path) -> None:
    root, before = str(tmp_path / "store"), set(threading.enumerate())
    with LogStore(root) as store:
        store.create_topic("t", config={"segment.bytes": "200000"})
        log = store.partition("t", 0)
        placed: list[tuple[int, bytes]] = []

        def work(thread: int) -> None:
            for number in range(40):
                value = b"%d %d" % (thread, number)
                offset = log.append([(None, value)], acks="all").offset
                assert log.high_watermark > offset
                placed.append((offset, value))

        with (
            store._context.committer._mutex
        ):  # nobody commits until all have written: one sync is enough for the first
            threads = in_threads([partial(work, number) for number in range(16)])
            until(lambda: log.log_end_offset >= 16)
        for thread in threads:
            thread.join(2 * DEADLINE_S)
        metrics = store.metrics()
        assert sorted(offset for offset, _ in placed) == list(range(640))
        assert metrics["logstore_syncs_total"] <= 640 - 15
        assert metrics["logstore_unsynced_records"] == 0
    with LogStore(root, "r") as store:
        assert [r.value for r in store.partition("t", 0).records(0)] == [v for _, v in sorted(placed)]
    assert set(threading.enumerate()) <= before
    assert open_below(tmp_path) == []


def test_one_log_alone_is_synced_in_the_callers_thread() -> None:
    for threads in (True, False):
        committer, log = Committer(SystemClock(), threads=threads), FakeLog()
        log.end = 3
        for _ in range(2):  # the second time it is durable already
            committer.commit_one(log, 3)  # type: ignore[arg-type]
        assert log.syncs == [threading.current_thread().name]
        assert committer._inside == 0
        committer.close()


def test_one_log_whose_sync_fails_leaves_nobody_inside() -> None:
    committer, log = Committer(SystemClock(), threads=True), FakeLog()
    log.end, log.failure = 1, OutcomeUnknownError("the disk is gone")
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError, match="the disk is gone"):
            committer.commit_one(log, 1)  # type: ignore[arg-type]
    assert committer._inside == 0
    assert log.syncs == 2 * [threading.current_thread().name]
    committer.close()


def test_one_log_joins_those_that_wait() -> None:
    """While another thread syncs, and for a moment after a group: the committer's thread syncs once for all."""
    clock = ManualClock()
    committer, log = Committer(clock, threads=True), FakeLog()
    log.end = 1
    log.gate.clear()
    threads = in_threads([lambda: committer.commit_one(log, 1)])  # type: ignore[arg-type]
    assert log.entered.acquire(timeout=DEADLINE_S)
    log.end = 3
    threads += in_threads([partial(committer.commit_one, log, 3) for _ in range(3)])  # type: ignore[arg-type]
    inside(
        committer, 4
    )  # not queued(): the committer's thread takes what is queued, all three at once or in turn
    log.gate.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert log.flushed_offset == 3
    assert committer._inside == 0
    assert set(log.syncs[1:]) == {"logstore-committer"}
    committer._crowded_until_s = clock.monotonic_s() + 1
    log.end = 4
    committer.commit_one(log, 4)  # type: ignore[arg-type]
    assert log.syncs[-1] == "logstore-committer"
    clock.advance(2000)
    log.end = 5
    committer.commit_one(log, 5)  # type: ignore[arg-type]
    assert log.syncs[-1] == threading.current_thread().name
    committer.close()
