"""Timed flush, recovery points, idle release and the look at the catalogue: step by step, and by its thread."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from pathlib import Path

import pytest

from logstore.directory import topic_state
from logstore.errors import LogStoreError, StoreClosedError
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.partition.topic import Topic
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind
from logstore.seams.fs import read_file, replace_file
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.upkeep.housekeeper import CHECKPOINT_S, Housekeeper
from logstore.upkeep.retention_task import RetentionTask

ROOT = "/store"


def make(**settings: object) -> tuple[LogStore, ManualClock]:
    clock = ManualClock()
    store = LogStore(ROOT, fs=MemoryFileSystem(), clock=clock, threads=False, **settings)  # type: ignore[arg-type]
    store.create_topic("t", config={"flush.ms": "100"})
    store.create_topic("slow", config={"flush.ms": "60000"})
    return store, clock


def test_nothing_owned_means_nothing_to_do() -> None:
    store, _ = make()
    assert store.step() is None


def test_a_record_is_flushed_after_flush_ms_and_not_before() -> None:
    store, clock = make()
    log = store.partition("t", 0)
    log.append([(None, b"a")], acks=1)
    clock.advance(60)
    log.append([(None, b"b")], acks=1)
    wait = store.step()
    assert wait is not None
    assert abs(wait - 0.04) < 0.001  # the oldest unsynced record counts
    assert log.high_watermark == 0
    clock.advance(40)
    store.step()
    assert log.high_watermark == 2
    assert store.metrics()["logstore_unsynced_records"] == 0


def test_a_log_that_is_synced_after_each_append_does_not_wake_the_thread_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, clock = make()
    log = store.partition("t", 0)
    store.pin("t")  # else an owner looks often whether another process waits for the topic
    store.step()
    woken: list[float] = []
    monkeypatch.setattr(store._housekeeper._thread, "wake", lambda: woken.append(clock.monotonic_s()))
    log.append([(None, b"a")])
    assert len(woken) == 1  # it slept for longer than flush.ms
    for _ in range(3):
        assert store.step() == 0.1  # as soon as the next record could be due
        log.append([(None, b"a")])
        clock.advance(50)
        log.append([(None, b"a")])
        clock.advance(50)
    assert len(woken) == 1
    log.append([(None, b"a")], acks=1)
    store.step()
    assert log.high_watermark == 7
    clock.advance(100)
    assert store.step() == 0.1
    assert log.high_watermark == 8
    clock.advance(100)
    store.step()
    assert store.step() > 0.1  # type: ignore[operator]  # nothing is dirty, and nothing was lately


def test_a_record_that_comes_in_the_middle_of_a_step_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, clock = make()
    log = store.partition("t", 0)
    log.append([(None, b"a")])
    store.step()
    woken: list[int] = []
    monkeypatch.setattr(store._housekeeper._thread, "wake", lambda: woken.append(1))
    look = store._housekeeper._look_after_topics

    def look_while_somebody_appends(now_s: float) -> float | None:
        log.append([(None, b"b")], acks=1)
        return look(now_s)

    monkeypatch.setattr(store._housekeeper, "_look_after_topics", look_while_somebody_appends)
    clock.advance(200)
    store.step()
    assert woken == [1]


def test_each_topic_keeps_its_own_time() -> None:
    store, clock = make()
    store.partition("slow", 0).append([(None, b"a")], acks=1)
    store.partition("t", 0).append([(None, b"b")], acks=1)
    clock.advance(100)
    store.step()
    assert (store.partition("t", 0).high_watermark, store.partition("slow", 0).high_watermark) == (1, 0)


def recovery_point(store: LogStore) -> int:
    state = topic_state.load(store.fs, ROOT, "t")
    assert state is not None
    return state.partitions[0].recovery_point if 0 in state.partitions else -1


def test_recovery_points_become_durable_every_few_seconds() -> None:
    store, clock = make()
    log = store.partition("t", 0)
    log.append([(None, b"a")] * 7)
    store.step()
    assert recovery_point(store) == -1
    clock.advance(int(CHECKPOINT_S * 1000))
    log.append([(None, b"b")])
    store.step()
    assert recovery_point(store) == 8
    calls = store.fs.faults.calls  # type: ignore[attr-defined]
    clock.advance(int(CHECKPOINT_S * 1000) - 1)
    store.step()
    clock.advance(1)
    log.flush()
    store.step()
    assert store.fs.faults.calls - calls < 5  # type: ignore[attr-defined]  # nothing moved, nothing is written


def test_an_idle_topic_is_given_up_and_taken_again() -> None:
    store, clock = make(lock_idle_release_s=10)
    log = store.partition("t", 0)
    log.append([(None, b"a")], acks=1)
    clock.advance(9_000)
    store.step()
    assert store.metrics()["logstore_owned_topics"] == 1
    clock.advance(1_001)
    store.step()
    assert store.metrics()["logstore_owned_topics"] == 0
    state = topic_state.load(store.fs, ROOT, "t")
    assert state is not None
    assert state.clean
    assert log.append([(None, b"b")]).offset == 1
    assert log.leader_epoch == 0
    assert store.recovery_report == ()


def test_a_topic_in_use_or_pinned_is_not_given_up() -> None:
    store, clock = make(lock_idle_release_s=1)
    store.pin("t")
    clock.advance(60_000)
    store.step()
    assert store.metrics()["logstore_owned_topics"] == 1
    store.release("t")
    topic = store._registry.get("t")
    with topic.using():
        clock.advance(60_000)
        store.step()
        assert topic.owned
    clock.advance(1_001)
    store.step()
    assert store.metrics()["logstore_owned_topics"] == 0
    with topic.using():
        assert store.metrics()["logstore_owned_topics"] == 1
    clock.advance(60_000)
    store.step()
    assert store.metrics()["logstore_owned_topics"] == 0, "a release ends the pin"


def test_settings_changed_elsewhere_reach_the_owner() -> None:
    fs, clock, table = MemoryFileSystem(), ManualClock(), LockTable()

    def opened() -> LogStore:
        return LogStore(ROOT, fs=fs, clock=clock, locks=MemoryLocks(table, clock=clock), threads=False)

    owner = opened()
    owner.create_topic("t")
    owner.partition("t", 0).append([(None, b"a")])
    other = opened()
    other.admin.alter_topic("t", {"max.message.bytes": "77"})
    assert owner._registry.get("t").config.max_message_bytes == 1_048_588
    clock.advance(1_000)
    owner.step()
    assert owner._registry.get("t").config.max_message_bytes == 77


def test_a_failing_log_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = make()
    store.create_topic("u", config={"flush.ms": "100"})
    for topic in ("t", "u"):
        store.partition(topic, 0).append([(None, b"a")], acks=1)
    store.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends="t-0/" + f"{0:020d}.log")  # type: ignore[attr-defined]
    clock.advance(100)
    with caplog.at_level(logging.ERROR, "logstore.upkeep.housekeeper"):
        for _ in range(5):
            store.step()
            clock.advance(200)
    assert store.partition("u", 0).high_watermark == 1
    assert store.partition("t", 0).high_watermark == 0
    assert len([r for r in caplog.records if "housekeeping of t-0 failed" in r.getMessage()]) == 1


def test_a_topic_that_another_process_deletes_meanwhile_is_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, clock, table = MemoryFileSystem(), ManualClock(), LockTable()
    store, other = (
        LogStore(ROOT, fs=fs, clock=clock, locks=MemoryLocks(table, clock=clock), threads=False)
        for _ in range(2)
    )
    store.create_topic("a", config={"retention.bytes": "0"})

    def deleted_after_the_look(task: RetentionTask, topic: Topic, *, by_time: bool) -> bool:
        other.delete_topic(topic.name)
        return True

    monkeypatch.setattr(RetentionTask, "would_retire", deleted_after_the_look)
    with caplog.at_level(logging.DEBUG, "logstore.upkeep.housekeeper"):
        store.step()
    told = [record for record in caplog.records if "no topic 'a'" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.DEBUG]


@pytest.mark.parametrize("taken", [False, True])
def test_a_topic_that_is_released_meanwhile_is_not_taken_back(
    monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """Nor waited for, where another process has it by then: other topics have records to flush."""
    fs, clock, table = MemoryFileSystem(), ManualClock(), LockTable()

    def process() -> LogStore:
        locks = MemoryLocks(
            table, clock=clock, sleep=lambda seconds: clock.advance(max(round(seconds * 1000), 1))
        )
        return LogStore(ROOT, fs=fs, clock=clock, locks=locks, threads=False)

    store, other = process(), process()
    store.create_topic("t")
    store.partition("t", 0).append([(None, b"a")])

    def released_after_the_look(task: RetentionTask) -> bool:
        store.release("t")
        if taken:
            other.partition("t", 0).append([(None, b"b")])
        return True

    monkeypatch.setattr(RetentionTask, "look_at_clock", released_after_the_look)
    store.step()
    assert not store._registry.get("t").owned
    assert clock.monotonic_s() == 0
    assert other.partition("t", 0).append([(None, b"c")]).offset == 1 + taken


# --- with its thread --------------------------------------------------------------------------------


def until(what: str, condition: object, patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.002)


def test_the_thread_flushes_and_is_not_late_for_the_most_urgent(tmp_path: Path) -> None:
    """A log that has ten minutes must not make one with 20 ms wait."""
    with LogStore(str(tmp_path / "store")) as store:
        store.create_topic("slow", config={"flush.ms": "600000"})
        store.create_topic("t", config={"flush.ms": "20"})
        slow, log = store.partition("slow", 0), store.partition("t", 0)
        for number in range(12):
            slow.append([(None, b"a")], acks=1)
            log.append([(None, b"b")], acks=1)
            until("the flush", lambda number=number: log.high_watermark == number + 1)
        assert slow.high_watermark == 0


def test_the_thread_gives_up_an_idle_topic_beside_a_waiting_fetch(tmp_path: Path) -> None:
    from logstore.api.records import FetchRequest

    root = str(tmp_path / "store")
    with LogStore(root, lock_idle_release_s=0.05) as store, LogStore(root, lock_timeout_s=60) as other:
        store.create_topic("t")
        store.partition("t", 0).append([(None, b"a")])
        found: list[bytes] = []

        def wait() -> None:
            (result,) = store.backend.fetch(
                [FetchRequest("t", 0, 1, -1, 1000)],
                isolation="read_committed",
                min_bytes=1,
                max_bytes=1000,
                max_wait_s=60,
            )
            found.append(bytes(result.batches))

        waiting = threading.Thread(target=wait)
        waiting.start()
        until("the release", lambda: store.metrics()["logstore_owned_topics"] == 0)
        other.partition("t", 0).append([(None, b"from the other")])
        waiting.join(60)
        assert found
        assert b"from the other" in found[0]


def test_closing_ends_the_thread_at_once(tmp_path: Path) -> None:
    others = set(threading.enumerate())  # of stores that other tests left to the collector
    store = LogStore(str(tmp_path / "store"))
    store.create_topic("t", config={"flush.ms": "600000"})
    store.partition("t", 0).append([(None, b"a")], acks=1)
    assert "logstore-housekeeper" in {thread.name for thread in set(threading.enumerate()) - others}
    started = time.monotonic()
    store.close()
    assert time.monotonic() - started < 60
    assert "logstore-housekeeper" not in {thread.name for thread in set(threading.enumerate()) - others}


def test_an_idle_housekeeper_does_not_wake_up() -> None:
    """Nothing owned and nothing unsynced: no wake-ups at all."""
    clock = ManualClock()
    store, _ = make()
    keeper = Housekeeper(
        clock,
        list,
        list,
        lambda: None,
        lambda: store._parts.retention,
        lambda: store._cleaning.cleaner,
        lambda: store._backend.transactions.reaper,
        lambda: store._backend.groups.expiry,
        lambda: False,
        threads=True,
        idle_release_s=10,
        retention_check_s=30,
    )
    assert keeper.step() is None
    keeper.note_owned()
    steps = 0

    def count() -> float | None:
        nonlocal steps
        steps += 1
        return None

    keeper.step = count  # type: ignore[method-assign]
    keeper.note_owned()
    until("a step", lambda: steps >= 1)
    before = steps
    threading.Event().wait(0.1)
    assert steps <= before + 1
    keeper.close()


def test_a_catalogue_that_cannot_be_read_does_not_stop_the_flush(caplog: pytest.LogCaptureFixture) -> None:
    """It once ended the thread, as soon as any topic had a retention: no record under acks=1 was visible again."""
    store, clock = make(retention_check_s=1)
    store.create_topic("kept", config={"retention.ms": "1000000"})
    log = store.partition("t", 0)
    good = read_file(store.fs, f"{ROOT}/topics.json")
    log.append([(None, b"a")], acks=1)
    replace_file(store.fs, f"{ROOT}/topics.json", b"{garbage")
    clock.advance(5000)
    with caplog.at_level(logging.ERROR):
        wait = store.step()
    assert log.high_watermark == 1
    assert "topics.json is damaged" in caplog.text
    assert wait is not None, "it is looked at again"
    replace_file(store.fs, f"{ROOT}/topics.json", good)
    clock.advance(5000)
    store.step()
    assert store.describe_topic("kept").config == {"retention.ms": "1000000"}


def test_a_topic_deleted_elsewhere_is_none_to_retain() -> None:
    fs, table, clock = MemoryFileSystem(), LockTable(), ManualClock()
    mine, theirs = (
        LogStore(ROOT, fs=fs, clock=clock, threads=False, locks=MemoryLocks(table, clock=clock)) for _ in "12"
    )
    for name in ("a", "b"):
        mine.create_topic(name, config={"retention.ms": "1000", "cleanup.policy": "compact,delete"})
    theirs.delete_topic("a")
    assert [topic.name for topic in mine._registry.retained()] == ["b"]
    assert [topic.name for topic in mine._registry.compacted()] == ["b"]


def test_between_two_passes_only_the_cleaner_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices are hundreds a second; who becomes dirty or takes a topic asks for a whole pass all the same."""
    store, clock = make()
    keeper = store._housekeeper
    done: list[str] = []

    class Slices:
        flush_in_s: float | None = None

        def step(self, flush_in_s: float | None) -> float:
            done.append("slice")
            self.flush_in_s = flush_in_s
            return 0.001

    def look(_: float) -> float:
        done.append("pass")
        return 5.0

    slices = Slices()
    monkeypatch.setattr(keeper, "_cleaner", lambda: slices)
    monkeypatch.setattr(keeper, "_look_after_topics", look)
    log = store.partition("slow", 0)
    log.append([(None, b"a")])
    assert keeper.wake_up() == 0.001
    assert done == ["pass", "slice"]
    for _ in range(3):
        clock.advance(1)
        assert keeper.wake_up() == 0.001
    assert done == ["pass", *["slice"] * 4]
    assert slices.flush_in_s == pytest.approx(0.997), "a pass is due a second after a cleaning's slice"
    clock.advance(5000)
    keeper.wake_up()
    assert done[-2:] == ["pass", "slice"], "its time has come"
    keeper.note_owned()
    keeper.wake_up()
    assert done[-2:] == ["pass", "slice"]
    store.partition("t", 0).append([(None, b"a")], acks=1)  # due in 100 ms: before the next pass
    keeper.wake_up()
    assert done[-2:] == ["pass", "slice"]
    log.append([(None, b"a")], acks=1)  # due in a minute
    keeper.wake_up()
    assert done[-2:] == ["slice", "slice"]


def test_a_look_for_processes_that_wait_is_no_look_for_what_to_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first comes twenty times a second for as long as a topic is owned that may be given up."""
    store, clock = make()
    keeper = store._housekeeper
    looks = {"cleaner": 0, "locks": 0}

    class Idle:
        def step(self, _: float | None) -> float:
            looks["cleaner"] += 1
            return 0.3

    def any_wanted() -> bool:
        looks["locks"] += 1
        return False

    monkeypatch.setattr(keeper, "_cleaner", Idle)
    monkeypatch.setattr(keeper, "_any_wanted", any_wanted)
    store.partition("slow", 0).append([(None, b"a")])
    keeper.step()
    counted = dict(looks)
    for _ in range(5):
        clock.advance(50)
        assert keeper.wake_up() == pytest.approx(0.05)
    assert looks == {"cleaner": counted["cleaner"], "locks": counted["locks"] + 5}
    clock.advance(50)
    keeper.wake_up()
    assert looks["cleaner"] == counted["cleaner"] + 1, "by its own word it is due"


def test_a_cleaning_does_not_put_off_the_pass_that_removes_what_it_retires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Internal topics are owned by nobody: once nothing else would have come to look after their old files."""
    store, clock = make()
    keeper = store._housekeeper
    waits, passes = [0.001] * 1500 + [15.0], [0]

    class Slices:
        def step(self, _: float | None) -> float:
            return waits.pop(0) if waits else 15.0

    def look(_: float) -> None:
        passes[0] += 1

    monkeypatch.setattr(keeper, "_cleaner", Slices)
    monkeypatch.setattr(keeper, "_look_after_topics", look)
    for name in ("_retain", "_flush_due"):
        monkeypatch.setattr(keeper, name, lambda _: None)
    for name in ("_end_transactions", "_expire_offsets"):
        monkeypatch.setattr(keeper, name, lambda: None)
    while waits:
        wait = keeper.wake_up()
        assert wait is not None
        clock.advance(max(round(wait * 1000), 1))
    assert passes[0] == 2, "at first, and after a second of slices"
    for _ in range(3):
        clock.advance(1000)
        keeper.wake_up()
    assert passes[0] == 3, "after the last slice; nothing is due since"


def test_a_store_that_closes_amid_a_pass_says_nothing(tmp_path: Path) -> None:
    """A traceback of the thread once came out of every hundredth command."""
    store = LogStore(tmp_path / "s", retention_check_s=1e-3)
    store.create_topic("t", config={"retention.ms": "1000000"})
    store._context.closed = True  # as close() does, before it waits for the thread
    with pytest.raises(StoreClosedError):
        store._registry.retained()
    assert store._housekeeper.step() is not None
    store._context.closed = False
    store.close()


def test_a_directory_that_is_removed_ends_it_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = LogStore(str(tmp_path / "store"), clock=clock, threads=False)
    store.create_topic("t")
    store.partition("t", 0).append([(None, b"a")], acks=1)
    store.step()
    shutil.rmtree(tmp_path / "store")
    for _ in range(20):
        clock.advance(1_001)
        store.step()
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith("housekeeping ends: there is no log store at")
    caplog.clear()
    with contextlib.suppress(LogStoreError):
        store.close()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
