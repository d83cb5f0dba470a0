"""Whole batches in a buffer, found by both twins: the same ones, or the same error after the same ones."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import LogStoreError
from logstore.format import batch as in_use
from logstore.format.batch import HEADER_SIZE, encode_batch, pack_batch, read_header
from logstore.log.producers import isolation
from logstore.types import Buffer
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.format.batch")
PYTHON_ISOLATION = python_twin("logstore.log.producers.isolation")
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)
ODD = (LogStoreError, ValueError, TypeError, IndexError, BufferError, struct.error)
EDGES = st.one_of(st.integers(-3, 14), st.sampled_from([-(2**63) - 1, -(2**63), 2**63 - 1, 2**63]))


def batches(sizes: list[int], attributes: dict[int, int] | None = None) -> bytes:
    """Batches of so many records each, one after another from offset 0 on; ``attributes``: of some, by number."""
    found, base = [], 0
    for number, size in enumerate(sizes):
        data = encode_batch([(None, b"v" * size)] * size, now_ms=1, base_offset=base)
        header = read_header(data)
        bits = (attributes or {}).get(number, header.attributes)
        found.append(pack_batch(header._replace(attributes=bits), data[HEADER_SIZE:]))
        base += size
    return b"".join(found)


def walked(found: Iterator[tuple[int, Any]]) -> list[object]:
    """What comes out, its error at the end, and that nothing comes after it."""
    seen: list[object] = []
    try:
        seen.extend((at, tuple(header)) for at, header in found)
    except ODD as error:
        seen.append((type(error), str(error), getattr(error, "position", None)))
    assert list(found) == []
    return seen


def reached(module: Any, buffer: Buffer, **more: Any) -> object:
    try:
        return module.whole_batches(buffer, **more)
    except ODD as error:
        return type(error), str(error), getattr(error, "position", None)


def both(buffer: Buffer, start: int = 0, end: int | None = None, check: bool = True) -> list[object]:
    found = walked(in_use.data_batches(buffer, start, end, check))
    assert found == walked(PYTHON.data_batches(buffer, start, end, check))
    for gapless in (False, True):
        asked = {"limit_offset": end, "gapless": gapless}
        assert reached(in_use, buffer, **asked) == reached(PYTHON, buffer, **asked)
    return found


@given(
    sizes=SIZES,
    attributes=st.dictionaries(st.integers(0, 3), st.sampled_from([0, 8, 0x10, 0x20, 0x30, 1])),
    start=EDGES,
    end=st.none() | EDGES,
    check=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_sound_batches(
    sizes: list[int], attributes: dict[int, int], start: int, end: int | None, check: bool
) -> None:
    data = batches(sizes, attributes)
    for buffer in (data, bytearray(data), memoryview(data), memoryview(b"x" + data)[1:]):
        both(buffer, start, end, check)


@given(
    sizes=SIZES,
    place=st.integers(0, 500),
    byte=st.integers(0, 255),
    cut=st.integers(0, 70),
    start=EDGES,
    end=st.none() | EDGES,
    check=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_odd_bytes(
    sizes: list[int], place: int, byte: int, cut: int, start: int, end: int | None, check: bool
) -> None:
    data = bytearray(batches(sizes))
    data[place % len(data)] = byte
    both(bytes(data[: len(data) - cut]), start, end, check)


@given(field=st.sampled_from([0, 8, 23, 57]), value=st.binary(min_size=8, max_size=8), second=st.booleans())
@settings(max_examples=300, deadline=None)
def test_odd_fields_of_a_header(field: int, value: bytes, second: bool) -> None:
    """Offsets, lengths and counts of any value, in the first or in the second batch."""
    data = bytearray(batches([2, 3]))
    at = field + (read_header(data).size if second else 0)
    size = 8 if field == 0 else 4
    data[at : at + size] = value[:size]
    for check in (False, True):
        both(bytes(data), check=check)


@pytest.mark.parametrize(
    "buffer",
    [
        b"",
        bytes(60),
        bytes(61),
        memoryview(batches([1, 2]) + bytes(1))[:-1].cast("b"),
        memoryview(bytes(240))[::2],
        memoryview(bytearray(80)).cast("I"),
    ],
)
def test_odd_buffers(buffer: Buffer) -> None:
    both(buffer)


@pytest.mark.parametrize("position", [-61, -1, 0, 1, 69, 10_000])
def test_any_position(position: int) -> None:
    data = batches([1, 1])
    for buffer in (data, b""):
        assert reached(in_use, buffer, position=position) == reached(PYTHON, buffer, position=position)


def test_what_is_sound_comes_before_the_error() -> None:
    data = bytearray(batches([1, 1, 1]))
    data[-1] ^= 1
    found = both(bytes(data))
    assert len(found) == 3
    assert "wrong CRC-32C" in str(found[2])


def test_between_two_batches_nothing_holds_the_buffer() -> None:
    data = bytearray(batches([1, 1]))
    found = in_use.data_batches(data, 0, None, True)
    next(found)
    data += b"x"  # an exported buffer could not grow
    assert next(found)[1].base_offset == 1
    with pytest.raises(LogStoreError):
        next(found)
    assert next(found, None) is None


def of_transactions(buffer: Buffer) -> bool:
    found = isolation.may_be_transactional(buffer)
    assert found is PYTHON_ISOLATION.may_be_transactional(buffer)
    return found


@given(sizes=SIZES, attributes=st.dictionaries(st.integers(0, 3), st.sampled_from([0, 8, 0x10, 0x20, 0x30])))
@settings(max_examples=100, deadline=None)
def test_whether_there_are_batches_of_transactions(sizes: list[int], attributes: dict[int, int]) -> None:
    data = batches(sizes, attributes)
    known = any(bits & 0x10 for number, bits in attributes.items() if number < len(sizes))
    for buffer in (data, bytearray(data), memoryview(b"x" + data)[1:]):
        assert of_transactions(buffer) is known


@given(data=st.binary(max_size=300), length=st.integers(-(2**31), 2**31 - 1))
@settings(max_examples=200, deadline=None)
def test_bytes_that_are_no_batches_may_be_of_a_transaction(data: bytes, length: int) -> None:
    assert of_transactions(data) or not data
    whole = bytearray(batches([1, 2]))
    whole[8:12] = length.to_bytes(4, "big", signed=True)
    of_transactions(whole)
    assert of_transactions(whole[:-1])


def test_very_many_batches_are_not_all_looked_at() -> None:
    one = batches([1])
    assert not of_transactions(one * 512)
    assert of_transactions(one * 513)
