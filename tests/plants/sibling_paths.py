"""Kind (d): every way to read gives the same: reverse beside forward, iteration beside poll, reopened beside fresh."""

from __future__ import annotations

import random
from typing import Any

from logstore.client.consumer.fetch_state import FetchState
from logstore.log.producers import transaction_index
from logstore.log.read_only_log import ReadOnlyLog
from logstore.log.segments.segment_list import Back, SegmentList
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.ownership.locks import LockTable, MemoryLocks
from logstore.partition.partition_log import PartitionLog
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import Record
from tests.plants.hunts import seeded
from tests.plants.plant import Patch, plant

TOPIC = "t"
START_MS = 1_700_000_000_000


class Paths:
    """A partition with a random history, its committed records as a plain list, and two processes that read it."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.fs = MemoryFileSystem()
        self.clock = ManualClock(START_MS)  # producers are told the time
        self.table = LockTable()
        self.slots: dict[int, LiveSlot] = {}
        self.one, self.two = self.process(), self.process()
        self.wanted: list[tuple[int, bytes]] = []
        config = {"segment.bytes": self.source.choice(("1024", "2000", "1048576"))}
        config["index.interval.bytes"] = self.source.choice(("0", "200", "4096"))
        self.one.create_topic(TOPIC, config=config)

    def process(self) -> LogStore:
        locks = MemoryLocks(self.table, clock=self.clock)
        return LogStore(
            "/s", fs=self.fs, clock=self.clock, locks=locks, live=MemoryLive(self.slots), threads=False
        )

    def write(self) -> None:
        log = self.one.partition(TOPIC, 0)
        producer = None
        for number in range(self.source.randrange(3, 8)):
            self.clock.advance(self.source.choice((0, 1, 50)))
            values = [b"%d-%d" % (number, row) + b"." * self.source.choice((1, 90)) for row in range(4)]
            values = values[: self.source.randrange(1, 5)]
            if self.source.random() < 0.6:
                at_ms = self.clock.wall_ms() - self.source.choice((0, 0, 30))
                landed = log.append([(b"k", value, (), at_ms) for value in values])
                self.wanted += enumerate(values, landed.offset)
                continue
            producer = self.one.producer(transactional_id="t", transaction_timeout_ms=60_000)
            producer.begin()
            sent = [
                producer.send(TOPIC, value, partition=0, timestamp_ms=self.clock.wall_ms())
                for value in values
            ]
            producer.flush()
            if self.source.random() < 0.5:
                producer.commit()
                self.wanted += [
                    (one.result(60).offset, value) for one, value in zip(sent, values, strict=True)
                ]
            else:
                producer.abort()
            producer.close()

    def check(self) -> None:
        self._check_log("its writer", self.one.partition(TOPIC, 0))
        self._check_log("another process", self.two.partition(TOPIC, 0))
        for name, read in (("iteration", self._iterated), ("poll", self._polled), ("paused", self._paused)):
            found = read()
            assert found == self.wanted, f"{name}: {found}, not {self.wanted}"

    def _check_log(self, who: str, log: PartitionLog) -> None:
        end = log.last_stable_offset
        for _ in range(3):
            start = self.source.randrange(0, end + 1)
            stop = self.source.randrange(start, end + 1)
            wanted = [pair for pair in self.wanted if start <= pair[0] < stop]
            forwards = _pairs(log.records(start, stop))
            assert forwards == wanted, f"{who}, [{start}, {stop}): {forwards}, not {wanted}"
            backwards = _pairs(log.records(start, stop, reverse=True))
            assert backwards == wanted[::-1], f"{who}, [{start}, {stop}) backwards: {backwards}"
        at_ms = START_MS + self.source.randrange(0, 200)
        found = log.record_at_or_after(at_ms)
        all_records = list(log.records(log.log_start_offset, end))
        due = next((one for one in all_records if one.timestamp_ms >= at_ms), None)
        assert found is None or due is None or found.offset <= due.offset, (
            f"{who}: at {at_ms} {found}, not {due}"
        )
        assert due is None or found is not None, f"{who}: nothing at {at_ms}, and {due} is there"

    def _consumer(self, **settings: Any) -> Any:
        return self.two.consumer([TOPIC], until_end=True, on_reset="earliest", **settings)

    def _iterated(self) -> list[tuple[int, bytes]]:
        with self._consumer() as consumer:
            return _pairs(consumer)

    def _polled(self) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        with self._consumer() as consumer:
            for _ in range(200):
                found += _pairs(consumer.poll(timeout_s=0, max_records=self.source.choice((1, 2, 500))))
                if consumer.position(*PLACE) >= self._end():
                    break
        return found

    def _paused(self) -> list[tuple[int, bytes]]:
        """Paused and gone on with in the middle of what was fetched, and once back to where it was."""
        found: list[tuple[int, bytes]] = []
        with self._consumer() as consumer:
            for number in range(200):
                got = _pairs(consumer.poll(timeout_s=0, max_records=1))
                found += got
                if number % 3 == 1:
                    consumer.pause([PLACE])
                    assert not _pairs(consumer.poll(timeout_s=0, max_records=5)), "paused, and it reads on"
                    consumer.resume([PLACE])
                if number == 4 and got:
                    consumer.seek(*PLACE, got[-1][0])
                    found.pop()
                if consumer.position(*PLACE) >= self._end():
                    break
        return found

    def _end(self) -> int:
        return self.two.partition(TOPIC, 0).last_stable_offset

    def reopen(self, how: str) -> None:
        if how == "closed":
            self.one.close()
            self.two.close()
        else:
            self.one.abandon()
            self.two.abandon()
            self.fs = self.fs.process_crash()
            self.table = LockTable()
        if how == "lost power":
            self.slots.clear()
            self.clock.reboot("boot-1")
        self.one, self.two = self.process(), self.process()


PLACE = (TOPIC, 0)


def _pairs(records: Any) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value or b"") for record in records]


def paths(seed: int) -> None:
    """Fresh, and written further after it was reopened."""
    one = Paths(seed)
    try:
        one.write()
        one.check()
        for how in one.source.sample(["closed", "killed", "lost power"], 2):
            one.reopen(how)
            one.check()
            one.write()
            one.check()
    finally:
        one.one.abandon()
        one.two.abandon()


@plant(
    "backwards without the first", "a read backwards leaves out a batch at a piece's front", seeded(paths), 6
)
def _(patch: Patch) -> None:
    read_back = SegmentList.read_back

    def planted(self: SegmentList, end_offset: int) -> Back | None:
        back = read_back(self, end_offset)
        return None if back is None else back._replace(first_offset=max(back.first_offset - 1, 0))

    patch.setattr(SegmentList, "read_back", planted)


@plant("backwards within one segment", "a read backwards ends at the front of its segment", seeded(paths), 6)
def _(patch: Patch) -> None:
    read_back = SegmentList.read_back

    def planted(self: SegmentList, end_offset: int) -> Back | None:
        if self.segments and end_offset == self.segments[-1].base_offset:
            return None
        return read_back(self, end_offset)

    patch.setattr(SegmentList, "read_back", planted)


@plant("aborted records backwards", "a read backwards shows what was aborted", seeded(paths), 6)
def _(patch: Patch) -> None:
    fetch_back = PartitionLog.fetch_back

    def planted(
        self: PartitionLog, end: int, isolation: Any = "read_committed", start: int | None = None
    ) -> Any:
        return fetch_back(self, end, "read_uncommitted", start)

    patch.setattr(PartitionLog, "fetch_back", planted)


@plant("aborted records for others", "another process shows what was aborted", seeded(paths), 6)
def _(patch: Patch) -> None:
    patch.setattr(ReadOnlyLog, "_aborted", lambda self, start, end: [])


@plant(
    "abort rows by first offset", "an abort that began before the piece read is left out", seeded(paths), 6
)
def _(patch: Patch) -> None:
    aborted = SegmentList.aborted
    patch.setattr(
        SegmentList,
        "aborted",
        lambda self, start, end: [row for row in aborted(self, start, end) if row.first_offset >= start],
    )


@plant("seek forgets the rest", "a position in the middle of a batch goes to the next one", seeded(paths), 6)
def _(patch: Patch) -> None:
    take = FetchState._arrive

    def planted(self: FetchState, records: list[Record], next_offset: int) -> None:
        whole = [
            one for one in records if one.offset > self._next_offset or self._next_offset == self.started_at
        ]
        take(self, whole, next_offset)

    patch.setattr(FetchState, "_arrive", planted)


@plant(
    "poll skips the last", "the last record of a fetch is passed over when records are few", seeded(paths), 6
)
def _(patch: Patch) -> None:
    peek = FetchState.peek

    def planted(self: FetchState, most: int) -> list[Record]:
        found = peek(self, most)
        if most == 2 and len(found) == 2 and self.waiting > 2:
            self.advance(1)
            return peek(self, 1)
        return found

    patch.setattr(FetchState, "peek", planted)


@plant("rows lost at a reopening", "the transaction index is empty after a restart", seeded(paths), 6)
def _(patch: Patch) -> None:
    patch.setattr(transaction_index, "decode_rows", lambda *arguments, **settings: [])


@plant(
    "time index of the newest",
    "a time is looked for from the last segment that may hold it",
    seeded(paths),
    6,
)
def _(patch: Patch) -> None:
    first = SegmentList.first_at_or_after

    def planted(self: SegmentList, timestamp_ms: int, limit_offset: int) -> Any:
        return first(SegmentList(self.segments[-1:]), timestamp_ms, limit_offset)

    patch.setattr(SegmentList, "first_at_or_after", planted)
