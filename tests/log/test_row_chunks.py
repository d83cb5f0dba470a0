"""Rows cut into runs that fit one batch each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import InvalidRecordError, RecordTooLargeError
from logstore.format.batch import encode_batch
from logstore.log.row_chunks import row_chunks, row_size_bound
from tests.format.batches import CALM, NOW_MS, row_lists


@CALM
@given(row_lists, st.integers(200, 20_000))
def test_every_run_fits_and_nothing_is_lost(rows: list[Any], limit: int) -> None:
    if any(61 + row_size_bound(row) > limit for row in rows):
        with pytest.raises(RecordTooLargeError, match=r"append to t-0: row [0-9]+ takes"):
            list(row_chunks(rows, limit, "t-0"))
        return
    chunks = list(row_chunks(rows, limit, "t-0"))
    assert [row for chunk in chunks for row in chunk] == rows
    assert all(len(encode_batch(chunk, now_ms=NOW_MS)) <= limit for chunk in chunks)


def test_many_small_rows_are_cut_by_count() -> None:
    chunks = list(row_chunks([(None, b"")] * 25_000, 1 << 30, "t-0"))
    assert [len(chunk) for chunk in chunks] == [10_000, 10_000, 5_000]


def test_no_rows() -> None:
    with pytest.raises(InvalidRecordError, match="append to t-0: no rows"):
        list(row_chunks([], 1_000, "t-0"))


def test_a_wrong_row_is_left_to_the_encoder() -> None:
    rows: list[Any] = [(None, b"a"), (None, 5), ("x",)]
    assert list(row_chunks(rows, 1_000, "t-0")) == [rows]
