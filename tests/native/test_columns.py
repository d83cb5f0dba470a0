"""Arrow tables made by both twins: equal ones, or the same error in the same words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import LogStoreError
from logstore.format import arrow
from logstore.format.batch import decode_batches, encode_batch, pack_batch, read_header, stamp_log_append_time
from logstore.native import native_status
from tests.format.batches import CALM, row_lists
from tests.native.sections import sections
from tests.native.test_decoding import HOSTILE
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.format.arrow")
HEADER = read_header(encode_batch([(None, None)], now_ms=9))


def both(buffer: Any, **settings: Any) -> Any:
    """The table, or the error's class and words."""
    outcomes: list[Any] = []
    for twin in (arrow, PYTHON):
        try:
            table = twin.to_table(buffer, "t", 3, **settings)
            table.validate(full=True)
            outcomes.append(table)
        except LogStoreError as error:
            outcomes.append((type(error), str(error)))
    if isinstance(outcomes[0], tuple) or isinstance(outcomes[1], tuple):
        assert outcomes[0] == outcomes[1]
    else:
        assert outcomes[0].schema == outcomes[1].schema
        assert outcomes[0].equals(outcomes[1])
    return outcomes[0]


@CALM
@given(lists=st.lists(row_lists, min_size=1, max_size=3), data=st.data())
def test_any_rows(lists: list[Any], data: st.DataObject) -> None:
    batches, offset = [], 5
    for rows in lists:
        codec = data.draw(st.sampled_from(["none", "none", "zstd"]))
        batch = encode_batch(rows, now_ms=7, base_offset=offset, codec=codec)
        offset += len(rows) + 1
        batches.append(stamp_log_append_time(batch, 99) if data.draw(st.booleans()) else batch)
    buffer = b"".join(batches)
    start = data.draw(st.integers(0, offset + 1))
    end = data.draw(st.none() | st.integers(0, offset + 1))
    table = both(buffer, start_offset=start, end_offset=end)
    records = decode_batches(buffer, "t", 3, start_offset=start, end_offset=end)
    assert table.column("offset").to_pylist() == [record.offset for record in records]
    assert table.column("value").to_pylist() == [record.value for record in records]
    for other in (bytearray(buffer), memoryview(b"x" + buffer)[1:]):
        assert both(other, start_offset=start, end_offset=end, headers=False).equals(
            table.drop_columns(["headers"])
        )


def packed(section: bytes, count: int, last_delta: int, **fields: Any) -> bytes:
    header = HEADER._replace(records_count=count, last_offset_delta=last_delta, **fields)
    return pack_batch(header, section)


@CALM
@given(
    section=sections(),
    count=st.integers(1, 4),
    base_ms=st.sampled_from([0, (1 << 63) - 2, -(1 << 63)]),
    headers=st.booleans(),
)
def test_any_fields(section: bytes, count: int, base_ms: int, headers: bool) -> None:
    both(packed(section, count, 8192, base_timestamp=base_ms), headers=headers)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("count", [1, 2, 1 << 30])
def test_hostile_sections(name: str, count: int) -> None:
    """A null whose length takes two bytes is read by the Python twin as columns, and refused as records."""
    found = both(packed(bytes.fromhex(HOSTILE[name]), count, (1 << 31) - 2))
    assert isinstance(found, tuple) or name == "a null in two bytes"


def test_offsets_at_the_end_of_64_bits() -> None:
    last = (1 << 63) - 1
    buffer = encode_batch([(None, b"a"), (None, b"b")], now_ms=7, base_offset=last - 1)
    for end in (None, last, last - 1, 1 << 63, 1 << 70):
        both(buffer, end_offset=end)
        both(buffer, start_offset=last, end_offset=end)
    both(buffer, start_offset=1 << 63)
    both(buffer, start_offset=-(1 << 70))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 3000])
def test_nulls_of_every_kind(count: int) -> None:
    rows: list[Any] = [
        (
            None if number % 3 else b"k%d" % number,
            None if number % 8 == 7 else b"",
            [("h", None), ("é", b"x" * (number % 20))][: number % 4],
        )
        for number in range(count)
    ]
    both(encode_batch(rows, now_ms=7))
    both(encode_batch([(None, None)] * count, now_ms=7))
    both(encode_batch([(None, None, [("h", None)])] * count, now_ms=7))


def built(buffers: list[bytes], *, chunk_bytes: int = 1 << 26, end: int | None = None) -> list[Any]:
    """The same table of both builders."""
    tables = []
    for twin in (arrow, PYTHON):
        builder = twin.TableBuilder(twin.schema(), "t", 3, True, 1 << 30, chunk_bytes, end)
        for buffer in buffers:
            builder.add(buffer, 0, None)
        table = builder.table()
        table.validate(full=True)
        tables.append(table)
    assert tables[0].schema == tables[1].schema
    assert tables[0].equals(tables[1])
    return tables


def batches_of(lists: list[list[Any]], *, gap: int = 0) -> list[bytes]:
    found, offset = [], 0
    for rows in lists:
        found.append(encode_batch(rows, now_ms=7, base_offset=offset))
        offset += len(rows) + gap
    return found


@CALM
@given(
    lists=st.lists(row_lists, min_size=1, max_size=6),
    gap=st.sampled_from([0, 1, 1 << 40]),
    end=st.sampled_from([None, 0, 1, 20, 1 << 20, (1 << 63) - 1, 1 << 70]),
    chunk_bytes=st.sampled_from([1, 50, 400, 1 << 26]),
)
def test_buffers_one_after_the_other(lists: list[Any], gap: int, end: int | None, chunk_bytes: int) -> None:
    """Whatever is expected of them: what comes later may be larger, have the first key, null or header."""
    batches = [
        stamp_log_append_time(batch, 99) if number % 3 == 2 else batch
        for number, batch in enumerate(batches_of(lists, gap=gap))
    ]
    built(batches, chunk_bytes=chunk_bytes, end=end)
    assert built([b"".join(batches)])[0].equals(built(batches)[0])


SMALL: list[Any] = [(None, b"v")] * 20
LARGE: list[Any] = [(b"key %d" % number, b"x" * (300 * number % 7000)) for number in range(50)]
HEADED: list[Any] = [(b"k", None, [("name", b"y" * number), ("ä", None)]) for number in range(1, 90)]
NULLS: list[Any] = [(None, None)] * 21
KEYED: list[Any] = [(b"k%d" % number, b"") for number in range(13)]


@pytest.mark.parametrize("end", [None, 200, 1_000_000])
@pytest.mark.parametrize("first", [SMALL, LARGE, HEADED, NULLS, KEYED])
@pytest.mark.parametrize("second", [SMALL, LARGE, HEADED, NULLS, KEYED])
def test_what_comes_is_unlike_the_first_batch(first: list[Any], second: list[Any], end: int | None) -> None:
    for lists in ([first, second, first], [first, second, second, *[first] * 4, second]):
        built(batches_of(lists), end=end)


def test_one_chunk_of_many_buffers() -> None:
    batches = batches_of([[(b"%d" % number, b"x" * 100) for number in range(100)]] * 50)
    table, python = built(batches, end=5000)
    if native_status().compiled:
        assert [column.num_chunks for column in table.columns] == [1] * 8
    assert python.num_rows == 5000


@pytest.mark.parametrize("end", [3, 1 << 40])
def test_what_was_too_large_is_given_back(end: int) -> None:
    """The log may end, or have gaps, long before the offsets do."""
    before = pa.total_allocated_bytes()
    table = built(batches_of([LARGE, LARGE]), end=end)[0]
    assert pa.total_allocated_bytes() - before < 4 * table.nbytes
    del table


@pytest.mark.parametrize("harm", ["crc", "record", "name", "bomb"])
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 26])
def test_after_an_error_what_was_there_stays(harm: str, chunk_bytes: int) -> None:
    good = batches_of([LARGE, HEADED, NULLS, LARGE])
    bad = bytearray(
        encode_batch(HEADED, now_ms=7, base_offset=500, codec="gzip" if harm == "bomb" else "none")
    )
    if harm == "crc":
        bad[-1] ^= 1
    elif harm == "record":
        bad = bytearray(packed(bytes(bad[61:-1]), len(HEADED), 8000, base_offset=500))
    elif harm == "name":
        bad = bytearray(
            packed(bytes(bad[61:]).replace("ä".encode(), b"\xff\xfe"), len(HEADED), 8000, base_offset=500)
        )
    outcomes = []
    for twin in (arrow, PYTHON):
        builder = twin.TableBuilder(twin.schema(), "t", 3, True, 3000, chunk_bytes, 400)
        for batch in good[:2]:
            builder.add(batch, 0, None)
        with pytest.raises(LogStoreError) as caught:
            builder.add(b"".join(good[2:]) + bytes(bad), 0, None)
        for batch in good[2:]:
            builder.add(batch, 0, None)
        table = builder.table()
        table.validate(full=True)
        assert table.equals(built(good)[0])
        outcomes.append((type(caught.value), str(caught.value)))
    assert outcomes[0] == outcomes[1]


def test_a_buffer_that_the_python_twin_reads() -> None:
    """Between others: their chunks stay in the order of the offsets."""
    odd = packed(bytes.fromhex(HOSTILE["a null in two bytes"]), 1, 0, base_offset=10)
    others = batches_of([LARGE, LARGE, HEADED])
    built([others[0], odd, *others[1:]])
    built([odd, others[0] + odd, odd, others[2]], chunk_bytes=1)
