"""Batches to Arrow columns, without a Python loop over fields.

One short loop finds where records start; numpy then reads each field of all records at once, and keys and
values become views (Arrow's binary_view: length, prefix, buffer, offset) over the very bytes of the batches,
which one cast gathers. Many small batches cost little more than a large one: their sections are joined first.

numpy and pyarrow come with ``pip install 'logstore-engine[arrow]'`` and are imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from logstore.errors import CorruptBatchError, MissingExtraError
from logstore.format.batch import CODEC_MASK, HEADER_SIZE, BatchHeader, data_batches, records_section
from logstore.format.compression import MAX_DECOMPRESSED_BYTES
from logstore.format.payload_columns import Memory, Spans
from logstore.format.record import MIN_RECORD_BYTES
from logstore.format.varint import INT32_MAX, VARINT_MAX_BYTES, VARLONG_MAX_BYTES, read_raw, read_varint
from logstore.native import compiled
from logstore.types import Buffer

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["TABLE_BYTES", "TableBuilder", "schema", "to_table"]

Int64s: TypeAlias = "NDArray[np.int64]"
Bytes: TypeAlias = "NDArray[np.uint8]"

_CHUNK_BYTES = 4 * 1024 * 1024
"""Sections joined at a time, a chunk of the table: fewer chunks have fewer columns to make, larger ones leave the
processor's cache. (A larger section is a chunk of its own: 32-bit offsets allow 2 GiB.)"""

TABLE_BYTES: Final = 64 * 1024 * 1024
"""Records in a chunk of a table that is made of many fetches: large columns are cleared in huge pages."""

_WORTH_A_TRY = 16
"""So many records must be of equal length for the short cut to pay; else ``_STEPS`` go one by one."""
_STEPS = 256

_FAR = 1 << 40
"""Past any data."""
_LOWS = [_FAR if byte < 128 else (byte >> 1) - 62 for byte in range(256)]
_HIGHS = [byte << 6 if byte < 128 else _FAR for byte in range(256)]
"""What the first and second byte of a record's length add to its position, if there are two."""

_HEADERS_AT_ONCE = 32
"""Header positions that are read for all records together; records with more go on one by one."""


class _Fields(NamedTuple):
    """Every field of the records of one chunk, in columns."""

    keys: Spans
    values: Spans
    timestamp_deltas: Int64s
    offset_deltas: Int64s
    header_counts: Int64s
    header_names: Spans
    header_values: Spans


def _require_arrow() -> None:
    """Raise ``MissingExtraError`` unless numpy and pyarrow are there."""
    for package in ("numpy", "pyarrow"):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingExtraError(
                f"Arrow tables need the package {package}, which is not installed",
                hint="pip install 'logstore-engine[arrow]'",
            ) from error


@cache
def _header_fields() -> list[Any]:
    import pyarrow as pa

    return [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]


@cache
def schema(headers: bool = True) -> pa.Schema:
    """The columns of ``to_table``, which are Spark's Kafka source's. ``timestamp_type``: 0 create, 1 append.

    ``MissingExtraError`` without the extra ``arrow``.
    """
    _require_arrow()
    import pyarrow as pa

    columns = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("timestamp_type", pa.int32(), nullable=False),
    ]
    if headers:
        columns.append(pa.field("headers", pa.list_(pa.struct(_header_fields())), nullable=False))
    return pa.schema(columns)


def to_table(
    buffer: Buffer,
    topic: str,
    partition: int,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    check: bool = True,
    headers: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    chunk_bytes: int | None = None,
) -> pa.Table:
    """The records that ``decode_batches`` would give, as a table of ``schema(headers)``.

    Arguments and errors as there; without ``headers`` they are checked but not returned. ``chunk_bytes``: of records
    in a chunk of the table, 4 MiB if None. The table owns its memory: ``buffer`` may go.
    """
    columns = schema(headers)  # names the extra if it is not installed
    most = min(max_decompressed_bytes, INT32_MAX)
    builder = TableBuilder(columns, topic, partition, check, most, chunk_bytes or _CHUNK_BYTES)
    builder.add(buffer, start_offset, end_offset)
    return builder.table()


@compiled("format.columns")
class TableBuilder:
    """A table of a partition's records that is built of one buffer of whole batches after the other, or record batches
    of them as they come.

    ``columns``: those of ``schema``, by whatever names, timestamps in ms or us; headers by that name, if at all.
    ``chunk_bytes``: of records in a chunk of the table. ``end_offset``: where the last buffer will end, at most; None:
    there is one buffer.
    """

    READ_BYTES: Final = _CHUNK_BYTES
    """The size of buffers that costs least."""

    def __init__(
        self,
        columns: pa.Schema,
        topic: str,
        partition: int,
        check: bool,
        max_decompressed_bytes: int,
        chunk_bytes: int,
        end_offset: int | None = None,  # noqa: ARG002  # the compiled twin makes room for what is to come
    ) -> None:
        self._columns, self._topic, self._partition = columns, topic, partition
        self._check, self._chunk_bytes = check, chunk_bytes
        self._max_decompressed_bytes = max_decompressed_bytes
        self._chunks: list[pa.Table] = []

    def add(self, buffer: Buffer, start_offset: int, end_offset: int | None) -> None:
        """The records with start_offset <= offset < end_offset. After an error nothing of ``buffer`` is added."""
        batches = data_batches(buffer, start_offset, end_offset, self._check)
        self._chunks += [
            _chunk_table(sections, self._columns, self._topic, self._partition, start_offset, end_offset)
            for sections in _gathered(buffer, batches, self._max_decompressed_bytes, self._chunk_bytes)
        ]

    def batches(self, buffer: Buffer, start_offset: int, end_offset: int | None) -> Iterator[pa.RecordBatch]:
        """``add``, and of all that was added what need not wait for more, as record batches: each is made when it is
        asked for, and what was given is not in ``table``. After an error rows of ``buffer`` may have been given."""
        self.add(buffer, start_offset, end_offset)
        yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What was added and not given yet, as record batches."""
        chunks, self._chunks = self._chunks, []
        for chunk in chunks:
            yield from chunk.to_batches()

    def table(self) -> pa.Table:
        """All that was added; ``buffer``s may go. The last call."""
        import pyarrow as pa

        return pa.concat_tables(self._chunks) if self._chunks else self._columns.empty_table()


class _Sections(NamedTuple):
    """Batches, and where in ``data`` the records of each begin and end, decompressed."""

    found: list[tuple[int, BatchHeader]]
    data: Buffer
    bounds: list[tuple[int, int]]

    def as_bytes(self) -> tuple[bytes, list[tuple[int, int]]]:
        """``data`` and ``bounds``, of another buffer than bytes only what these batches take of it."""
        if type(self.data) is bytes:
            return self.data, self.bounds
        start, end = self.bounds[0][0], self.bounds[-1][1]
        return bytes(memoryview(self.data)[start:end]), [(at - start, to - start) for at, to in self.bounds]


def _gathered(
    buffer: Buffer, batches: Iterable[tuple[int, BatchHeader]], max_bytes: int, chunk_bytes: int
) -> Iterator[_Sections]:
    """The batches, ``chunk_bytes`` of records at a time. What is not compressed is read where it lies."""
    in_place = len(buffer) <= INT32_MAX
    found: list[tuple[int, BatchHeader]] = []
    sections: list[bytes] = []
    size = 0
    for position, header in batches:
        lies = in_place and not header.attributes & CODEC_MASK
        section = b"" if lies else records_section(buffer, position, header, max_bytes)
        more = header.size - HEADER_SIZE if lies else len(section)
        if found and (size + more > chunk_bytes or lies == bool(sections)):
            yield _sections(buffer, found, sections)
            found, sections, size = [], [], 0
        found.append((position, header))
        if not lies:
            sections.append(section)
        size += more
    if found:
        yield _sections(buffer, found, sections)


def _sections(buffer: Buffer, found: list[tuple[int, BatchHeader]], sections: list[bytes]) -> _Sections:
    if not sections:
        return _Sections(found, buffer, [(at + HEADER_SIZE, at + header.size) for at, header in found])
    ends = list(accumulate(map(len, sections)))
    return _Sections(found, b"".join(sections), list(pairwise([0, *ends])))


def _chunk_table(
    sections: _Sections,
    columns: pa.Schema,
    topic: str,
    partition: int,
    start_offset: int,
    end_offset: int | None,
) -> pa.Table:
    """One table of the batches in ``sections``."""
    import numpy as np
    import pyarrow as pa

    found = sections.found
    data, bounds = sections.as_bytes()
    starts: list[Int64s] = []
    for (at, end), (position, header) in zip(bounds, found, strict=True):
        _find_records(data, at, end, position, header, starts)
    fields = _read_fields(data, bounds[-1][1], np.concatenate(starts))
    counts = np.array([header.records_count for _, header in found], np.int64)
    offsets = _offsets(fields.offset_deltas, found, counts)
    times, appended = _timestamps(fields.timestamp_deltas, found, counts)

    keep = offsets >= start_offset
    if end_offset is not None:
        keep &= offsets < end_offset
    memory = Memory(data)
    lists = _header_lists(memory, fields, keep) if "headers" in columns.names else None
    keys, values = fields.keys, fields.values
    if not keep.all():
        keys, values = keys.where(keep), values.where(keep)
        offsets, times, appended = offsets[keep], times[keep], appended[keep]
    count = len(offsets)
    stamps = pa.array(times).view(pa.timestamp("ms", "UTC"))
    kind = columns.field(5).type
    arrays = [
        memory.binary(keys),
        memory.binary(values),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array(offsets),
        stamps if stamps.type == kind else stamps.cast(kind),
        pa.array(appended),
    ]
    return pa.table(arrays if lists is None else [*arrays, lists], schema=columns)


def _find_records(
    data: bytes, at: int, end: int, position: int, header: BatchHeader, starts: list[Int64s]
) -> None:
    """Append where each record of the section [at, end) starts, its length included."""
    import numpy as np

    left = header.records_count
    possible = left * MIN_RECORD_BYTES <= end - at  # bounds ``starts`` before they grow
    try:
        while possible and left and at < end:
            run, stride = _equal_records(data, at, end) if left >= _WORTH_A_TRY else (0, 0)
            if run:
                run = min(run, left)
                after = at + run * stride
                starts.append(np.arange(at, after, stride, dtype=np.int64))
                at = after
                left -= run
            if run < _WORTH_A_TRY:
                steps = min(left, _STEPS)
                found: list[int] = []
                after = _long_steps(data, at, steps, found)
                if after >= _FAR:
                    found.clear()
                    after = _step_records(data, at, steps, found)
                at = after
                starts.append(np.array(found, np.int64))
                left -= steps
    except IndexError:
        at = len(data)
    if at != end or left:
        raise CorruptBatchError(
            f"the {header.records_count} records of the batch at byte {position} (offset "
            f"{header.base_offset}) do not fill its records section",
            position=position,
        )


def _equal_records(data: bytes, at: int, end: int) -> tuple[int, int]:
    """How many records from ``at`` on have the same length, if it takes two bytes, and their distance."""
    low, high = data[at], data[at + 1]
    if low < 128 or high > 127:
        return 0, 0
    stride = (low >> 1) + (high << 6) - 62
    lows, highs = data[at:end:stride], data[at + 1 : end : stride]
    equal_lows = len(lows) - len(lows.lstrip(lows[:1]))
    return min(equal_lows, len(highs) - len(highs.lstrip(highs[:1]))), stride


def _long_steps(data: bytes, at: int, count: int, starts: list[int]) -> int:
    """``_step_records`` of records whose lengths take two bytes, by table; ``_FAR`` or more if one's do not."""
    found, lows, highs = starts.append, _LOWS, _HIGHS
    try:
        for _ in range(count):
            found(at)
            at += lows[data[at]] + highs[data[at + 1]]
    except IndexError:
        return _FAR
    return at


def _step_records(data: bytes, at: int, count: int, starts: list[int]) -> int:
    """From record to record by their lengths; returns where the last ends. ``IndexError`` past the data."""
    found = starts.append
    for _ in range(count):
        found(at)
        raw = data[at]
        if raw < 128:
            at += 1 + (raw >> 1)
        else:
            high = data[at + 1]
            if high < 128:
                at += (raw >> 1) + (high << 6) - 62
            else:
                raw, at = read_raw(data, at, VARINT_MAX_BYTES)
                at += raw >> 1
    return at


class _Cursor:
    """Reads one field of every record at a time: ``at`` is where each record's next field starts."""

    def __init__(self, data: Bytes, at: Int64s, ends: Int64s) -> None:
        self.data = data
        self.at = at
        self.ends = ends

    def varints(self, max_bytes: int = VARINT_MAX_BYTES) -> Int64s:
        """The next integer of every record, zigzag undone."""
        import numpy as np

        if (self.at >= self.ends).any():
            raise self.corrupt("a record is longer than its length says")
        first = self.data[self.at]
        if not len(first) or first.max() < 0x80:
            self.at = self.at + 1
            return ((first >> 1).view(np.int8) ^ -(first & 1).view(np.int8)).astype(np.int64)
        second = self.data.take(self.at + 1, mode="clip")
        more = first >> 7
        second *= more
        if second.max() < 0x80:
            self.at = self.at + more + 1
            short = (second.astype(np.uint16) << 7) | (first & 0x7F)
            return ((short >> 1).view(np.int16) ^ -(short & 1).view(np.int16)).astype(np.int64)
        return self._long_varints(first, max_bytes)

    def _long_varints(self, first: Bytes, max_bytes: int) -> Int64s:
        """``varints`` of any width, from their first bytes on."""
        import numpy as np

        raw = first.astype(np.uint64)
        self.at = self.at + 1
        (longer,) = np.nonzero(first & 0x80)
        shift = 7
        while len(longer):
            if shift == 7 * max_bytes:
                raise self.corrupt("an integer has too many bits")
            byte = self.data.take(self.at[longer], mode="clip")
            raw[longer] += (byte.astype(np.uint64) << np.uint64(shift)) - np.uint64(1 << shift)
            self.at[longer] += 1
            if shift == 63 and (byte > 1).any():
                raise self.corrupt("an integer has too many bits")
            longer = longer[byte > 0x7F]
            shift += 7
        if max_bytes == VARINT_MAX_BYTES and (raw >> np.uint64(32)).any():
            raise self.corrupt("an integer has too many bits")
        value: Int64s = (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)
        return value

    def payloads(self, nullable: bool = True) -> Spans:
        """The next length and bytes of every record."""
        import numpy as np

        lengths = self.varints()
        if (lengths < (-1 if nullable else 0)).any():
            raise self.corrupt("a length is negative")
        starts = self.at
        self.at = starts + np.maximum(lengths, 0)
        if (self.at > self.ends).any():
            raise self.corrupt("a payload is longer than its record")
        return Spans(starts, lengths)

    @staticmethod
    def corrupt(why: str) -> CorruptBatchError:
        return CorruptBatchError(f"the records section of a batch is damaged: {why}")


def _read_fields(data: bytes, end: int, starts: Int64s) -> _Fields:
    import numpy as np

    # Until its length is known, a record may not reach past the sections.
    limits = np.full_like(starts, end)
    cursor = _Cursor(np.frombuffer(data, np.uint8), starts, limits)
    lengths = cursor.varints()
    if (lengths < MIN_RECORD_BYTES - 1).any():
        raise cursor.corrupt("a record is too short for its fields")
    cursor.ends = cursor.at + lengths
    cursor.at = cursor.at + 1  # the attributes, which carry nothing yet
    timestamp_deltas = cursor.varints(VARLONG_MAX_BYTES)
    offset_deltas = cursor.varints()
    keys = cursor.payloads()
    values = cursor.payloads()
    header_counts = cursor.varints()
    if (header_counts < 0).any() or (header_counts > cursor.ends - cursor.at).any():
        raise cursor.corrupt("a count of headers is impossible")
    names, header_values = _read_headers(cursor, data, header_counts)
    if (cursor.at != cursor.ends).any():
        raise cursor.corrupt("a record is shorter than its length says")
    return _Fields(keys, values, timestamp_deltas, offset_deltas, header_counts, names, header_values)


def _read_headers(cursor: _Cursor, data: bytes, counts: Int64s) -> tuple[Spans, Spans]:
    """Names and values of all headers in the order of the records; leaves ``cursor.at`` after them."""
    import numpy as np

    total = int(counts.sum())
    names = Spans(np.zeros(total, np.int64), np.zeros(total, np.int64))
    values = Spans(np.zeros(total, np.int64), np.zeros(total, np.int64))
    if not total:
        return names, values
    firsts = np.cumsum(counts) - counts
    (rows,) = np.nonzero(counts)
    level = 0
    while len(rows) and level < _HEADERS_AT_ONCE:
        some = _Cursor(cursor.data, cursor.at[rows], cursor.ends[rows])
        places = firsts[rows] + level
        names.starts[places], names.lengths[places] = some.payloads(nullable=False)
        values.starts[places], values.lengths[places] = some.payloads()
        cursor.at[rows] = some.at
        level += 1
        rows = rows[counts[rows] > level]
    for row in rows.tolist():
        at, end = int(cursor.at[row]), int(cursor.ends[row])
        for place in range(int(firsts[row]) + level, int(firsts[row] + counts[row])):
            for spans, lowest in ((names, 0), (values, -1)):
                length, at = read_varint(data, at)
                spans.starts[place], spans.lengths[place] = at, length
                at += max(length, 0)
                if length < lowest or at > end:
                    raise cursor.corrupt("a header is longer than its record")
        cursor.at[row] = at
    return names, values


def _offsets(deltas: Int64s, found: list[tuple[int, BatchHeader]], counts: Int64s) -> Int64s:
    import numpy as np

    bases = np.array([header.base_offset for _, header in found], np.int64)
    most = np.array([header.last_offset_delta for _, header in found], np.int64)
    grows = np.ones(len(deltas), np.bool_)
    grows[1:] = deltas[1:] > deltas[:-1]
    grows[np.cumsum(counts) - counts] = True  # a batch starts anew
    if not grows.all() or (deltas < 0).any() or (deltas > np.repeat(most, counts)).any():
        raise _Cursor.corrupt("its offsets do not grow, or pass the batch's last offset")
    return np.repeat(bases, counts) + deltas


def _timestamps(
    deltas: Int64s, found: list[tuple[int, BatchHeader]], counts: Int64s
) -> tuple[Int64s, NDArray[np.int32]]:
    """Timestamps in ms and their types (0 create, 1 append)."""
    import numpy as np

    kinds = np.array([header.is_log_append_time for _, header in found], np.int32)
    bases = np.array(
        [h.max_timestamp if h.is_log_append_time else h.base_timestamp for _, h in found], np.int64
    )
    appended = np.repeat(kinds, counts)
    base = np.repeat(bases, counts)
    deltas = np.where(appended, 0, deltas)
    times = base + deltas
    if (((base ^ times) & (deltas ^ times)) < 0).any():
        raise _Cursor.corrupt("a timestamp does not fit 64 bits")
    return times, appended


def _header_lists(memory: Memory, fields: _Fields, keep: NDArray[np.bool_]) -> pa.Array:
    """The column of headers of the records to keep."""
    import numpy as np
    import pyarrow as pa

    counts, names, values = fields.header_counts, fields.header_names, fields.header_values
    if not keep.all():
        keep_headers = np.repeat(keep, counts)
        counts, names, values = counts[keep], names.where(keep_headers), values.where(keep_headers)
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    try:
        texts = memory.binary(names).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptBatchError(f"a header's name is not UTF-8: {error}") from None
    structs = pa.StructArray.from_arrays([texts, memory.binary(values)], fields=_header_fields())
    return pa.ListArray.from_arrays(pa.array(ends), structs, type=schema().field("headers").type)
