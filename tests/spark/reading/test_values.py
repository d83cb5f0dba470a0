"""Values decoded as columns: the good ones, and why the others are bad."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import InvalidArgumentError
from spark_connector.reading.values import Decoded, check_json_type, decode_json, decode_strings

KIND = pa.struct([("a", pa.int32()), ("b", pa.string())])
GOOD = b'{"a":1,"b":"x"}'
objects = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | st.integers(-(2**31), 2**31 - 1),
        "b": st.none() | st.text(),
        "c": st.floats(-9, 9),
    },
)


def decoded(values: list[bytes | None], kind: Any = KIND) -> list[tuple[Any, str | None]]:
    found = decode_json(pa.array(values, pa.binary()), kind)
    return list(zip(found.values.to_pylist(), found.errors.to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        (GOOD, {"a": 1, "b": "x"}),
        (b"{}", {"a": None, "b": None}),
        (b' {"a" : 2} ', {"a": 2, "b": None}),
        (b'{"a":2,\n "z":[{"q":1}]}', {"a": 2, "b": None}),
        (b'{"a":null,"b":"\\n\\u00e4"}', {"a": None, "b": "\nä"}),
        (b'{"__logstore_row__":7,"a":2}', "does not fit valueSchema"),
        (b'{"a":1,"a":2}', "does not fit valueSchema"),
        (b'{"a":"1"}', "does not fit valueSchema"),
        (b'{"a":3000000000}', "does not fit valueSchema"),
        (b'{"a":1} {"a":2}', "not JSON"),
        (b'{"a":1}{"a":2}', "not JSON"),
        (b'{"b":"line\nend"}', "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b"nope", "not JSON"),
        (b"", "not JSON"),
        (b"\n", "not JSON"),
        (b"[1]", "not a JSON object but a list"),
        (b'"{"', "not a JSON object but a text"),
        (b"17", "not a JSON object but a number"),
        (b"\xff{}", "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_json(value: bytes, becomes: Any) -> None:
    """Each bad value alone and between good ones: a neighbour never changes."""
    rows: list[list[bytes | None]] = [[value], [GOOD, value, None, GOOD]]
    for values in rows:
        found = decoded(values)
        at = values.index(value)
        if isinstance(becomes, str):
            assert found[at][0] is None
            assert becomes in str(found[at][1])
        else:
            assert found[at] == (becomes, None)
        if at:
            assert [found[0], found[2], found[3]] == [
                ({"a": 1, "b": "x"}, None), (None, None), ({"a": 1, "b": "x"}, None)
            ]  # fmt: skip


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.none() | objects | st.sampled_from([b"x", b"{]", b'{"a":{}}']), max_size=12))
def test_json_is_what_python_reads(values: list[Any]) -> None:
    texts = [json.dumps(v).encode() if isinstance(v, dict) else v for v in values]
    for value, (found, error) in zip(values, decoded(texts), strict=True):
        if isinstance(value, dict):
            assert (found, error) == ({"a": value.get("a"), "b": value.get("b")}, None)
        else:
            assert found is None
            assert (error is None) == (value is None)


def test_slices_and_no_values() -> None:
    array = pa.array([b"bad", GOOD, None, GOOD, b"bad"], pa.binary())
    found = decode_json(array.slice(1, 3), KIND)
    assert found.values.to_pylist() == [{"a": 1, "b": "x"}, None, {"a": 1, "b": "x"}]
    assert decode_json(array.slice(1, 0), KIND).values.type == KIND
    assert decode_json(array.slice(2, 1), KIND).values.to_pylist() == [None]


def test_types_that_json_cannot_be_read_as() -> None:
    check_json_type(KIND)
    with pytest.raises(InvalidArgumentError, match="valueSchema: JSON values cannot be read as"):
        check_json_type(pa.struct([("m", pa.map_(pa.string(), pa.int32()))]))


def test_strings() -> None:
    good: Decoded = decode_strings(pa.array(["ä".encode(), None, b""], pa.binary()))
    assert (good.values.to_pylist(), good.errors.null_count) == (["ä", None, ""], 3)
    bad = decode_strings(pa.array([b"a", b"b\xff", None], pa.binary()))
    assert bad.values.to_pylist() == ["a", None, None]
    assert bad.errors.to_pylist() == [None, "not UTF-8: invalid start byte at byte 1", None]
