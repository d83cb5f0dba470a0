"""Arrow record batches made by both twins as the buffers come: the same rows, or the same error in the same words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import LogStoreError
from logstore.format import arrow
from logstore.format.batch import encode_batch, stamp_log_append_time
from logstore.native import native_status
from tests.format.batches import CALM, row_lists
from tests.native.sections import sections
from tests.native.test_columns import HEADED, LARGE, NULLS, SMALL, batches_of, packed
from tests.native.test_decoding import HOSTILE
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.format.arrow")
PLAIN = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
Spans = Iterable[tuple[bytes, int, int | None]]


def given_by(
    twin: Any, spans: Spans, columns: pa.Schema, chunk_bytes: int, end: int | None, check: bool = True
) -> tuple[list[pa.RecordBatch], Any]:
    """All batches, each looked at once the next one is there, and the error that ended them."""
    builder = twin.TableBuilder(columns, "t", 3, check, 1 << 20, chunk_bytes, end)
    found: list[pa.RecordBatch] = []
    try:
        for buffer, start, last in spans:
            found.extend(builder.batches(buffer, start, last))
        found.extend(builder.rest())
        assert list(builder.rest()) == []
        assert builder.table().num_rows == 0
    except (LogStoreError, pa.ArrowInvalid) as error:
        return found, (type(error), str(error))
    for batch in found:
        batch.validate(full=True)
        assert batch.schema == columns
        assert batch.num_rows
    return found, None


def both(
    spans: Spans,
    columns: pa.Schema = PLAIN,
    chunk_bytes: int = 1 << 20,
    end: int | None = None,
) -> tuple[list[pa.RecordBatch], Any]:
    """The compiled twin's. Of a damaged buffer it may have given rows before the damage; Python's gives none."""
    spans = list(spans)
    (ours, our_error), (theirs, their_error) = (
        given_by(twin, spans, columns, chunk_bytes, end) for twin in (arrow, PYTHON)
    )
    assert our_error == their_error
    if our_error is None:
        assert pa.Table.from_batches(ours, columns).equals(pa.Table.from_batches(theirs, columns))
    return ours, our_error


@CALM
@given(
    lists=st.lists(row_lists, min_size=1, max_size=6),
    cuts=st.sets(st.integers(1, 5)),
    columns=st.sampled_from([PLAIN, arrow.schema(), arrow.schema(False)]),
    chunk_bytes=st.sampled_from([1, 50, 400, 1 << 20]),
    codec=st.sampled_from(["none", "none", "zstd"]),
    data=st.data(),
)
def test_any_rows_in_any_buffers(
    lists: list[Any], cuts: set[int], columns: pa.Schema, chunk_bytes: int, codec: Any, data: st.DataObject
) -> None:
    encoded, offset = [], 5
    for number, rows in enumerate(lists):
        batch = encode_batch(rows, now_ms=7, base_offset=offset, codec=codec)
        encoded.append(stamp_log_append_time(batch, 99) if number % 3 == 2 else batch)
        offset += len(rows) + 1
    buffers, last = [], 0
    for cut in [*sorted(cuts), len(encoded)]:
        buffers.append(b"".join(encoded[last:cut]))
        last = max(cut, last)
    start = data.draw(st.integers(0, offset + 1))
    end = data.draw(st.none() | st.integers(0, offset + 1))
    ours, error = both([(buffer, start, end) for buffer in buffers], columns, chunk_bytes, end)
    if error is not None:
        assert error[0] is pa.ArrowInvalid  # a time that does not fit microseconds
        return
    whole = arrow.to_table(b"".join(encoded), "t", 3, start_offset=start, end_offset=end)
    assert [value for batch in ours for value in batch.column("value").to_pylist()] == whole.column(
        "value"
    ).to_pylist()


@CALM
@given(section=sections(), count=st.integers(1, 4), base_ms=st.sampled_from([0, 1 << 62, -(1 << 63)]))
@pytest.mark.parametrize("columns", [PLAIN, arrow.schema()])
def test_any_fields_behind_sound_ones(columns: pa.Schema, section: bytes, count: int, base_ms: int) -> None:
    """What the compiled twin leaves to Python's begins in the middle of a buffer, and of a batch of rows."""
    sound = b"".join(batches_of([SMALL, LARGE]))
    odd = packed(section, count, 8192, base_offset=500, base_timestamp=base_ms)
    for chunk_bytes in (1, 1 << 20):
        both([(sound + odd, 0, None)], columns, chunk_bytes)
        both([(sound, 3, 60), (odd + sound, 25, None)], columns, chunk_bytes)


@pytest.mark.parametrize("harm", ["crc", "record", "name", "cut"])
@pytest.mark.parametrize("chunk_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("columns", [PLAIN, arrow.schema()])
def test_damage_is_told_in_the_same_words(columns: pa.Schema, chunk_bytes: int, harm: str) -> None:
    good = batches_of([LARGE, HEADED, NULLS])
    bad = bytearray(encode_batch(HEADED, now_ms=7, base_offset=500))
    if harm == "crc":
        bad[-1] ^= 1
    elif harm == "record":
        bad = bytearray(packed(bytes(bad[61:-1]), len(HEADED), 8000, base_offset=500))
    elif harm == "name":
        bad = bytearray(packed(bytes(bad[61:]).replace("ä".encode(), b"\xff\xfe"), len(HEADED), 8000))
    else:
        del bad[70:]
    spans = [(good[0], 0, None), (b"".join(good[1:]) + bytes(bad) + good[0], 0, None)]
    ours, error = both(spans, columns, chunk_bytes)
    assert (error is None) == (harm == "name" and columns is PLAIN)
    values = [value for rows in (LARGE, HEADED, NULLS) for _, value, *_ in rows]
    given = [value for batch in ours for value in batch.column("value").to_pylist()]
    assert given[: len(values)] == values[: len(given)]


@pytest.mark.parametrize("unit_ms", [(1 << 63) // 1000, (1 << 63) // 1000 + 1, -((1 << 63) // 1000) - 1])
def test_a_time_that_does_not_fit_the_column(unit_ms: int) -> None:
    buffer = packed(encode_batch([(None, b"v")], now_ms=0)[61:], 1, 0, base_timestamp=unit_ms)
    _, error = both([(buffer, 0, None)])
    assert (error is None) == (unit_ms == (1 << 63) // 1000)
    assert error is None or error[0] is pa.ArrowInvalid
    both([(buffer, 0, None)], arrow.schema())


def test_what_python_reads_stands_between_the_others() -> None:
    odd = packed(bytes.fromhex(HOSTILE["a null in two bytes"]), 1, 0, base_offset=10)
    others = batches_of([LARGE, LARGE, HEADED])
    for chunk_bytes in (1, 1 << 20):
        ours, _ = both(
            [(others[0] + odd + others[1], 0, None), (odd, 0, None), (others[2], 0, None)], PLAIN, chunk_bytes
        )
        assert sum(batch.num_rows for batch in ours) == 2 * len(LARGE) + len(HEADED) + 2


def test_a_batch_is_given_once_it_is_whole_and_goes_on_over_buffers() -> None:
    encoded = batches_of([[(b"%d" % number, b"x" * 100) for number in range(100)]] * 50)
    size = len(encoded[0])
    builder = arrow.TableBuilder(PLAIN, "t", 3, True, 1 << 20, 4 * size, 5000)
    given = builder.batches(b"".join(encoded[:10]), 0, None)
    first = next(given).num_rows
    found = [first, *(batch.num_rows for batch in given)]
    for at in range(10, 50, 10):
        found += [batch.num_rows for batch in builder.batches(b"".join(encoded[at : at + 10]), 0, None)]
    found += [batch.num_rows for batch in builder.rest()]
    assert sum(found) == 5000
    if native_status().compiled:
        assert first == 400
        assert set(found[:-1]) == {400}


def test_a_batch_that_is_kept_does_not_change_as_others_are_made() -> None:
    rows = [(b"k", b"%d" % number) for number in range(2000)]
    encoded = batches_of([rows[at : at + 50] for at in range(0, 2000, 50)])
    builder = arrow.TableBuilder(PLAIN, "t", 3, True, 1 << 20, 2000, None)
    kept = list(builder.batches(b"".join(encoded), 0, None)) + list(builder.rest())
    values = [value for batch in kept for value in batch.column("value").to_pylist()]
    assert values == [value for _, value in rows]
