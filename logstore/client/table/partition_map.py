"""``PartitionMap``: the newest record of each key of one partition, as far as it was read.

No I/O: whole batches go in. The work per record is done in C (``dict.update`` over columns); only tombstones
take a step of Python each. A map holds values, or only where they are: ``key -> (offset, value)`` or
``key -> offset``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress
from operator import is_
from typing import Any, NamedTuple

from logstore.errors import CorruptBatchError
from logstore.format.alike import split_alike
from logstore.format.batch import BatchHeader, check_crc, iter_headers, records_section
from logstore.format.record import decode_rows
from logstore.format.record_spans import key_column
from logstore.types import Buffer, Record

KEY_OVERHEAD_BYTES = 120
"""What a key costs in a map without values, beside its own bytes: its object, its share of the dictionary, the
offset's object. Measured on CPython 3.11, as that of the compaction's key map."""

_KEY = Record._fields.index("key")
_VALUE = Record._fields.index("value")
_OFFSET = Record._fields.index("offset")


class _Columns(NamedTuple):
    """``nulls``: numbers of the records without a value. ``values`` None: they were not asked for."""

    keys: Sequence[bytes | None]
    offsets: Sequence[int]
    values: Sequence[bytes | None] | None
    nulls: Sequence[int]


class PartitionMap:
    """``position``: the next offset to read; ``epoch``: of the last batch before it, -1 unknown; ``start``:
    records before it are gone (the log start offset, as far as known). ``complete_ms``: wall clock of a moment
    up to which nothing is missing here. ``absent``: offsets that were passed and hold no record any more."""

    __slots__ = ("absent", "complete_ms", "entries", "epoch", "key_bytes", "position", "start", "with_values")

    def __init__(self, *, with_values: bool, start: int = 0, complete_ms: int = 0) -> None:
        self.with_values = with_values
        self.entries: dict[bytes, Any] = {}
        self.position = self.start = start
        self.epoch = -1
        self.complete_ms = complete_ms
        self.absent = 0
        self.key_bytes = 0

    def copy(self) -> PartitionMap:
        """Another one with the same entries, which are only read."""
        made = PartitionMap(with_values=self.with_values, start=self.start, complete_ms=self.complete_ms)
        made.entries = self.entries.copy()
        made.position, made.epoch, made.key_bytes = self.position, self.epoch, self.key_bytes
        return made

    def offset_of(self, key: bytes) -> int | None:
        """Where the newest record of the key is."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        offset: int = entry[0] if self.with_values else entry
        return offset

    # --- in ---

    def apply(self, buffer: Buffer, next_offset: int, end_offset: int | None = None) -> None:
        """Take the whole batches that a fetch at ``position`` brought; ``next_offset``: where it says to read on.
        ``end_offset``: nothing from there on.

        ``CorruptBatchError`` and the other errors of decoding leave the map at the batch before.
        """
        before, present = self.position, 0
        for position, header in iter_headers(buffer):
            if end_offset is not None and header.base_offset >= end_offset:
                break
            if header.last_offset < self.position:
                continue
            check_crc(buffer, position, header)
            if header.is_control:
                present += header.last_offset_delta + 1 if header.records_count else 0
            elif header.records_count:
                present += self._take(buffer, position, header, end_offset)
            self.epoch = header.leader_epoch
            self.position = header.next_offset
        self.position = max(self.position, next_offset)
        if end_offset is not None:
            self.position = min(self.position, end_offset)
        self.absent += self.position - before - present

    def _take(self, buffer: Buffer, position: int, header: BatchHeader, end_offset: int | None) -> int:
        """The records of one batch; how many of them lie in the range."""
        section = records_section(buffer, position, header)
        columns = _decoded(section, header) if self.with_values else _keys_only(section, header)
        if columns.offsets[-1] > header.last_offset:
            raise CorruptBatchError(
                f"the batch at offset {header.base_offset} holds offset {columns.offsets[-1]}, its last one is "
                f"{header.last_offset}"
            )
        if header.base_offset < self.position or (
            end_offset is not None and header.last_offset >= end_offset
        ):
            columns = _clipped(columns, self.position, end_offset)
            if not columns.keys:
                return 0
        keys, offsets, values, nulls = columns
        entries: dict[Any, Any] = self.entries
        before = len(entries)
        entries.update(
            zip(keys, offsets if values is None else zip(offsets, values, strict=True), strict=True)
        )
        entries.pop(None, None)  # of a topic that takes records without a key
        if len(entries) > before:
            keyed: Sequence[Any] = keys if None not in keys else [key for key in keys if key is not None]
            self.key_bytes += (len(entries) - before) * sum(map(len, keyed)) // len(keyed)
        for number in nulls:
            key: Any = keys[number]
            if self.offset_of(key) == offsets[number]:
                self._remove(key)
        return len(keys)

    def _remove(self, key: Any) -> None:
        self.key_bytes -= self.key_bytes // len(self.entries)
        del self.entries[key]

    def forget(self, key: bytes, offset: int) -> None:
        """The record there is gone, and no newer one has come: it was erased."""
        if self.offset_of(key) == offset:
            self._remove(key)

    def raise_start(self, log_start_offset: int) -> None:
        """Records before it were deleted."""
        self.start = log_start_offset
        if self.with_values:
            self.entries = {key: entry for key, entry in self.entries.items() if entry[0] >= log_start_offset}
        else:
            self.entries = {key: entry for key, entry in self.entries.items() if entry >= log_start_offset}
        self.key_bytes = sum(map(len, self.entries))
        self.position = max(self.position, log_start_offset)

    # --- size ---

    def memory_bytes(self) -> int:
        """Of a map without values, about."""
        return self.key_bytes + len(self.entries) * KEY_OVERHEAD_BYTES

    def measure(self) -> int:
        """``memory_bytes`` with every key counted anew."""
        self.key_bytes = sum(map(len, self.entries))
        return self.memory_bytes()


def _decoded(section: bytes, header: BatchHeader) -> _Columns:
    count, base = header.records_count, header.base_offset
    alike = split_alike(section, count)
    if alike is not None:
        return _Columns(alike[0], range(base, base + count), alike[1], ())
    records: list[Any] = decode_rows(section, count, base, header.base_timestamp, "", 0, None)
    keys, values, offsets = ([record[field] for record in records] for field in (_KEY, _VALUE, _OFFSET))
    nulls: Sequence[int] = ()
    if None in values:
        nulls = list(compress(range(count), map(is_, values, [None] * count)))
    return _Columns(keys, offsets, values, nulls)


def _keys_only(section: bytes, header: BatchHeader) -> _Columns:
    column = key_column(section, header.records_count)
    base = header.base_offset
    offsets: Sequence[int] = [base + delta for delta in column.deltas]
    if type(column.deltas) is range:
        offsets = range(base, base + header.records_count)
    return _Columns(list(column.keys), offsets, None, column.nulls)


def _clipped(columns: _Columns, start_offset: int, end_offset: int | None) -> _Columns:
    keys, offsets, values, nulls = columns
    low = bisect_left(offsets, start_offset)
    high = len(offsets) if end_offset is None else bisect_left(offsets, end_offset)
    return _Columns(
        keys[low:high],
        offsets[low:high],
        None if values is None else values[low:high],
        [number - low for number in nulls if low <= number < high],
    )
