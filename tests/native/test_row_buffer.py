"""Rows in a buffer, by both twins: the same rows back, and the same batch, or the same error in the same words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import LogStoreError
from logstore.format import row_buffer
from logstore.format.batch import encode_with_header
from tests.format.batches import CALM, row_lists
from tests.native.test_encoding import ODD_HEADERS, ODD_ROWS
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.format.row_buffer")
NOW_MS = 1_700_000_000_000
plain = st.lists(
    st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=2000)), max_size=60
)


def outcome(call: Any) -> Any:
    try:
        return call()
    except LogStoreError as error:
        return type(error), str(error)


def both(rows: list[Any], **settings: Any) -> Any:
    """The batch that both make of the rows, whichever way these come."""
    found = []
    for twin in (row_buffer, PYTHON):
        one_by_one, at_once = twin.RowBuffer(), twin.RowBuffer()
        for row in rows:
            one_by_one.append(row)
        at_once.extend(rows)
        assert len(one_by_one) == len(at_once) == len(rows)
        found += [
            outcome(lambda made=made: made.encode(NOW_MS, **settings)) for made in (one_by_one, at_once)
        ]
    assert all(one == found[0] for one in found)
    return found[0]


@CALM
@given(rows=row_lists | plain, codec=st.sampled_from(["none", "none", "gzip"]))
def test_any_rows(rows: list[Any], codec: str) -> None:
    made = both(rows, codec=codec)
    assert made == outcome(lambda: encode_with_header(rows, NOW_MS, codec))
    both(rows, codec=codec, producer_id=7, producer_epoch=3, base_sequence=9, transactional=True)


@CALM
@given(rows=plain, more=row_lists)
def test_rows_come_back_and_batches_stay_as_they_are(rows: list[Any], more: list[Any]) -> None:
    made = row_buffer.RowBuffer()
    made.extend(rows)
    assert list(made) == rows
    assert made == rows
    middle = len(rows) // 2
    assert list(made.part(0, middle)) == rows[:middle]
    if rows:
        assert made[-1] == rows[-1]
        first = made.encode(NOW_MS)
        again = made.encode(NOW_MS, "none", 5, 0, 1)
        assert first == encode_with_header(rows, NOW_MS)
        assert again == encode_with_header(rows, NOW_MS, producer_id=5, producer_epoch=0, base_sequence=1)
        kept = bytes(bytearray(first[0])), bytes(bytearray(again[0]))
        made.extend(more)
        assert made.encode(NOW_MS) == encode_with_header([*rows, *more], NOW_MS)
        assert (first[0], again[0]) == kept


@pytest.mark.parametrize("headers", ODD_HEADERS, ids=range(len(ODD_HEADERS)))
def test_odd_headers(headers: Any) -> None:
    both([(b"k", b"v"), (b"k", b"v", headers)])


@pytest.mark.parametrize("row", ODD_ROWS, ids=range(len(ODD_ROWS)))
def test_odd_rows(row: Any) -> None:
    both([(b"k", b"v"), row, (None, None)])


def test_headers_come_back() -> None:
    rows = [(b"k", b"v", (("a", b"1"), ("\u00e9\0", None))), (None, None), (b"", b"", (("", b""),))]
    made = row_buffer.RowBuffer()
    made.extend(rows)
    assert list(made) == rows
    made.append((b"k", b"v", None, 5))
    assert list(made) == [*rows, (b"k", b"v", None, 5)]


def test_numbers_that_the_format_does_not_hold() -> None:
    for settings in ({"producer_id": 1 << 63}, {"producer_epoch": 1 << 15}, {"base_sequence": 1 << 31}):
        said = both([(b"k", b"v")], **settings)
        assert "a batch cannot say" in said[1]


def test_no_rows() -> None:
    both([])
