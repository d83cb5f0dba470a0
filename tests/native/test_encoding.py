"""Rows written by both twins: the same bytes, or the same error in the same words."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import LogStoreError
from logstore.format import batch, record
from tests.format.batches import CALM, row_lists
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.format.record")
PYTHON_BATCH = python_twin("logstore.format.batch")


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


def both_batches(*given_: Any, **more: Any) -> Any:
    outcomes: list[Any] = []
    for twin in (batch, PYTHON_BATCH):
        try:
            data, header = twin.encode_with_header(*given_, **more)
            assert type(header) is twin.BatchHeader
            assert tuple(twin.read_header(data)) == tuple(header) or header.base_offset < 0
            outcomes.append((data, tuple(header)))
        except LogStoreError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


int64s = st.integers(-(1 << 63), (1 << 63) - 1)


@CALM
@given(
    rows=row_lists,
    now_ms=int64s,
    base_offset=st.integers(0, (1 << 63) - 100_000),
    leader_epoch=st.integers(-1, (1 << 31) - 1),
    producer_id=int64s,
    producer_epoch=st.integers(-(1 << 15), (1 << 15) - 1),
    base_sequence=st.integers(-1, (1 << 31) - 1),
    transactional=st.booleans(),
    codec=st.sampled_from(["none", "none", "gzip"]),
)
def test_any_batch(rows: list[Any], now_ms: int, **fields: Any) -> None:
    both_batches(rows, now_ms, **fields)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("now_ms", 1 << 63),
        ("base_offset", 1 << 63),
        ("leader_epoch", 1 << 31),
        ("producer_id", -(1 << 63) - 1),
        ("producer_epoch", 1 << 15),
        ("base_sequence", -(1 << 31) - 1),
        ("producer_id", "7"),
        ("producer_id", None),
        ("leader_epoch", True),
        ("base_sequence", 1.0),
        ("codec", "no such"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_in_the_same_words(name: str, wrong: Any) -> None:
    fields: dict[str, Any] = {"now_ms": 7} | {name: wrong}
    both_batches([(b"k", b"v")], **fields)


@pytest.mark.parametrize(
    "rows", [[], (), [(b"k",)], [("k", b"v")], iter([(b"k", b"v")]), [(b"k", b"v", [("h", 1)])]]
)
def test_rows_that_are_no_batch_are_refused_in_the_same_words(rows: Any) -> None:
    if not isinstance(rows, list | tuple):
        with pytest.raises(TypeError):
            batch.encode_with_header(rows, 7)
        return
    both_batches(rows, 7)


@CALM
@given(
    rows=row_lists.filter(len),
    base_offset=st.integers(0, (1 << 63) - 1),
    leader_epoch=st.integers(-1, (1 << 31) - 1),
)
def test_a_stamped_copy(rows: list[Any], base_offset: int, leader_epoch: int) -> None:
    try:
        data, _ = batch.encode_with_header(rows, 7)
    except LogStoreError:
        return
    for buffer in (data, bytearray(data), memoryview(data)):
        made = batch.stamped(buffer, base_offset, leader_epoch)
        assert made == PYTHON_BATCH.stamped(buffer, base_offset, leader_epoch)
        assert made == batch.stamp(buffer, base_offset, leader_epoch) + data[batch.STAMP_SIZE :]
        batch.check_crc(made, 0, batch.read_header(data))


@pytest.mark.parametrize(
    ("given_", "base_offset", "epoch"),
    [(b"short", 0, 0), (bytes(61), 1 << 63, 0), (bytes(61), 0, 1 << 31), (bytes(61), "0", 0)],
)
def test_what_cannot_be_stamped(given_: Any, base_offset: Any, epoch: Any) -> None:
    said = []
    for twin in (batch, PYTHON_BATCH):
        with pytest.raises(struct.error) as caught:
            twin.stamped(given_, base_offset, epoch)
        said.append(str(caught.value))
    assert said[0] == said[1]
