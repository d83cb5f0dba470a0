"""The cleaner in a whole store: when it begins, how much it takes, what ends it, what others see of it."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from logstore.directory import topic_state
from logstore.errors import CorruptBatchError, InvalidArgumentError
from logstore.log.cleaning.cleaner_mark import raise_mark
from logstore.ownership.live import MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.upkeep.cleaner import CHECK_S, SLICE_S
from logstore.upkeep.cleaning_ledger import SHORTEST_HORIZON_MS
from tests.engines import Diary

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "2000"}


class Desk:
    """A disk and a clock; stores on it whose cleanings write a diary."""

    def __init__(self) -> None:
        self.fs, self.clock = MemoryFileSystem(), ManualClock()
        self.live, self.table = MemoryLive(), LockTable()
        self.diary = Diary(self.clock)

    def open(self, mode: str = "rw", **settings: Any) -> LogStore:
        known: dict[str, Any] = {"threads": False, "lock_idle_release_s": 1e9}
        store = LogStore(
            "/s",
            mode,  # type: ignore[arg-type]
            fs=self.fs,
            clock=self.clock,
            live=self.live,
            locks=MemoryLocks(self.table, clock=self.clock),
            **(known | settings),
        )
        store._cleaning.kit.make = self.diary
        return store

    def filled(self, config: dict[str, str] | None = None, *, topic: str = "t", **settings: Any) -> LogStore:
        store = self.open(**settings)
        self.fill(store, topic, config)
        return store

    def fill(self, store: LogStore, topic: str, config: dict[str, str] | None = None, rows: int = 60) -> None:
        store.create_topic(topic, 1, COMPACT | (config or {}))
        for number in range(rows):
            store.partition(topic, 0).append([(b"k%d" % (number % 7), b"x" * 97)])

    def run(self, store: LogStore, ms: int) -> None:
        """Let so much time pass, with a step whenever the store asks for one."""
        end_s = self.clock.monotonic_s() + ms / 1000
        while True:
            wait = store.step()
            left_s = end_s - self.clock.monotonic_s()
            if left_s <= 0:
                return
            pause_s = left_s if wait is None else min(wait, left_s)
            self.clock.advance(max(round(pause_s * 1000), 1) if pause_s else 0)

    def point(self) -> int:
        state = topic_state.load(self.fs, "/s", "t")
        return 0 if state is None or 0 not in state.partitions else state.partitions[0].cleaner_point


def compaction(store: LogStore, topic: str = "t") -> Any:
    return store.describe_topic(topic).partitions[0].compaction


def test_a_dirty_log_is_cleaned_up_to_its_active_segment_and_the_point_survives() -> None:
    desk = Desk()
    with desk.filled({"delete.retention.ms": "7", "file.delete.delay.ms": "9000"}) as store:
        active = store._registry.get("t").log(0).segments.segments[-1].base_offset
        before = compaction(store)
        assert (before.cleaner_point, before.dirty_ratio, before.last) == (0, 1.0, None)
        desk.run(store, 100)
        ((where, request),) = desk.diary.made
        assert where == "t-0"
        assert (request.start_offset, request.end_offset) == (0, active)
        assert (request.delete_retention_ms, request.file_delete_delay_s, request.erase) == (7, 9.0, None)
        assert (request.key_map_bytes, request.active_producers) == (64 << 20, {})
        after = compaction(store)
        assert (after.cleaner_point, after.dirty_bytes, after.dirty_ratio) == (active, 0, 0.0)
        assert (after.last.records_before, after.last.records_after, after.last.cleaned_to) == (10, 4, active)
        assert after.running is None
        assert desk.point() == active
        metrics = store.metrics()
        assert (metrics["logstore_cleanings_total"], metrics["logstore_cleaner_read_bytes_total"]) == (
            1,
            1000,
        )
    with desk.open() as again:
        again.partition("t", 0).append([(b"k", b"v")])
        assert again._registry.get("t").log(0).cleaner_point == active
        desk.run(again, 30_000)
        assert len(desk.diary.made) == 1, "clean is clean, after a restart too"


def test_slices_are_short_and_leave_nine_tenths_of_the_time() -> None:
    desk = Desk()
    desk.diary.steps = 20
    with desk.filled() as store:
        desk.run(store, 1000)
        times = [at for at, _ in desk.diary.slices]
        assert len(times) == 20
        assert {later - earlier for earlier, later in pairwise(times)} <= {10, 11}
        assert {budget for _, budget in desk.diary.slices} == {SLICE_S}


@pytest.mark.parametrize(("duty", "between_ms"), [(0.5, 2), (1.0, 1)])
def test_the_duty_is_the_stores_to_choose(duty: float, between_ms: int) -> None:
    desk = Desk()
    with desk.filled(cleaner_duty=duty) as store:
        desk.run(store, 100)
        times = [at for at, _ in desk.diary.slices]
        assert {later - earlier for earlier, later in pairwise(times)} <= {
            between_ms,
            between_ms + 1,
        }


@pytest.mark.parametrize(
    "setting", [{"cleaner_duty": 0}, {"cleaner_duty": 1.1}, {"cleaner_key_map_bytes": 5}]
)
def test_settings_are_checked(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(setting))):
        Desk().open(**setting)


def test_flushes_are_on_time_beside_a_cleaning() -> None:
    desk = Desk()
    desk.diary.steps = 500
    with desk.filled({"flush.ms": "20"}) as store:
        log = store.partition("t", 0)
        desk.run(store, 50)
        assert compaction(store).running is not None
        for _ in range(20):
            log.append([(b"k", b"v")], acks=1)
            end = log.log_end_offset
            desk.run(store, 20)
            assert log.high_watermark == end
        desk.clock.advance(100)
        store._cleaning.cleaner.step(SLICE_S / 4)
        assert desk.diary.slices[-1][1] == SLICE_S / 4, "a slice ends where a flush is due"


def test_the_dirtiest_topic_is_first_and_all_have_their_turn() -> None:
    desk = Desk()
    with desk.open() as store:
        for name in ("a", "b", "c"):
            desk.fill(store, name)
        store._registry.get("a").log(0).cleaner_point = 20
        store._registry.get("c").log(0).cleaner_point = 10
        desk.run(store, 500)
        assert [where for where, _ in desk.diary.made] == ["b-0", "c-0", "a-0"]


def test_nothing_dirty_costs_no_file_access() -> None:
    desk = Desk()
    with desk.filled() as store:
        desk.run(store, 40_000)
        calls = desk.fs.faults.calls
        cleaner = store._cleaning.cleaner
        for _ in range(10):
            desk.clock.advance(round(CHECK_S * 1000))
            wait = cleaner.step(None)
            assert wait is not None
            assert wait == CHECK_S
        assert desk.fs.faults.calls == calls
        assert len(desk.diary.made) == 1


def test_a_failing_partition_is_left_alone_longer_and_longer(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    with desk.open() as store:
        desk.fill(store, "t")
        desk.fill(store, "u")
        store.pin_all()
        desk.diary.error = CorruptBatchError("bad", path="/s/t-0/x.log", position=7)
        with caplog.at_level(logging.ERROR, "logstore.upkeep.cleaner"):
            desk.run(store, 1000)
            assert [where for where, _ in desk.diary.made] == ["t-0", "u-0"], "one does not stop the other"
            assert desk.diary.cancelled == 2
            seen = compaction(store)
            assert seen.error.startswith("CorruptBatchError: bad")
            assert 58 < seen.retry_in_s <= 60
            assert store.metrics()["logstore_quarantined_partitions"] == 2
            times = []
            for _ in range(9):
                count = len(desk.diary.made)
                while len(desk.diary.made) == count:
                    desk.run(store, 15_000)
                times.append(round(desk.clock.monotonic_s() / 60))
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert [gap for gap in gaps if gap] == sorted(gap for gap in gaps if gap)
        assert max(gaps) <= 61
        assert "cleaning of t-0 failed (1 in a row), tried again in 60 s" in caplog.text
        desk.diary.error = None
        desk.run(store, 3_700_000)
        assert compaction(store).error is None
        assert store.metrics()["logstore_quarantined_partitions"] == 0


def test_a_bug_in_a_cleaning_does_not_take_the_housekeeper_with_it() -> None:
    desk = Desk()
    desk.diary.error = ZeroDivisionError("oops")
    with desk.filled() as store:
        desk.run(store, 100)
        assert "InvariantError" in compaction(store).error
        store.partition("t", 0).append([(b"k", b"v")], acks=1)
        desk.run(store, 200)
        assert store.partition("t", 0).high_watermark == 61


def test_a_key_map_that_gets_nowhere_is_an_error_not_a_loop() -> None:
    desk = Desk()
    desk.diary.fields = {"cleaned_to": 0}
    with desk.filled() as store:
        desk.run(store, 10_000)
        assert len(desk.diary.made) == 1
        assert "cleaner_key_map_bytes" in compaction(store).error


def test_a_full_key_map_goes_on_where_it_ended() -> None:
    desk = Desk()
    desk.diary.fields = {"cleaned_to": 13}
    with desk.filled() as store:
        store._registry.get("t").log(0)
        desk.run(store, 35)
        desk.diary.fields = {}
        desk.run(store, 100)
        assert [request.start_offset for _, request in desk.diary.made] == [0, 13]


@pytest.mark.parametrize("how", ["release", "close", "delete", "alter"])
def test_whoever_takes_the_topic_away_ends_the_cleaning_first(how: str) -> None:
    desk = Desk()
    desk.diary.steps = 10**6
    store = desk.filled()
    desk.run(store, 50)
    assert compaction(store).running is not None
    assert store.metrics()["logstore_cleaning_running"] == 1
    if how == "release":
        store.release("t")
        assert store.metrics()["logstore_owned_topics"] == 0
    elif how == "close":
        store.close()
    elif how == "delete":
        store.delete_topic("t")
        assert store.list_topics() == []
    else:
        store.admin.alter_topic("t", {"cleanup.policy": "delete"})
        desk.run(store, 20)
        assert store.describe_topic("t").partitions[0].compaction is None
    assert desk.diary.cancelled == 1
    if how != "close":
        desk.diary.steps = 3
        desk.run(store, 30_000)
        assert store.metrics()["logstore_cleanings_cancelled_total"] == 1
        assert len(desk.diary.made) == (2 if how == "release" else 1), (
            "begun anew where there is something to do"
        )
        store.close()


def test_a_cleaning_keeps_an_idle_topic_until_it_is_done_and_no_longer() -> None:
    desk = Desk()
    desk.diary.steps = 500
    with desk.filled(lock_idle_release_s=1) as store:
        desk.run(store, 3_000)
        assert store.metrics()["logstore_owned_topics"] == 1
        desk.run(store, 3_500)
        assert store.metrics()["logstore_cleanings_total"] == 1
        assert store.metrics()["logstore_owned_topics"] == 0


@pytest.mark.parametrize(("work_ms", "ended_early"), [(500, 3), (3_000, 5)])
def test_a_topic_that_is_passed_on_all_the_time_is_kept_for_a_cleaning_that_starves(
    work_ms: int, ended_early: int
) -> None:
    desk = Desk()
    desk.diary.steps, desk.diary.work_ms = work_ms // 20, 20
    with desk.filled() as store, desk.open() as other:
        entry = store._registry.get("t").entry
        longest_wait_s = 0.0
        for _ in range(ended_early + 1):
            while compaction(store).running is None:
                store.partition("t", 0).append([(b"k", b"v")])  # it owns the topic
                desk.run(store, 1_000)
                assert store.metrics()["logstore_cleanings_total"] == 0
            desk.table.turns[entry.lock_slot] = other._context.locks  # type: ignore[assignment]
            since_s = desk.clock.monotonic_s()
            while store.metrics()["logstore_owned_topics"]:
                desk.run(store, 10)
            longest_wait_s = max(longest_wait_s, desk.clock.monotonic_s() - since_s)
            del desk.table.turns[entry.lock_slot]
        assert store.metrics()["logstore_cleanings_total"] == 1
        assert store.metrics()["logstore_cleanings_cancelled_total"] == desk.diary.cancelled == ended_early
        assert longest_wait_s < work_ms / 1000 + 0.2, "no longer than the cleaning takes, without pauses"
        assert store._cleaning.kit.ledger.hold_s((entry.topic_id, 0)) == 0, "the next one has no need"


def test_a_topic_is_kept_for_a_cleaning_for_seconds_at_the_most() -> None:
    desk = Desk()
    desk.diary.steps, desk.diary.work_ms = 10**6, 20
    with desk.filled() as store, desk.open() as other:
        entry = store._registry.get("t").entry
        waits_s = []
        for _ in range(9):
            while compaction(store).running is None:
                store.partition("t", 0).append([(b"k", b"v")])
                desk.run(store, 1_000)
            desk.table.turns[entry.lock_slot] = other._context.locks  # type: ignore[assignment]
            since_s = desk.clock.monotonic_s()
            while store.metrics()["logstore_owned_topics"]:
                desk.run(store, 10)
            waits_s.append(round(desk.clock.monotonic_s() - since_s))
            del desk.table.turns[entry.lock_slot]
        assert waits_s == [0, 0, 0, 1, 2, 4, 8, 8, 8]


def test_a_topic_that_nobody_owns_is_cleaned_by_whoever_is_there() -> None:
    desk = Desk()
    desk.filled(maintenance_s=0).close()
    with desk.open(lock_idle_release_s=5) as other:
        assert other.metrics()["logstore_owned_topics"] == 0
        desk.run(other, 10_000)
        assert desk.diary.made == [], "a store that was opened for a moment does not begin with it"
        desk.run(other, 6_000)
        assert [where for where, _ in desk.diary.made] == ["t-0"]
        assert desk.point() > 0
        assert desk.diary.slices[1][0] - desk.diary.slices[0][0] <= 3, "it is to be over soon"
        assert other.metrics()["logstore_owned_topics"] == 0, "it is given back at once"
        desk.run(other, 3_000_000)
        assert len(desk.diary.made) == 1, "what a restart forgot is looked for at home only"


def test_a_topic_that_another_owns_is_left_to_its_owner() -> None:
    desk = Desk()
    with desk.filled(), desk.open() as other:
        other._cleaning.kit.make = lambda *_: pytest.fail("it is not ours")
        desk.run(other, 60_000)


def test_an_idle_active_segment_is_rolled_and_cleaned() -> None:
    desk = Desk()
    with desk.open() as store:
        desk.fill(store, "t", {"segment.ms": "60000"}, rows=3)
        desk.run(store, 50_000)
        assert desk.diary.made == []
        desk.run(store, 40_000)
        assert [request.end_offset for _, request in desk.diary.made] == [3]
        assert len(store._registry.get("t").log(0).segments) == 2
        desk.run(store, 300_000)
        assert len(store._registry.get("t").log(0).segments) == 2, "an empty one is not rolled"


def test_a_horizon_is_waited_for_by_the_clock() -> None:
    desk = Desk()
    with desk.filled() as store:
        store.pin("t")
        desk.diary.fields = {"next_horizon_ms": desk.clock.wall_ms() + 600_000}
        desk.run(store, 590_000)
        assert len(desk.diary.made) == 1
        desk.diary.fields = {}
        desk.run(store, 30_000)
        assert len(desk.diary.made) == 2
        request = desk.diary.made[1][1]
        assert request.start_offset == request.end_offset == desk.point()
        desk.run(store, 10_000_000)
        assert len(desk.diary.made) == 2
    with desk.open() as again:
        again.pin("t")
        again.partition("t", 0).append([(b"k", b"v")])
        desk.run(again, 10_000_000)
        assert len(desk.diary.made) == 2, "a later process knows that nothing waits"


@pytest.mark.parametrize("owned", [False, True])
def test_a_horizon_outlives_the_process_that_stamped_it(owned: bool) -> None:
    desk = Desk()
    with desk.filled() as store:
        desk.diary.fields = {"next_horizon_ms": desk.clock.wall_ms() + 600_000}
        desk.run(store, 60_000)
    desk.diary.fields = {}
    with desk.open() as again:
        if owned:
            again.pin("t")
        desk.run(again, 500_000)
        assert len(desk.diary.made) == 1
        desk.run(again, 60_000)
        assert len(desk.diary.made) == 2
        desk.run(again, 10_000_000)
        assert len(desk.diary.made) == 2, "once"


@pytest.mark.parametrize("owned", [False, True])
def test_where_no_cleaning_told_of_a_horizon_one_has_to_look(owned: bool) -> None:
    desk = Desk()
    with desk.filled() as store:
        desk.run(store, 60_000)
    raise_mark(desk.fs, "/s/t-0", 1)  # as an earlier version, or a process that died, leaves it
    with desk.open() as again:
        if owned:
            again.pin("t")
        desk.run(again, SHORTEST_HORIZON_MS - 1000)
        assert len(desk.diary.made) == 1
        desk.run(again, 10_000_000)
        assert len(desk.diary.made) == 2, "once"


def test_a_clock_set_ahead_makes_no_tombstone_old() -> None:
    desk = Desk()
    with desk.filled() as store:
        desk.diary.fields = {"next_horizon_ms": desk.clock.wall_ms() + 10**8}
        desk.run(store, 60_000)
        assert len(desk.diary.made) == 1
        desk.clock.jump_wall(10**10)
        desk.run(store, 600_000)
        assert len(desk.diary.made) == 1
        for _ in range(60):
            store.partition("t", 0).append([(b"k", b"x" * 97)])
        desk.run(store, 60_000)
        assert len(desk.diary.made) == 2, "what is dirty is cleaned all the same"
        assert desk.diary.made[1][1].now_ms <= desk.clock.wall_ms() - 10**10, "its time is what it should be"


def test_retention_obeys_the_policy() -> None:
    desk = Desk()
    with desk.open() as store:
        desk.fill(store, "t", {"retention.bytes": "3000"})
        desk.fill(store, "u", {"retention.bytes": "3000", "cleanup.policy": "compact,delete"})
        store.step()
        assert store.partition("t", 0).log_start_offset == 0
        assert store.partition("u", 0).log_start_offset > 0
        with pytest.raises(InvalidArgumentError, match="compacts and does not delete"):
            store.delete_records("t", 5)
        start = store.partition("u", 0).log_start_offset
        assert store.delete_records("u", start + 1) == {("u", 0): start + 1}
