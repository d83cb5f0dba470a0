"""Histories of appends, retention, deletions, crashes and clock jumps against a plain list of what was appended.

Nothing goes that no rule lets go, nothing visible is ever wrong or missing at or past the log start, the start never
goes back, and a reader that stands anywhere gets what comes next or the range that it lost.
"""

from __future__ import annotations

from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import logstore
from logstore.errors import OffsetOutOfRangeError
from logstore.ownership.live import MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.upkeep.clock_guard import TOLERANCE_MS

PASS_S = 30.0
ROLL_MS = 100_000
VALUE = 90


class Standing:
    """A reader in another process, a few batches at a time."""

    def __init__(self, store: logstore.LogStore) -> None:
        self.store = store
        self.log = store.partition("t", 0)
        self.position = self.log.log_start_offset

    def read(self, max_bytes: int, appended: list[tuple[int, bytes]]) -> OffsetOutOfRangeError | None:
        """What comes next, whole; or the error that says which offsets were lost, and the reader stands behind."""
        try:
            got = self.log.fetch(self.position, max_bytes, "read_committed")
        except OffsetOutOfRangeError as error:
            before, self.position = self.position, error.log_start_offset
            if before >= self.position or f"offsets {before} to {self.position - 1} are gone" not in str(
                error
            ):
                raise
            return error
        for record in self.log.records(self.position, got.next_offset):
            assert (record.offset, record.value) == (self.position, appended[self.position][1])
            self.position += 1
        assert self.position == got.next_offset
        assert got.data or self.position == self.log.high_watermark
        return None


class RetentionMachine(RuleBasedStateMachine):
    @initialize(
        retention_bytes=st.sampled_from([-1, 0, 1500, 4000]),
        retention_ms=st.sampled_from([-1, 50_000, 400_000]),
        delay_ms=st.sampled_from([0, 60_000]),
    )
    def begin(self, retention_bytes: int, retention_ms: int, delay_ms: int) -> None:
        self.fs, self.clock, self.live, self.table = (
            MemoryFileSystem(),
            ManualClock(),
            MemoryLive(),
            LockTable(),
        )
        self.retention_bytes, self.retention_ms = retention_bytes, retention_ms
        self.appended: list[tuple[int, bytes]] = []  # (timestamp, value) by offset
        self.start = 0  # as last seen
        self.asked = 0  # the highest offset that records were deleted before
        self.jump_ms = 0  # since the store was opened, and not back
        self.durable = 0
        self.boot = 0
        self.store = self.open()
        config = {
            "segment.bytes": "1024",
            "segment.ms": str(ROLL_MS),
            "index.interval.bytes": "150",
            "retention.bytes": str(retention_bytes),
            "retention.ms": str(retention_ms),
            "file.delete.delay.ms": str(delay_ms),
            "flush.ms": "1000",
        }
        self.store.create_topic("t", 1, config)
        self.readers: list[Standing] = []

    def open(self, mode: Literal["r", "rw"] = "rw") -> logstore.LogStore:
        return logstore.LogStore(
            "/s",
            mode,
            fs=self.fs,
            clock=self.clock,
            live=self.live,
            locks=MemoryLocks(self.table, clock=self.clock),
            threads=False,
            lock_idle_release_s=1e9,
            retention_check_s=PASS_S,
        )

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()

    @property
    def log(self) -> logstore.PartitionLog:
        return self.store.partition("t", 0)

    # --- what happens ---

    @rule(
        count=st.integers(1, 12),
        ages_ms=st.lists(st.sampled_from([0, 0, 1000, 60_000, 500_000, -20_000]), min_size=1, max_size=3),
        acks=st.sampled_from(["all", "all", 1]),
    )
    def append(self, count: int, ages_ms: list[int], acks: Literal["all", 1]) -> None:
        rows = []
        for number in range(count):
            at_ms = self.clock.wall_ms() - ages_ms[number % len(ages_ms)]
            value = b"%05d" % (len(self.appended) + number) + b"." * VALUE
            rows.append((None, value, (), at_ms))
        assert self.log.append(rows, acks=acks).offset == len(self.appended)
        self.appended += [(at_ms, value) for _, value, _, at_ms in rows]
        if acks == "all":
            self.durable = len(self.appended)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        before = round(share * self.log.high_watermark)
        (start,) = self.store.delete_records("t", before).values()
        assert start == max(before, self.start)
        self.asked = max(self.asked, before)
        self.durable = len(self.appended)  # deleting makes all durable first

    @rule(past=st.integers(1, 1000))
    def delete_past_the_end(self, past: int) -> None:
        try:
            self.store.delete_records("t", self.log.high_watermark + past)
        except OffsetOutOfRangeError:
            return
        raise AssertionError("records that are not there were deleted")

    @rule(passes=st.integers(1, 3))
    def time_goes_by(self, passes: int) -> None:
        for _ in range(passes):
            self.clock.advance(round(PASS_S * 1000) + 1)
            self.step()

    @rule()
    def step(self) -> None:
        self.store.step()
        self.durable = max(self.durable, self.log.high_watermark)

    @rule(by_ms=st.sampled_from([-(10**9), 2 * TOLERANCE_MS, 10**10]))
    def clock_jumps(self, by_ms: int) -> None:
        if not self.jump_ms:
            self.step()  # else the first look would take the jumped clock for granted, as after a restart
            self.clock.jump_wall(by_ms)
            self.jump_ms = by_ms

    @rule()
    def clock_comes_back(self) -> None:
        self.clock.jump_wall(-self.jump_ms)
        self.jump_ms = 0

    # --- ends ---

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.durable = len(self.appended)
        self.store = self.open()
        self.clock_comes_back()

    @rule()
    def kill(self) -> None:
        """What is in the page cache stays."""
        self.store.abandon()
        self.fs, self.table = self.fs.process_crash(), LockTable()
        self.again(len(self.appended))

    @rule(which=st.integers(0, 11))
    def power_loss(self, which: int) -> None:
        self.store.abandon()
        outcomes = list(self.fs.crash_states(12))
        self.fs, self.table, self.live = outcomes[which % len(outcomes)], LockTable(), MemoryLive()
        self.boot += 1
        self.clock.reboot(f"boot-{self.boot}")
        self.again(self.durable)

    def again(self, least: int) -> None:
        for reader in self.readers:
            reader.store.close()
        self.readers = []
        self.store = self.open()
        self.clock_comes_back()
        self.store.pin("t")  # recovers
        end = self.log.log_end_offset
        assert least <= end <= len(self.appended)
        del self.appended[end:]
        self.durable = end

    # --- readers ---

    @rule()
    def reader_comes(self) -> None:
        if len(self.readers) < 3:
            self.readers.append(Standing(self.open("r")))

    @rule(number=st.integers(0, 2), max_bytes=st.sampled_from([1, 700, 5000]))
    def reader_reads(self, number: int, max_bytes: int) -> None:
        if number >= len(self.readers):
            return
        reader = self.readers[number]
        lost = reader.read(max_bytes, self.appended)
        if lost is not None:
            assert lost.log_start_offset == self.log.log_start_offset

    # --- what must hold ---

    @invariant()
    def the_start_only_grows_and_all_from_it_on_is_there(self) -> None:
        bounds = self.log.bounds()
        assert self.start <= bounds.log_start_offset <= bounds.high_watermark <= len(self.appended)
        got = [(record.offset, record.value) for record in self.log.records(bounds.log_start_offset)]
        visible = range(bounds.log_start_offset, bounds.high_watermark)
        assert got == [(offset, self.appended[offset][1]) for offset in visible]

    @invariant()
    def what_went_had_a_reason(self) -> None:
        """Asked for; or a whole segment whose records were all too old, by a clock that was to be believed; or
        more than retention.bytes remains."""
        start = self.log.log_start_offset
        gone = range(max(self.start, self.asked), start)
        self.start = start
        if not gone:
            return
        too_old = self.retention_ms >= 0 and all(
            self.appended[offset][0] < self.clock.wall_ms() - self.retention_ms for offset in gone
        )
        size = self.log.describe().size_bytes
        too_much = 0 <= self.retention_bytes <= size
        assert too_much or (too_old and not self.jump_ms), f"offsets {gone} went without a reason"


TestRetentionMachine = RetentionMachine.TestCase
TestRetentionMachine.settings = settings(
    derandomize=True, deadline=None, max_examples=60, stateful_step_count=35, database=None
)
