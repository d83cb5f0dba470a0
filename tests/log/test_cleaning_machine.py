"""Histories of appends, transactions, rolls and cleanings against a plain list; readers stand everywhere.

A reader that starts at any offset, before or during a cleaning, in this process or in another, sees a valid
continuation: records as they were appended, in order; the last value of every key from its start on; a
tombstone until its horizon; nothing older of a key whose tombstone is gone; nothing that was aborted and cleaned.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logstore.format.batch import decode_batches
from logstore.log.cleaning.cleaning import Cleaning
from logstore.log.cleaning.key_offsets import ENTRY_BYTES
from logstore.log.owned_log import OwnedLog
from logstore.log.read_only_log import ReadOnlyLog
from logstore.log.segments.file_pool import FilePool
from logstore.ownership.live import MemoryLive
from tests.log.cleanings import RETENTION_MS, cleaning, end_transaction, put
from tests.log.logs import FOLDER, Desk

KEYS = st.sampled_from([b"a", b"b", b"c", b"dd"])


class Appended(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    producer_id: int


class Reader:
    """Reads on from a start, a few batches at a time."""

    def __init__(self, log: OwnedLog | ReadOnlyLog, start: int) -> None:
        self.log = log
        self.start = self.position = start
        self.seen: dict[int, tuple[bytes | None, bytes | None]] = {}

    def read(self, limit: int, max_bytes: int) -> None:
        chunk = self.log.read(self.position, max_bytes, limit)
        assert chunk is not None
        assert chunk.next_offset > self.position
        for record in decode_batches(bytes(chunk.data), "t", 0, start_offset=self.position):
            self.seen[record.offset] = (record.key, record.value)
        self.position = chunk.next_offset


class CleaningMachine(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([200, 1000, 1 << 20]), largest=st.sampled_from([1 << 30, 300]))
    def begin(self, segment_bytes: int, largest: int) -> None:
        self.live = MemoryLive()
        self.desk = Desk(index_interval_bytes=80, tail_cache_bytes=0)
        self.desk._publish = self.publish  # type: ignore[method-assign]
        self.log = self.desk.open()
        self.limits = {"segment_bytes": segment_bytes, "largest_bytes": largest}
        self.appended: list[Appended] = []
        self.open: dict[int, int] = {}  # producer id -> first offset of its transaction
        self.aborted: set[int] = set()  # offsets
        self.cleaned_to = 0
        self.stamped: dict[int, int] = {}  # offset of a tombstone -> when a cleaning first had it
        self.running: tuple[Cleaning, int] | None = None
        self.readers: list[Reader] = []

    def publish(self, log: OwnedLog) -> None:
        start, high, stable, end, epoch = log.bounds()
        base, position = log.end_position
        self.live.publish(
            3,
            log_start_offset=start,
            high_watermark=high,
            last_stable_offset=stable,
            log_end_offset=end,
            segment_base=base,
            end_position=position,
            leader_epoch=epoch,
        )

    def observe(self) -> ReadOnlyLog:
        return ReadOnlyLog(
            where="t-0",
            directory=FOLDER,
            pool=FilePool(self.desk.fs),
            live=self.live,
            live_slot=3,
            state=lambda: None,
        )

    # --- history ---

    def note(self, base: int, rows: list[tuple[bytes, bytes | None]], producer_id: int = -1) -> None:
        for number, (key, value) in enumerate(rows):
            self.appended.append(Appended(base + number, key, value, producer_id))

    def fresh(self, keys: list[bytes], tombstones: set[int]) -> list[tuple[bytes, bytes | None]]:
        end = self.log.log_end_offset
        return [
            (key, None if number in tombstones else b"v%d" % (end + number))
            for number, key in enumerate(keys)
        ]

    @rule(
        batches=st.lists(st.lists(KEYS, min_size=1, max_size=4), min_size=1, max_size=4),
        tombstones=st.sets(st.integers(0, 3), max_size=2),
        codec=st.sampled_from(["none", "none", "gzip"]),
    )
    def append(self, batches: list[list[bytes]], tombstones: set[int], codec: str) -> None:
        for keys in batches:
            rows = self.fresh(keys, tombstones)
            self.note(put(self.log, *rows, codec=codec), rows)

    @rule(producer_id=st.integers(1, 2), keys=st.lists(KEYS, min_size=1, max_size=3))
    def append_in_transaction(self, producer_id: int, keys: list[bytes]) -> None:
        rows = self.fresh(keys, {1})
        base = put(self.log, *rows, producer_id=producer_id, transactional=True)
        self.open.setdefault(producer_id, base)
        self.note(base, rows, producer_id)

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        producer_id, first = self.open.popitem()
        end_transaction(self.log, producer_id, commit=commit)
        if not commit:
            self.aborted.update(
                row.offset for row in self.appended if row.producer_id == producer_id and row.offset >= first
            )

    @rule()
    def roll(self) -> None:
        self.log.roll_idle()

    # --- cleaning ---

    @precondition(lambda self: self.running is None)
    @rule(
        passed_ms=st.sampled_from([0, RETENTION_MS - 1, RETENTION_MS, 5 * RETENTION_MS]),
        map_bytes=st.sampled_from([1 << 20, 2 * ENTRY_BYTES + 10, 1]),
        delay_s=st.sampled_from([0.0, 60.0]),
        steps=st.sampled_from([1000, 1000, 20, 5, 0]),
        roll=st.booleans(),
    )
    def clean(self, passed_ms: int, map_bytes: int, delay_s: float, steps: int, roll: bool) -> None:
        if roll:
            self.log.roll_idle()
        self.desk.clock.advance(passed_ms)
        now_ms = self.desk.clock.wall_ms()
        one = cleaning(
            self.desk,
            self.log,
            start_offset=self.cleaned_to,
            end_offset=min(self.open.values(), default=1 << 60),
            now_ms=now_ms,
            key_map_bytes=map_bytes,
            file_delete_delay_s=delay_s,
            **self.limits,
        )
        self.running = (one, now_ms)
        self.step(steps)

    @precondition(lambda self: self.running is not None)
    @rule(steps=st.sampled_from([1, 5, 20, 1000]))
    def go_on(self, steps: int) -> None:
        self.step(steps)

    def step(self, steps: int) -> None:
        assert self.running is not None
        one, now_ms = self.running
        for _ in range(steps):
            result = one.step(0)
            if result is None:
                continue
            self.running = None
            assert result.cleaned_to >= min(self.cleaned_to, self.log.log_end_offset)
            self.cleaned_to = result.cleaned_to
            for row in self.appended:
                if row.value is None and row.offset < self.cleaned_to:
                    self.stamped.setdefault(row.offset, now_ms)
            return

    @precondition(lambda self: self.running is not None)
    @rule()
    def cancel(self) -> None:
        assert self.running is not None
        self.running[0].cancel()
        self.running = None

    @precondition(lambda self: self.running is None)
    @rule()
    def crash(self) -> None:
        """Killed and opened again: nothing but what was being written may be lost, and all is synced here."""
        fs = self.desk.fs.process_crash()
        point, clock = self.log.recovery_point, self.desk.clock
        self.desk = Desk(fs, index_interval_bytes=80, tail_cache_bytes=0)
        self.desk._publish = self.publish  # type: ignore[method-assign]
        self.desk.clock = clock
        self.log = self.desk.open(recovery_point=point)
        self.readers.clear()

    # --- reading ---

    @precondition(lambda self: len(self.readers) < 8)
    @rule(place=st.integers(0, 100), observed=st.booleans())
    def begin_to_read(self, place: int, observed: bool) -> None:
        log = self.observe() if observed else self.log
        self.readers.append(Reader(log, place * self.log.log_end_offset // 101))

    @precondition(lambda self: self.readers)
    @rule(max_bytes=st.sampled_from([1, 150, 600]))
    def read_on(self, max_bytes: int) -> None:
        for reader in self.readers:
            if reader.position < self.log.log_end_offset:
                reader.read(self.log.log_end_offset, max_bytes)

    @invariant()
    def every_offset_is_a_valid_start(self) -> None:
        if not self.appended:
            return
        end = self.log.log_end_offset
        for observed in (False, True):
            log = self.observe() if observed else self.log
            for start in range(0, end, max(1, end // 7)):
                reader = Reader(log, start)
                while reader.position < end:
                    reader.read(end, 400)
                self.check(reader.seen, start, end, whole=True)

    def check(
        self, seen: dict[int, tuple[bytes | None, bytes | None]], start: int, end: int, *, whole: bool
    ) -> None:
        """``whole``: read in one go, so that nothing was cleaned in between."""
        known = {row.offset: row for row in self.appended}
        for offset, pair in seen.items():
            assert start <= offset < end
            assert pair == (known[offset].key, known[offset].value)
        now_ms = self.desk.clock.wall_ms()
        last = {row.key: row for row in self.appended if row.offset not in self.aborted}
        for key, row in last.items():
            if row.offset in seen or row.offset < start or row.offset >= end:
                continue
            assert row.value is None, f"the last value of {key!r}, at {row.offset}, is gone"
            assert row.offset in self.stamped or self.running is not None
            assert now_ms >= self.stamped.get(row.offset, now_ms) + RETENTION_MS
            if whole:
                older = [
                    at for at in seen if at < row.offset and seen[at][0] == key and at not in self.aborted
                ]
                assert older == [], f"{key!r} was deleted, and is back"

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        end = self.log.log_end_offset
        for reader in self.readers:
            while reader.position < end:
                reader.read(end, 300)
            self.check(reader.seen, reader.start, end, whole=False)


CleaningMachine.TestCase.settings = settings(
    derandomize=True, deadline=None, max_examples=60, stateful_step_count=30, phases=[Phase.generate]
)
TestCleaningMachine = CleaningMachine.TestCase
