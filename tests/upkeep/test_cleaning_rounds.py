"""Histories of many rounds of cleaning in a whole store against a plain list of what was appended.

Plain, idempotent and transactional appends, rolls, cleanings by hand and in the background with key maps that fill in
the middle of a batch, waits past the delete horizon, files that get lost (snapshots, indexes, the cleaner's mark),
reopenings in order, after a kill and after a power loss. After each step all that may be read is compared, in both
directions, at both isolation levels, here and in a store opened afresh; at the end nothing is left but the newest
value of each key.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pytest

from logstore.errors import OutOfOrderSequenceError
from logstore.format.batch import BatchHeader, encode_batch, iter_headers
from logstore.log.cleaning.cleaner_mark import FILE_NAME as MARK
from logstore.log.cleaning.cleaning import Cleaning
from logstore.log.cleaning.key_offsets import ENTRY_BYTES
from logstore.ownership.live import MemoryLive
from logstore.ownership.locks import LockTable
from logstore.seams.memory_crash import KeepNothing
from logstore.store import LogStore
from logstore.types import Isolation
from tests.upkeep.test_cleaner import Desk

FOLDER = "/s/t-0"
RETENTION_MS = 60_000
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": "3600000",
    "delete.retention.ms": str(RETENTION_MS),
    "min.cleanable.dirty.ratio": "0.3",
    "producer.id.expiration.ms": str(1 << 40),
    "index.interval.bytes": "100",
}
KEYS = [b"a", b"b", b"c", b"dd", b"ee", b"f", b"g"]
ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
LOSSES = [".snapshot", ".index", ".timeindex", ".txnindex", MARK]
STEPS = 40


class Written(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Sender:
    """A producer id: the next sequence, its newest batch as sent and where that is, where its transaction began."""

    sequence: int = 0
    newest: tuple[bytes, int] | None = None
    open_since: int = -1


class History:
    """One store, what was written to it, and what its files have said of horizons."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.desk = Desk()
        self.store = self.opened()
        segment_bytes = self.chance.choice([1024, 3000, 1 << 20])
        delay_ms = self.chance.choice([0, 60_000])
        own = {"segment.bytes": str(segment_bytes), "file.delete.delay.ms": str(delay_ms)}
        self.store.create_topic("t", 1, SETTINGS | own)
        self.rows: list[Written] = []
        self.senders = {number: Sender() for number in range(11, 15)}  # the last two send transactions
        self.writer_of: dict[int, int] = {}  # offset -> producer id of a transactional record
        self.aborted: set[int] = set()
        self.horizons: dict[int, int] = {}  # offset of a tombstone -> before when it may not go
        self.gone: set[int] = set()  # offsets that are not read any more
        self.end = 0

    def opened(self, mode: Literal["rw", "r"] = "rw") -> LogStore:
        store = self.desk.open(mode, cleaner_duty=1.0)
        store._cleaning.kit.make = Cleaning
        return store

    # --- steps ---

    def step(self) -> None:
        steps: list[tuple[Callable[[], None], int]] = [
            (self.append, 5),
            (self.send, 3),
            (self.send_in_transaction, 4),
            (self.end_transaction, 3),
            (self.repeat, 2),
            (self.clean_by_hand, 5),
            (self.wait, 4),
            (self.reopen, 3),
        ]
        (act,) = self.chance.choices([act for act, _ in steps], [weight for _, weight in steps])
        act()

    def fresh(self) -> list[tuple[bytes | None, bytes | None]]:
        return [
            (
                self.chance.choice(KEYS),
                None if self.chance.random() < 0.3 else b"%d-%d" % (self.end, number),
            )
            for number in range(self.chance.randint(1, 5))
        ]

    def note(self, base: int, rows: list[tuple[bytes | None, bytes | None]]) -> None:
        assert base == self.end
        now_ms = self.desk.clock.wall_ms()
        for number, (key, value) in enumerate(rows):
            self.rows.append(Written(base + number, now_ms, key, value))
        self.end = base + len(rows)

    def append(self) -> None:
        rows = self.fresh()
        self.note(self.store.partition("t", 0).append(rows).offset, rows)

    def send(self, *, transactional: bool = False) -> None:
        producer_id = self.chance.choice([13, 14] if transactional else [11, 12])
        sender, rows = self.senders[producer_id], self.fresh()
        data = encode_batch(
            rows,
            now_ms=self.desk.clock.wall_ms(),
            codec=self.chance.choice(["none", "gzip"]),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sender.sequence,
            transactional=transactional,
        )
        base = self.store.partition("t", 0).append_batch(data).offset
        if transactional:
            sender.open_since = base if sender.open_since < 0 else sender.open_since
            self.writer_of.update((base + number, producer_id) for number in range(len(rows)))
        sender.sequence += len(rows)
        sender.newest = (data, base)
        self.note(base, rows)

    def send_in_transaction(self) -> None:
        self.send(transactional=True)

    def end_transaction(self) -> None:
        for producer_id, sender in self.senders.items():
            if sender.open_since >= 0:
                commit = self.chance.random() < 0.5
                marker = self.store.partition("t", 0).end_transaction(producer_id, 0, commit=commit)
                if not commit:
                    self.aborted.update(
                        offset
                        for offset, writer in self.writer_of.items()
                        if writer == producer_id and offset >= sender.open_since
                    )
                sender.open_since = -1
                self.end = marker.offset + 1
                return

    def repeat(self) -> None:
        """A sent batch comes again: it is recognised, however often its records were cleaned away."""
        producer_id = self.chance.choice(list(self.senders))
        sender, log = self.senders[producer_id], self.store.partition("t", 0)
        if sender.newest is None:
            return
        data, base = sender.newest
        if producer_id > 12 and sender.open_since < 0:
            return  # its transaction is over: to send it again would begin another
        assert log.append_batch(data).offset == base
        gap = encode_batch(
            [(b"gap", b"")],
            now_ms=self.desk.clock.wall_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sender.sequence + 1,
            transactional=producer_id > 12,
        )
        with pytest.raises(OutOfOrderSequenceError):
            log.append_batch(gap)

    def small_map(self) -> None:
        kit = self.store._cleaning.kit
        kit.key_map_bytes = self.chance.choice([1 << 20, 1, 2 * ENTRY_BYTES + 3, 4 * ENTRY_BYTES + 12])

    def clean_by_hand(self) -> None:
        self.small_map()
        self.store.admin.compact("t", roll=self.chance.random() < 0.7)

    def wait(self) -> None:
        self.small_map()
        self.desk.run(self.store, self.chance.choice([100, 40_000, RETENTION_MS, 3 * RETENTION_MS]))

    def reopen(self) -> None:
        kind = self.chance.choice(["in order", "kill", "power loss"])
        if kind == "in order":
            self.store.close()
        else:
            self.store.abandon()
            fs = self.desk.fs
            self.desk.fs = fs.process_crash() if kind == "kill" else fs.crash(KeepNothing())
            self.desk.table = LockTable()
            if kind == "power loss":
                self.desk.live = MemoryLive()
                self.desk.clock.reboot(f"boot-{self.end}-{self.chance.random()}")
        for suffix in self.chance.sample(LOSSES, self.chance.choice([0, 0, 1, 3])):
            self.lose(suffix)
        self.store = self.opened()
        self.store.partition("t", 0).append([(b"a", b"again")])
        self.note(self.end, [(b"a", b"again")])

    def lose(self, suffix: str) -> None:
        fs = self.desk.fs
        if fs.stat("/s") and "t-0" in fs.listdir("/s"):
            for name in fs.listdir(FOLDER):
                if name.endswith(suffix):
                    fs.remove(f"{FOLDER}/{name}")
            fs.sync_dir(FOLDER)

    # --- comparisons ---

    def stable_end(self) -> int:
        return min(
            [sender.open_since for sender in self.senders.values() if sender.open_since >= 0] + [self.end]
        )

    def newest(self) -> dict[bytes | None, Written]:
        """The newest record of each key that a reader of committed records may see."""
        stable = self.stable_end()
        return {row.key: row for row in self.rows if row.offset < stable and row.offset not in self.aborted}

    def read(self, store: LogStore, isolation: Isolation, *, reverse: bool = False) -> list[Written]:
        log = store.partition("t", 0)
        found = log.records(log.log_start_offset, isolation=isolation, reverse=reverse)
        return [Written(record.offset, record.timestamp_ms, record.key, record.value) for record in found]

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        segments = self.store._registry.get("t").reader(0).segments.segments
        data = b"".join(bytes(segment.bytes_at(0, segment.size)) for segment in segments)
        return [(header, data[at : at + header.size]) for at, header in iter_headers(data)]

    def note_horizons(self) -> None:
        """A horizon that stands in a batch is not earlier than the tombstones' time and the retention allow."""
        stamped = {
            offset: header.base_timestamp
            for header, _ in self.batches()
            if header.has_delete_horizon and not header.is_control
            for offset in range(header.base_offset, header.next_offset)
        }
        earliest_ms = self.desk.clock.wall_ms() + RETENTION_MS  # where the next cleaning stamps it
        for row in self.rows:
            if row.value is None and row.offset not in self.gone:
                due_ms = self.horizons[row.offset] = stamped.get(row.offset, earliest_ms)
                assert due_ms >= row.timestamp_ms + RETENTION_MS

    def check(self) -> None:
        every, committed = (self.read(self.store, isolation) for isolation in ISOLATIONS)
        written = {row.offset: row for row in self.rows}
        assert every == [written[row.offset] for row in every], "as they were written, in order"
        assert [row.offset for row in every] == sorted({row.offset for row in every})
        stable = self.stable_end()
        assert committed == [row for row in every if row.offset < stable and row.offset not in self.aborted]
        there = {row.offset for row in every}
        assert {row.offset for row in self.rows if row.offset >= stable} <= there, "what is open stays"
        now_ms = self.desk.clock.wall_ms()
        for key, row in self.newest().items():
            if row.offset in there:
                continue
            assert row.value is None, f"the newest value of {key!r}, at {row.offset}, is gone"
            assert now_ms >= self.horizons[row.offset], f"the tombstone of {key!r} went before its time"
            older = [one for one in committed if one.key == key and one.offset < row.offset]
            assert older == [], f"{key!r} was deleted, and is back"
        self.gone = {row.offset for row in self.rows} - there
        self.note_horizons()
        with self.opened("r") as fresh:
            for store in (self.store, fresh):
                for isolation, wanted in zip(ISOLATIONS, (every, committed), strict=True):
                    assert self.read(store, isolation) == wanted
                    assert self.read(store, isolation, reverse=True) == wanted[::-1]

    # --- the end ---

    def finish(self, *, by_hand: bool) -> None:
        """Everything is ended and closed; then rounds without any write, until there is no more to remove."""
        while any(sender.open_since >= 0 for sender in self.senders.values()):
            self.end_transaction()
        self.store._cleaning.kit.key_map_bytes = 1 << 20
        self.store.admin.alter_topic("t", {"producer.id.expiration.ms": "100000"})
        self.store.admin.compact("t", roll=True)
        self.check()
        for _ in range(5):
            self.desk.run(self.store, 4 * RETENTION_MS)
            if by_hand:
                self.store.admin.compact("t")
            self.check()

    def check_bare(self) -> None:
        """Newest values alone, the markers of the transactions that they came in, and nothing of producers."""
        wanted = sorted(row for row in self.newest().values() if row.value is not None)
        assert self.read(self.store, "read_uncommitted") == wanted
        open_data: set[int] = set()
        for header, _ in self.batches():
            if header.is_control and header.records_count:
                assert header.producer_id in open_data, (
                    f"the marker at {header.base_offset} says nothing more"
                )
                open_data.discard(header.producer_id)
            elif header.records_count:
                if header.is_transactional:
                    open_data.add(header.producer_id)
            else:
                assert header.producer_id < 0, f"the batch at {header.base_offset} is of a forgotten producer"


@pytest.mark.parametrize("seed", range(12))
def test_rounds_of_cleaning_keep_what_counts_and_leave_nothing_else(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
        history.check()
    history.finish(by_hand=seed % 2 == 0)
    history.check_bare()
    history.store.close()
