"""The short cut for records of one shape gives the very bytes of the general way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.format import record
from logstore.format.alike import join_alike, split_alike
from tests.format.batches import CALM


def general(rows: list[tuple[bytes | None, bytes | None]], monkeypatch: pytest.MonkeyPatch) -> bytes:
    with monkeypatch.context() as patch:
        patch.setattr(record, "join_alike", lambda *_: None)
        return record.encode_rows(rows, 7).records


@pytest.mark.parametrize("count", [2, 63, 64, 65, 500, 1024])
@pytest.mark.parametrize("key_length", [None, 0, 1, 63, 64, 300])
@pytest.mark.parametrize("value_length", [0, 1, 40, 60, 63, 64, 5000])
def test_shapes_around_every_varint_border(
    count: int, key_length: int | None, value_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[tuple[bytes | None, bytes | None]] = [
        (
            None if key_length is None else bytes([number % 256]) * key_length,
            b"%c" % (number % 256) * value_length,
        )
        for number in range(count)
    ]
    keys, values = zip(*rows, strict=True)
    assert join_alike(keys, values) == general(rows, monkeypatch)


@pytest.mark.parametrize(
    "rows",
    [
        [(None, b"a"), (None, None)],
        [(None, b"a"), (None, b"bb")],
        [(None, b"a"), (b"k", b"a")],
        [(b"k", b"a"), (None, b"a")],
        [(b"k", b"a"), (b"kk", b"a")],
        [("k", b"a"), ("k", b"a")],
        [(b"k", "a"), (b"k", "a")],
        [(b"k" * 5000, b"a" * 5000)] * 2,
        [(None, b"a")] * 1025,
    ],
)
def test_what_is_not_alike_is_left_to_the_general_way(rows: list[tuple[object, object]]) -> None:
    keys, values = zip(*rows, strict=True)
    assert join_alike(keys, values) is None


@given(
    rows=st.lists(st.tuples(st.sampled_from([None, b"", b"ab"]), st.sampled_from([b"", b"xyz"])), min_size=2)
)
@CALM
def test_any_mix_gives_the_same_bytes(rows: list[tuple[bytes | None, bytes | None]]) -> None:
    keys, values = zip(*rows, strict=True)
    short = join_alike(keys, values)
    with pytest.MonkeyPatch.context() as patch:
        assert short is None or short == general(rows, patch)


@given(
    count=st.integers(2, 70),
    key=st.sampled_from([None, b"", b"ab", b"k" * 70]),
    value=st.sampled_from([b"", b"xyz", b"v" * 200]),
    flip=st.integers(0, 10**9),
)
@CALM
def test_the_way_back_is_proved_and_any_flipped_bit_is_left_to_the_general_way(
    count: int, key: bytes | None, value: bytes, flip: int
) -> None:
    section = record.encode_rows([(key, value)] * count, 7).records
    assert split_alike(section, count) == ([key] * count, [value] * count)
    damaged = bytearray(section)
    damaged[flip % len(section)] ^= 1 << flip % 8
    found = split_alike(bytes(damaged), count)
    if found is not None:  # the flip fell into a key or value: it is what the general way reads, too
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record, "split_alike", lambda *_: None)
            records = record.decode_rows(bytes(damaged), count, 0, 7, "t", 0, None)
        assert found == ([one.key for one in records], [one.value for one in records])


@pytest.mark.parametrize("section", [b"", b"\x80", b"\xff" * 30, b"\x02" * 14])
def test_what_is_no_section_is_no_shape(section: bytes) -> None:
    assert split_alike(section, 2) is None
