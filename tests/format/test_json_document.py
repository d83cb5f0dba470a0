"""Small checked JSON files: any change of their bytes is told from a change of meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import DamagedStoreError, InvariantError, UnsupportedStoreVersionError
from logstore.format import json_document
from logstore.format.json_document import decode_document, encode_document

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.text().filter(lambda key: key not in ("crc32c", "format_version"))


def decode(data: bytes, keys: set[str], version: int = 1) -> dict[str, Any]:
    return decode_document(data, version, frozenset(keys), "the/path")


def checked(rest: bytes) -> bytes:
    return b'{"crc32c": "%08x",\n' % crc32c(rest) + rest


def test_golden() -> None:
    data = encode_document(1, {"name": "höhe", "n": 3})
    assert data == b'{"crc32c": "d38eb93f",\n"format_version": 1, "name": "h\\u00f6he", "n": 3}\n'
    assert json.loads(data)["name"] == "höhe"


@settings(derandomize=True, deadline=None)
@given(st.dictionaries(KEYS, VALUES, min_size=1))
def test_round_trip(fields: dict[str, Any]) -> None:
    assert decode(encode_document(7, fields), set(fields), 7) == fields


def test_every_flipped_bit_and_every_cut_is_damage() -> None:
    data = encode_document(1, {"name": "flights", "n": 3})
    for position in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            with pytest.raises(DamagedStoreError) as caught:
                decode(bytes(broken), {"name", "n"})
            assert caught.value.path == "the/path"
        with pytest.raises(DamagedStoreError):
            decode(data[:position], {"name", "n"})


def test_a_newer_version_is_refused_before_its_fields_are_looked_at() -> None:
    with pytest.raises(UnsupportedStoreVersionError, match=r"the/path has format version 2.* 1 to 1"):
        decode(encode_document(2, {"new": 1}), {"name"})
    assert decode(encode_document(1, {"name": 1}), {"name"}, version=2) == {"name": 1}


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        (b'"format_version": 0, "n": 1}\n', "version 0"),
        (b'"n": 1, "format_version": 1}\n', "not followed by a format version"),
        (b'"format_version": 1, "n": }\n', "not JSON"),
        (b'"format_version": 1, "n": ' + b"[" * 100_000 + b"}\n", "not JSON"),
        (b'"format_version": 1, "n": ' + b"9" * 5000 + b"}\n", "not JSON"),
        (b'"format_version": 1, "m": 1}\n', "missing or unknown: m, n"),
        (b'"format_version": 1}\n', "missing or unknown: n"),
        (b'"format_version": 1, "n": 1, "x": 2}\n', "missing or unknown: x"),
    ],
)
def test_a_right_checksum_over_the_wrong_thing(rest: bytes, why: str) -> None:
    with pytest.raises(DamagedStoreError, match=why):
        decode(checked(rest), {"n"})


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\0" * 64, b'{"crc32c": "0000000"}', b'{"crc32c": "ABCDEF01",\n}']
)
def test_other_files_are_damage(data: bytes) -> None:
    with pytest.raises(DamagedStoreError, match="does not start with its checksum"):
        decode(data, {"n"})


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (json_document.whole, True),
        (json_document.whole, 1.0),
        (json_document.whole, -1),
        (json_document.whole, 2**63),
        (json_document.whole, "1"),
        (json_document.text, 1),
        (json_document.text, None),
        (json_document.truth, 1),
        (json_document.table, []),
        (json_document.items, {}),
        (json_document.items, "ab"),
    ],
)
def test_fields_are_of_their_type(read: Any, value: object) -> None:
    with pytest.raises(DamagedStoreError, match=r"the/path is damaged: the field"):
        read(value, "the field", "the/path")


def test_reserved_keys_are_the_documents_own() -> None:
    for fields in ({"crc32c": 1}, {"format_version": 1}, {}):
        with pytest.raises(InvariantError):
            encode_document(1, fields)
