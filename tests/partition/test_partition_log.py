"""The facade of one partition against a plain list, through reopens, kills and power losses; then its edges."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logstore.errors import (
    DataLossError,
    InvalidArgumentError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    ReadOnlyStoreError,
    RecordTooLargeError,
    RecordTypeError,
    StorageError,
    UnknownPartitionError,
)
from logstore.format.batch import decode_batches, encode_batch
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import MemoryLocks
from logstore.partition.partition_log import PartitionLog
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind
from logstore.seams.memory_crash import Chooser, KeepAll, KeepNothing, RandomChooser
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import Acks, Record, Row
from tests.log.logs import NOW_MS

ROOT = "/store"
keys = st.one_of(st.none(), st.binary(max_size=6))
values = st.one_of(st.none(), st.binary(max_size=12), st.integers(0, 700).map(lambda size: b"v" * size))
headers = st.one_of(
    st.none(),
    st.lists(
        st.tuples(st.sampled_from(["a", "é", ""]), st.one_of(st.none(), st.binary(max_size=4))), max_size=2
    ),
)
times = st.one_of(st.none(), st.integers(-5_000, 5_000).map(lambda delta: NOW_MS + delta))
row_lists = st.lists(st.tuples(keys, values, headers, times), min_size=1, max_size=9)
all_acks: st.SearchStrategy[Acks] = st.sampled_from([0, 1, "all", "all"])


class LogMachine(RuleBasedStateMachine):
    """``model`` are the records of the running store, ``durable`` how many of them no crash may take."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = MemoryFileSystem()
        self.clock = ManualClock(NOW_MS)
        self.live: dict[int, LiveSlot] = {}
        self.model: list[Record] = []
        self.durable = 0
        self.boots = 0
        self.epoch = -1
        self.visible_after = "flush"
        self.beside: LogStore | None = None
        self.beside_shown = 0

    @initialize(
        segment=st.sampled_from([1_024, 1_500, 1 << 20]),
        interval=st.sampled_from([0, 150, 4_096]),
        tail=st.sampled_from([0, 400, 1 << 20]),
        visible=st.sampled_from(["flush", "flush", "append"]),
        messages=st.sampled_from([1, 5, 10**6]),
        codec=st.sampled_from(["producer", "gzip", "none"]),
        kind=st.sampled_from(["CreateTime", "CreateTime", "CreateTime", "LogAppendTime"]),
    )
    def create(
        self, segment: int, interval: int, tail: int, visible: str, messages: int, codec: str, kind: str
    ) -> None:
        self.visible_after, self.flush_messages, self.kind = visible, messages, kind
        self.segment_bytes = segment
        self.store = self.open("rw")
        self.store.create_topic(
            "t",
            config={
                "segment.bytes": str(segment),
                "index.interval.bytes": str(interval),
                "tail.cache.bytes": str(tail),
                "visible.after": visible,
                "flush.messages": str(messages),
                "compression.type": codec,
                "message.timestamp.type": kind,
            },
        )

    def open(self, mode: Any) -> LogStore:
        return LogStore(
            ROOT,
            mode,
            fs=self.fs,
            clock=self.clock,
            locks=MemoryLocks(clock=self.clock),
            live=MemoryLive(self.live),
            threads=False,
        )

    @property
    def log(self) -> PartitionLog:
        return self.store.partition("t", 0)

    def note(self, rows: list[Any], acks: Acks, offset: int) -> None:
        start = len(self.model)
        assert offset == (-1 if acks == 0 else start)
        for row in rows:
            stamp = self.clock.wall_ms() if self.kind == "LogAppendTime" or row[3] is None else row[3]
            self.model.append(
                Record("t", 0, len(self.model), stamp, row[0], row[1], tuple(map(tuple, row[2] or ())))
            )
        unsynced = len(self.model) - self.log.high_watermark if self.visible_after == "flush" else 0
        if acks == "all":
            self.durable = len(self.model)
        if self.visible_after == "flush":
            assert unsynced < self.flush_messages or unsynced == 0
            self.durable = max(self.durable, self.log.high_watermark)

    # --- calls ---

    @rule(rows=row_lists, acks=all_acks)
    def append(self, rows: list[Row], acks: Acks) -> None:
        placed = self.log.append(rows, acks=acks)
        self.note(rows, acks, placed.offset)
        assert placed.timestamp_ms == self.model[-len(rows)].timestamp_ms

    @rule(
        parts=st.lists(row_lists, min_size=1, max_size=3),
        acks=all_acks,
        codec=st.sampled_from(["none", "gzip"]),
    )
    def append_batches(self, parts: list[list[Row]], acks: Acks, codec: str) -> None:
        now_ms = self.clock.wall_ms()
        buffer = b"".join(encode_batch(rows, now_ms=now_ms, codec=codec) for rows in parts)
        try:
            placed = self.log.append_batch(buffer, acks=acks)
        except RecordTooLargeError:
            assert max(len(encode_batch(rows, now_ms=now_ms)) for rows in parts) > self.segment_bytes
            return
        self.note([row for rows in parts for row in rows], acks, placed.offset)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.durable = len(self.model)
        assert self.log.high_watermark == len(self.model)

    @rule(milliseconds=st.sampled_from([10, 100, 6_000, 11_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.store.step()
        if milliseconds >= 100 and self.visible_after == "flush":
            assert self.log.high_watermark == len(self.model)
            self.durable = len(self.model)

    @rule(where=st.floats(0, 1), max_bytes=st.sampled_from([1, 300, 1 << 20]))
    def read(self, where: float, max_bytes: int) -> None:
        visible = self.visible()
        offset = int(where * len(visible))
        data = self.log.read(offset, max_bytes, "read_uncommitted")
        found = decode_batches(data, "t", 0, start_offset=offset)
        assert found == visible[offset : offset + len(found)]
        assert bool(found) == (offset < len(visible))

    @rule(first=st.floats(0, 1), last=st.floats(0, 1), until_now=st.booleans())
    def records(self, first: float, last: float, until_now: bool) -> None:
        visible = self.visible()
        start, end = int(first * len(visible)), int(last * (len(visible) + 3))
        found = list(self.log.records(start, None if until_now else end))
        assert found == visible[start:] if until_now else found == visible[start:end]

    @rule(delta=st.integers(-5_100, 17_000))
    def look_up_time(self, delta: int) -> None:
        wanted = NOW_MS + delta
        due = next((record for record in self.visible() if record.timestamp_ms >= wanted), None)
        assert self.log.offset_for_timestamp(wanted) == (None if due is None else due.offset)
        newest = self.log.record_of_max_timestamp()
        best = max((record.timestamp_ms for record in self.visible()), default=None)
        assert (None if newest is None else newest.timestamp_ms) == best

    def visible(self) -> list[Record]:
        return self.model[: self.log.high_watermark]

    @rule(where=st.sampled_from([-1, 1, 10**9]))
    def out_of_range(self, where: int) -> None:
        offset = where if where < 0 else self.log.log_end_offset + where
        with pytest.raises(OffsetOutOfRangeError) as caught:
            self.log.records(offset)
        assert caught.value.end_offset == self.log.high_watermark

    # --- ends ---

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open("rw")
        self.durable = len(self.model)
        self.check_all(len(self.model))
        assert self.log.leader_epoch in (self.epoch, -1)

    @rule()
    def release(self) -> None:
        self.store.release("t")
        self.durable = len(self.model)
        self.check_all(len(self.model))

    @rule()
    def kill(self) -> None:
        in_use = self.in_use()
        self.store.abandon()
        self.drop_reader()
        self.fs = self.fs.process_crash()
        self.store = self.open("rw")
        self.check_all(len(self.model), at_least=self.durable)
        self.take_over(len(self.model), in_use)

    @rule(kept=st.one_of(st.just("none"), st.just("all"), st.integers(0, 10**6)))
    def power_loss(self, kept: str | int) -> None:
        choose: Chooser = KeepNothing() if kept == "none" else KeepAll()
        if isinstance(kept, int):
            choose = RandomChooser(random.Random(kept))
        in_use = self.in_use()
        self.store.abandon()
        self.drop_reader()
        self.fs = self.fs.crash(choose)
        self.live = {}
        self.boots += 1
        self.clock.reboot(f"boot-{self.boots}")
        self.store = self.open("rw")
        end = self.log.high_watermark
        assert self.durable <= end <= len(self.model)
        self.check_all(end)
        self.take_over(end, in_use)

    def in_use(self) -> bool:
        """Whether the topic is not closed in order: then the epoch has to go up."""
        return self.store._registry.get("t").owned

    def take_over(self, end: int, in_use: bool) -> None:
        """The first use of the topic recovers it; nothing that was shown before goes, or comes up changed."""
        topic = self.store._registry.get("t")
        with topic.using():
            topic.log(0)
        assert self.log.log_end_offset == self.log.high_watermark == end
        if end > 0:
            assert self.log.leader_epoch > self.epoch if in_use else self.log.leader_epoch == self.epoch
        del self.model[end:]
        self.durable = end
        self.check_all(end)

    def check_all(self, end: int, at_least: int | None = None) -> None:
        log = self.log
        if at_least is not None:
            assert at_least <= log.high_watermark <= end
            end = log.high_watermark
        assert list(log.records(0)) == self.model[:end]

    # --- a reader in another process ---

    @rule()
    def look_from_outside(self) -> None:
        if self.beside is None:
            self.beside, self.beside_shown = self.open("r"), 0
        log = self.beside.partition("t", 0)
        assert log.high_watermark == self.log.high_watermark
        assert log.high_watermark >= self.beside_shown
        self.beside_shown = log.high_watermark
        assert list(log.records(0)) == self.visible()

    def drop_reader(self) -> None:
        if self.beside is not None:
            self.beside.abandon()
            self.beside = None

    @invariant()
    @precondition(lambda self: hasattr(self, "store"))
    def bounds_are_in_order(self) -> None:
        bounds = self.log.bounds()
        assert bounds.log_start_offset == 0
        assert bounds.last_stable_offset == bounds.high_watermark <= bounds.log_end_offset
        if self.visible_after == "flush":
            self.durable = max(self.durable, bounds.high_watermark)  # shown is as good as promised
        self.epoch = max(self.epoch, bounds.leader_epoch)


CALM = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = CALM


@pytest.mark.long
def test_the_machine_at_length() -> None:
    run_state_machine_as_test(
        LogMachine, settings=settings(CALM, max_examples=3_000, stateful_step_count=120)
    )


# --- edges ------------------------------------------------------------------------------------------


@pytest.fixture
def store() -> LogStore:
    store = LogStore(":memory:", threads=False, clock=ManualClock(NOW_MS))
    store.create_topic("t", partitions=2, config={"max.message.bytes": "2000"})
    return store


def test_appending_nothing_or_the_wrong_thing(store: LogStore) -> None:
    log = store.partition("t", 0)
    wrong: list[tuple[Any, type[Exception], str]] = [
        ([], InvalidRecordError, "append to t-0: no rows"),
        ([(None, "text")], RecordTypeError, "bytes"),
        ([(None, b"fine"), (5, b"x")], RecordTypeError, "row 1"),
        ([(None, b"x" * 2_001)], RecordTooLargeError, "row 0 for t-0 makes a batch of 2"),
        ([(None, b"fine")] * 3 + [(None, b"x" * 5_000)], RecordTooLargeError, "row 3 for t-0 makes"),
    ]
    for rows, kind, message in wrong:
        with pytest.raises(kind, match=message):
            log.append(rows)
        assert log.log_end_offset == 0
    with pytest.raises(InvalidArgumentError, match="acks='most' is not known"):
        log.append([(None, b"a")], acks="most")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="isolation='dirty' is not known"):
        log.read(0, 10, "dirty")  # type: ignore[arg-type]


def test_many_rows_become_as_many_batches_as_they_need(store: LogStore) -> None:
    log = store.partition("t", 0)
    placed = log.append([(b"k%d" % number, b"v" * 100) for number in range(100)])
    assert placed.offset == 0
    assert [record.offset for record in log.records(0)] == list(range(100))
    assert log.describe().log_end_offset == 100


def test_what_a_partition_says_of_itself(store: LogStore) -> None:
    log = store.partition("t", 1)
    assert repr(log) == "PartitionLog('t', 1)"
    assert log.leader_epoch == -1
    described = log.describe()
    assert (described.partition, described.segments, described.size_bytes) == (1, 0, 0)
    log.append([(None, b"a")], acks=1)
    described = log.describe()
    assert (described.segments, described.high_watermark, described.log_end_offset) == (1, 0, 1)
    assert described.size_bytes > 60
    with pytest.raises(UnknownPartitionError, match="has no partition 2"):
        store.partition("t", 2)
    with pytest.raises(UnknownPartitionError):
        store.partition("t", -1)


def test_a_position_of_an_older_epoch_past_its_end_is_data_loss() -> None:
    fs, clock = MemoryFileSystem(), ManualClock(NOW_MS)
    store = LogStore(ROOT, fs=fs, clock=clock, threads=False)
    store.create_topic("t", config={"visible.after": "append"})
    store.partition("t", 0).append([(None, b"kept")])
    store.partition("t", 0).append([(None, b"lost")] * 4, acks=1)
    assert store.partition("t", 0).high_watermark == 5
    store.abandon()
    clock.reboot("boot-1")
    store = LogStore(ROOT, fs=fs.crash(KeepNothing()), clock=clock, threads=False)
    log = store.partition("t", 0)
    assert log.high_watermark == 1
    with pytest.raises(DataLossError, match="the log now ends at 1") as caught:
        log.fetch(4, 100, "read_committed", leader_epoch=0)
    assert (caught.value.lost_from, caught.value.position) == (1, 4)
    log.append([(None, b"new")] * 9)
    with pytest.raises(DataLossError, match="reached under epoch 0, which ends at 1") as caught:
        log.fetch(4, 100, "read_committed", leader_epoch=0)
    assert (caught.value.lost_from, caught.value.position) == (1, 4)
    assert log.fetch(1, 100, "read_committed", leader_epoch=0).data
    assert log.fetch(4, 100, "read_committed", leader_epoch=1).data
    assert log.fetch(4, 100, "read_committed").data


def test_a_failing_disk_while_reading_is_a_named_error() -> None:
    fs = MemoryFileSystem()
    store = LogStore(ROOT, fs=fs, clock=ManualClock(NOW_MS), threads=False)
    store.create_topic("t", config={"tail.cache.bytes": "0"})
    log = store.partition("t", 0)
    log.append([(None, b"a")])
    for look in (lambda: log.read(0), lambda: log.offset_for_timestamp(0), log.record_of_max_timestamp):
        fs.faults.on("pread", FaultKind.EIO)
        with pytest.raises(StorageError, match="cannot read t-0: Input/output error"):
            look()
    assert log.read(0)


def test_to_arrow_is_the_same_records(store: LogStore) -> None:
    log = store.partition("t", 0)
    assert log.to_arrow(0).num_rows == 0
    log.append([(b"k", b"v%d" % number, [("h", b"x")], NOW_MS + number) for number in range(50)])
    table = log.to_arrow(3, 47)
    found = list(log.records(3, 47))
    assert table.column("offset").to_pylist() == [record.offset for record in found]
    assert table.column("value").to_pylist() == [record.value for record in found]


def test_a_read_only_store_appends_nothing() -> None:
    fs = MemoryFileSystem()
    store = LogStore(ROOT, fs=fs, threads=False)
    store.create_topic("t")
    store.close()
    reader = LogStore(ROOT, "r", fs=fs, threads=False)
    with pytest.raises(ReadOnlyStoreError):
        reader.partition("t", 0).append([(None, b"a")])
    with pytest.raises(ReadOnlyStoreError):
        reader.partition("t", 0).append_batch(encode_batch([(None, b"a")], now_ms=NOW_MS))
    reader.partition("t", 0).flush()
    assert list(reader.partition("t", 0).records(0)) == []
