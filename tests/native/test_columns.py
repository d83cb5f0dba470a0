"""Arrow tables made by both twins: equal ones, or the same error in the same words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import LogStoreError
from logstore.format import arrow
from logstore.format.batch import decode_batches, encode_batch, pack_batch, read_header, stamp_log_append_time
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
