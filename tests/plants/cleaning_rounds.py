"""Kind (c): histories of several cleanings, with key maps that fill within a batch, markers and aborted data."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from logstore.format.batch import BatchHeader, iter_headers
from logstore.log.cleaning import compaction
from logstore.log.cleaning.cleaning import Cleaning
from logstore.log.cleaning.compaction import AbortedRanges, Compaction
from logstore.log.cleaning.key_offsets import ENTRY_BYTES, KeyOffsets
from logstore.log.owned_log import OwnedLog
from tests.log.cleanings import RETENTION_MS
from tests.log.test_cleaning_machine import CleaningMachine, Reader
from tests.plants.hunts import seeded
from tests.plants.plant import Patch, plant

ROUNDS = 3
KEYS = [b"a", b"b", b"c", b"dd"]


def rounds(seed: int) -> None:
    """Appends, transactions, rolls and restarts between cleanings of all kinds, against a plain list; at the end all
    that may go has gone."""
    source = random.Random(seed)
    machine = CleaningMachine()
    machine.begin(segment_bytes=source.choice([200, 1000, 1 << 20]), largest=1 << 30)
    for _ in range(ROUNDS):
        for _ in range(source.randrange(1, 6)):
            _write(machine, source)
        _clean(
            machine,
            passed_ms=source.choice([0, RETENTION_MS - 1, RETENTION_MS, 5 * RETENTION_MS]),
            map_bytes=source.choice([1 << 20, 2 * ENTRY_BYTES + 10, 3 * ENTRY_BYTES + 20, 1]),
        )
        if source.random() < 0.4:
            machine.crash()
            machine.every_offset_is_a_valid_start()
    while machine.open:
        machine.end(commit=source.random() < 0.5)
    for _ in range(4):  # a tombstone goes, then the marker behind it gets its time, then that goes
        _clean(machine, passed_ms=5 * RETENTION_MS, map_bytes=1 << 20)
    _check_nothing_is_left(machine)


def _write(machine: CleaningMachine, source: random.Random) -> None:
    drawn = source.random()
    if drawn < 0.4:
        machine.append(
            batches=[
                [source.choice(KEYS) for _ in range(source.randrange(1, 5))]
                for _ in range(source.randrange(1, 4))
            ],
            tombstones=set(source.sample(range(4), source.choice((0, 1, 1, 2)))),
            codec=source.choice(["none", "none", "gzip"]),
        )
    elif drawn < 0.65:
        machine.append_in_transaction(
            producer_id=source.choice((1, 2)),
            keys=[source.choice(KEYS) for _ in range(source.randrange(1, 4))],
        )
    elif drawn < 0.9 and machine.open:
        machine.end(commit=source.random() < 0.5)
    else:
        machine.roll()


def _clean(machine: CleaningMachine, *, passed_ms: int, map_bytes: int) -> None:
    for _ in range(40):  # until it has come to the end: a small map takes some cleanings
        before = machine.cleaned_to
        machine.clean(passed_ms=passed_ms, map_bytes=map_bytes, delay_s=0.0, steps=100_000, roll=True)
        assert machine.running is None
        machine.every_offset_is_a_valid_start()
        passed_ms = 0
        if machine.cleaned_to == before:
            return


def _check_nothing_is_left(machine: CleaningMachine) -> None:
    """Of each key its last value; no tombstone, no aborted record; no marker of a transaction that has no data."""
    log: OwnedLog = machine.log
    kept: dict[int, bytes | None] = {}
    at, end = 0, log.log_end_offset
    headers: list[BatchHeader] = []
    while at < end and (chunk := log.read(at, 1 << 20, end)) is not None:
        headers += [header for _, header in iter_headers(bytes(chunk.data))]
        at = chunk.next_offset
    reader = Reader(log, 0)
    while reader.position < end:
        reader.read(end, 1 << 20)
    known = {row.offset: row for row in machine.appended}
    kept = {offset: pair[1] for offset, pair in reader.seen.items() if offset in known}
    last = {row.key: row for row in machine.appended if row.offset not in machine.aborted}
    wanted = {row.offset: row.value for row in last.values() if row.value is not None}
    assert kept == wanted, f"kept {kept}, wanted {wanted}"
    with_data = {
        header.producer_id for header in headers if header.is_transactional and not header.is_control
    }
    markers = [header for header in headers if header.is_control and header.records_count]
    assert all(header.producer_id in with_data for header in markers), f"markers are left over: {markers}"


@plant(
    "map that filled within a batch",
    "a key map that fills within a batch says that it holds the whole batch",
    seeded(rounds),
    5,
)
def _(patch: Patch) -> None:
    add = KeyOffsets.add

    def planted(self: KeyOffsets, keys: Any, offsets: Any, next_offset: int, nulls: Any = ()) -> bool:
        fitted = add(self, keys, offsets, next_offset, nulls)
        self.end_offset = next_offset
        return fitted

    patch.setattr(KeyOffsets, "add", planted)


@plant("horizon set anew", "each cleaning gives a tombstone another time to wait", seeded(rounds), 5)
def _(patch: Patch) -> None:
    horizons = Compaction._horizons

    def planted(self: Compaction, header: BatchHeader, stays: bool, whole: bool) -> Any:
        if not stays:
            return horizons(self, header, stays, whole)
        return compaction._Horizons(-1, self._new_horizon())

    patch.setattr(Compaction, "_horizons", planted)
    patch.setattr(Compaction, "_due", lambda self, header: False)


@plant("horizon not written", "a tombstone's time to wait is counted and not stored", seeded(rounds), 5)
def _(patch: Patch) -> None:
    rewritten = compaction._rewritten
    patch.setattr(compaction, "_rewritten", lambda *arguments: rewritten(*arguments[:-1], None))


@plant("any time taken for a horizon", "a batch's time counts as its tombstones' horizon", seeded(rounds), 5)
def _(patch: Patch) -> None:
    patch.setattr(BatchHeader, "has_delete_horizon", property(lambda header: header.records_count > 0))


@plant("markers for ever", "a marker stays although its transaction has no data left", seeded(rounds), 5)
def _(patch: Patch) -> None:
    control = Compaction._control

    def planted(self: Compaction, header: BatchHeader, data: memoryview, keep: Any) -> Any:
        self._with_data.add(header.producer_id)
        return control(self, header, data, keep)

    patch.setattr(Compaction, "_control", planted)


@plant("aborted data for ever", "aborted records stay where nothing newer has their keys", seeded(rounds), 5)
def _(patch: Patch) -> None:
    patch.setattr(AbortedRanges, "covers", lambda self, header: False)


@plant("tombstones only in whole batches", "a tombstone among values never goes", seeded(rounds), 5)
def _(patch: Patch) -> None:
    due = Compaction._due
    patch.setattr(Compaction, "_due", lambda self, header: header.records_count == 1 and due(self, header))


@plant(
    "cleaned further than the map",
    "a cleaning says that it came to the end of its segments",
    seeded(rounds),
    5,
)
def _(patch: Patch) -> None:
    step = Cleaning.step

    def planted(self: Cleaning, seconds: float) -> Any:
        result = step(self, seconds)
        if result is None:
            return None
        return replace(result, cleaned_to=max(result.cleaned_to, self._log.segments.segments[-1].base_offset))

    patch.setattr(Cleaning, "step", planted)
