"""Pieces of Kafka's messages, written and read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import InvalidRecordError
from logstore.format.varint import encode_raw
from logstore.groups import fields
from logstore.groups.fields import FieldReader

TEXT = st.text(st.characters(codec="utf-8"), max_size=200)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    TEXT,
    st.none() | TEXT,
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=50),
    st.dictionaries(st.integers(0, 2**20), st.binary(max_size=200), max_size=5),
)
def test_round_trip(
    text: str, maybe: str | None, number: int, numbers: list[int], tagged: dict[int, bytes]
) -> None:
    data = b"".join(
        (
            fields.string(text),
            fields.compact_string(text),
            fields.nullable_string(maybe),
            encode_raw(number),
            fields.i32s(numbers),
            fields.tags(tagged),
        )
    )
    reader = FieldReader(data, "thing")
    assert reader.string() == reader.compact_string() == text
    assert reader.nullable_string() == maybe
    assert reader.unsigned_varint() == number
    assert reader.i32s() == tuple(numbers)
    assert reader.tags() == tagged
    reader.finish()


def test_tags_are_written_in_their_order() -> None:
    assert fields.tags({300: b"x", 0: b""}) == bytes.fromhex("02 0000 ac02 01 78")
    assert fields.tags({}) == fields.NO_TAGS


@pytest.mark.parametrize(
    ("data", "read", "why"),
    [
        (b"\x05ab", "compact_string", "string length 4 at byte 0"),
        (b"\x00", "compact_string", "string length -1 at byte 0"),
        (b"\x00", "count", "an array of -1 elements"),
        (b"\xff\xff\xff\x7f", "count", "an array of 268435454 elements"),
        (b"\x03\0\0\0\0", "i32s", "8 bytes at byte 1"),
        (b"\x01\x05\x03ab", "tags", "tagged field 5 of 3 bytes"),
        (b"\xff\xff\xff\xff\xff", "unsigned_varint", "the number at byte 0 does not end"),
        (b"\x03\xff\xfe", "compact_string", "not UTF-8"),
        (b"\0", "i64", "it ends inside the field at byte 0"),
    ],
)
def test_what_cannot_be_is_named(data: bytes, read: str, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"malformed thing, {len(data)} bytes: .*{why}"):
        getattr(FieldReader(data, "thing"), read)()
