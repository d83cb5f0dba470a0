"""Rows written by both twins: the same bytes, or the same error in the same words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import LogStoreError
from logstore.format import record
from tests.format.batches import CALM, row_lists
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.format.record")


def both(rows: Any, now_ms: Any = 7) -> Any:
    outcomes = []
    for twin in (record, PYTHON):
        try:
            outcomes.append(tuple(twin.encode_rows(rows, now_ms)))
        except LogStoreError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


@CALM
@given(rows=row_lists, now_ms=st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_rows(rows: list[Any], now_ms: int) -> None:
    both(rows, now_ms)
    both(tuple(rows), now_ms)


class Name(bytes):
    pass


class Text(str):
    pass


class Pair(tuple[Any, ...]):
    pass


ODD_HEADERS: list[Any] = [
    [],
    (),
    "",
    "ab",
    5,
    0,
    {},
    {"a": b"1"}.items(),
    {("a", b"1")},
    [["a", b"1"]],
    (("a", b"1"), ["b", None]),
    [Pair(("a", b"1"))],
    [("a", b"1", b"2")],
    [("a",)],
    [(b"a", b"1")],
    [("a", "1")],
    [("a", Name(b"1"))],
    [(Text("a"), b"1")],
    [("\ud800", b"1")],
    [("é\0", b"")],
    [None],
    ["ab"],
]
ODD_ROWS: list[Any] = [
    (),
    (b"k",),
    (b"k", b"v", None, 1, 2),
    [b"k", b"v"],
    Pair((b"k", b"v")),
    (Name(b"k"), Name(b"v")),
    ("k", b"v"),
    (b"k", "v"),
    (bytearray(b"k"), b"v"),
    (b"k", memoryview(b"v")),
    (b"k", b"v", None, 1.5),
    (b"k", b"v", None, True),
    (b"k", b"v", None, 1 << 63),
    (b"k", b"v", None, -(1 << 63)),
    (b"k", b"v", None, (1 << 63) - 1),
    None,
    b"kv",
    7,
    *[(b"k", b"v", headers) for headers in ODD_HEADERS],
    *[(b"k", b"v", headers, 3) for headers in ODD_HEADERS],
]


@pytest.mark.parametrize("row", ODD_ROWS, ids=range(len(ODD_ROWS)))
def test_odd_rows(row: Any) -> None:
    both([row])
    both([(b"k", b"v"), row])
    both([row, (None, None)])


@pytest.mark.parametrize("rows", [[], (), "", "ab", {}, range(0), range(2)])
def test_odd_sequences(rows: Any) -> None:
    both(rows)


@pytest.mark.parametrize("count", [1, 2, 16, 17, 64, 65, 8192, 8193])
def test_counts_around_each_length(count: int) -> None:
    both([(b"k", b"v%d" % number) for number in range(count)])
    both([(None, b"v", [("h", b"%d" % number)], number) for number in range(count)])


@pytest.mark.parametrize("size", [0, 1, 50, 63, 64, 8000, 8180, 8185, 8191, 8192, 100_000, 2_100_000])
def test_sizes_around_each_length(size: int) -> None:
    content = b"x" * size
    both([(content, None), (None, content), (None, None, [("n" * size, content)])])


def test_integers_for_now() -> None:
    for now_ms in (-(1 << 63), (1 << 63) - 1, True):
        both([(b"k", b"v")], now_ms)
        both([(b"k", b"v", None, 5), (b"k", b"v")], now_ms)
