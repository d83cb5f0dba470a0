"""A Hypothesis state machine: tables against a dict, with compaction, transactions, restarts, damaged snapshots.

The store lies on the file system that is a dict, under a clock moved by hand, so that tombstones come of age. Four
tables are compared: one with values in memory, one with values on disk, one that starts from its snapshot after
every restart, and one that looks rarely, so that it may have missed tombstones that are gone by now.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logstore.client.table.table import KeyTable
from logstore.client.table.view import TableView
from logstore.errors import CompactedAwayError
from logstore.format.batch import encode_batch
from logstore.seams.clock import ManualClock
from logstore.seams.fs import read_file, replace_file
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore

PARTITIONS = 2
DELETE_RETENTION_MS = 10_000
SNAPSHOT = "/store/table.snapshot"
KEYS = st.sampled_from([b"a", b"b", b"c", b"dd", b""])
ROWS = st.lists(st.tuples(KEYS, st.sampled_from([b"", b"1", b"2", b"33", None])), min_size=1, max_size=6)
partitions = st.integers(0, PARTITIONS - 1)


class Appended(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


def former(
    table: KeyTable[bytes], when: dict[int, int]
) -> tuple[TableView[bytes] | None, CompactedAwayError | None]:
    try:
        return table.as_of(when), None
    except CompactedAwayError as error:
        return None, error


class TableMachine(RuleBasedStateMachine):
    """``log``: what each partition was given and was committed. A key's partition is in its name here."""

    @initialize(segment_bytes=st.sampled_from(["1024", "1073741824"]))
    def begin(self, segment_bytes: str) -> None:
        self.fs = MemoryFileSystem()
        self.clock = ManualClock()
        self.log: list[list[Appended]] = [[] for _ in range(PARTITIONS)]
        self.ends = [0] * PARTITIONS
        self.epoch = 0
        self.store = self.open_store()
        self.store.create_topic(
            "t",
            PARTITIONS,
            {
                "cleanup.policy": "compact",
                "segment.bytes": segment_bytes,
                "delete.retention.ms": str(DELETE_RETENTION_MS),
                "max.message.bytes": "290",
            },
        )
        self.open_tables()

    def open_store(self) -> LogStore:
        return LogStore("/store", fs=self.fs, clock=self.clock, threads=False)

    def open_tables(self) -> None:
        self.kept = self.table()
        self.on_disk = self.table(max_memory_bytes=1 << 20)
        self.lasting = self.table(snapshot=SNAPSHOT)
        self.rare = self.table()

    def table(self, **settings: Any) -> KeyTable[bytes]:
        table: KeyTable[bytes] = self.store.topic("t").table(fs=self.fs, **settings)
        return table

    # --- what happens ---

    @rule(partition=partitions, rows=ROWS)
    def append(self, partition: int, rows: list[tuple[bytes, bytes | None]]) -> None:
        rows = [(b"%d%b" % (partition, key), value) for key, value in rows]
        base = self.store.partition("t", partition).append(rows).offset
        self.note(partition, base, rows)

    def note(self, partition: int, base: int, rows: list[tuple[bytes, bytes | None]]) -> None:
        self.log[partition] += [Appended(base + at, *row) for at, row in enumerate(rows)]
        self.ends[partition] = base + len(rows)

    @rule(partition=partitions, rows=ROWS, commit=st.booleans())
    def transaction(self, partition: int, rows: list[tuple[bytes, bytes | None]], commit: bool) -> None:
        rows = [(b"%d%b" % (partition, key), value) for key, value in rows]
        batch = encode_batch(
            rows,
            now_ms=self.clock.wall_ms(),
            producer_id=1,
            producer_epoch=self.epoch,
            base_sequence=0,
            transactional=True,
        )
        log = self.store.partition("t", partition)
        base = log.append_batch(batch).offset
        before = dict(self.kept.items())
        assert before == self.expected(), "an open transaction shows nothing"
        marker = log.end_transaction(1, self.epoch, commit=commit).offset
        if commit:
            self.note(partition, base, rows)
        self.ends[partition] = marker + 1
        self.epoch += 1

    @rule(roll=st.booleans())
    def compact(self, roll: bool) -> None:
        self.store.admin.compact("t", roll=roll)

    @rule(milliseconds=st.sampled_from([1, 5_000, DELETE_RETENTION_MS]))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule(partition=partitions, key=KEYS)
    def delete_and_forget(self, partition: int, key: bytes) -> None:
        """The tombstone is gone before those that look rarely have seen it."""
        self.append(partition, [(key, None)])
        self.compact(roll=True)
        self.clock.advance(DELETE_RETENTION_MS)
        self.compact(roll=True)

    @rule(save=st.booleans())
    def restart(self, save: bool) -> None:
        """``save`` False: the process is killed, the snapshot stays what it was."""
        if save:
            self.store.close()
        else:
            self.store.abandon()
        self.store = self.open_store()
        self.open_tables()
        assert self.lasting == self.expected()

    @rule(place=st.floats(0, 0.999), cut=st.booleans())
    def damage_the_snapshot(self, place: float, cut: bool) -> None:
        self.lasting.save()
        data = bytearray(read_file(self.fs, SNAPSHOT))
        at = int(place * len(data))
        data[at] ^= 0x55
        replace_file(self.fs, SNAPSHOT, bytes(data[:at] if cut else data))
        with self.table(snapshot=SNAPSHOT) as again:
            assert again == self.expected()

    @rule()
    def look_again_after_long(self) -> None:
        assert self.rare == self.expected()

    @rule(share=st.tuples(st.floats(0, 1), st.floats(0, 1)), disk=st.booleans())
    def as_of(self, share: tuple[float, float], disk: bool) -> None:
        when = {at: int(part * self.ends[at]) for at, part in enumerate(share)}
        table = self.on_disk if disk else self.kept
        view, error = former(table, when)
        if error is not None:
            assert when[error.partition] == error.offset < error.exact_from <= self.ends[error.partition]
            with pytest.raises(CompactedAwayError) as again:
                table.as_of(self.ends_with(error.partition, error.exact_from - 1))
            assert again.value.exact_from == error.exact_from
            when = self.ends_with(error.partition, error.exact_from)
            view = table.as_of(when)
        assert view is not None
        assert view.positions == when
        assert dict(view.items()) == self.expected(when)

    def ends_with(self, partition: int, offset: int) -> dict[int, int]:
        return {**dict(enumerate(self.ends)), partition: offset}

    # --- what must hold ---

    def expected(self, when: dict[int, int] | None = None) -> dict[bytes, bytes]:
        found: dict[bytes, bytes | None] = {}
        for partition, log in enumerate(self.log):
            found.update({row.key: row.value for row in log if when is None or row.offset < when[partition]})
        return {key: value for key, value in found.items() if value is not None}

    @invariant()
    def tables_agree(self) -> None:
        expected = self.expected()
        for table in (self.kept, self.on_disk):
            assert dict(table.items()) == expected
            assert len(table) == len(expected)
            assert set(table) == set(expected)
            assert {key: table[key] for key in expected} == expected
            assert table.positions == dict(enumerate(self.ends))
        for key in expected:
            partition, offset = self.kept.place(key)
            assert self.on_disk.place(key) == (partition, offset)
            assert Appended(offset, key, expected[key]) in self.log[partition]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(derandomize=True, deadline=None, max_examples=40, stateful_step_count=25)
