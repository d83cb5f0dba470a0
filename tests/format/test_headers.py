"""Header sections of many rows: the quick way by columns against the general one, and what both refuse."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import RecordTypeError
from logstore.format import headers
from logstore.format.record import decode_rows, encode_rows

_VALUES = st.one_of(st.none(), st.binary(max_size=300))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(data=st.data(), names=st.lists(st.text(max_size=5), min_size=1, max_size=3), count=st.integers(2, 7))
def test_headers_of_the_same_names_are_encoded_as_the_general_way_would(
    data: st.DataObject, names: list[str], count: int
) -> None:
    stamps = st.sampled_from([None, 5])
    rows = [
        (None, b"v", [(name, data.draw(_VALUES)) for name in names], data.draw(stamps)) for _ in range(count)
    ]
    fast = encode_rows(rows, 9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headers, "_alike", lambda column: None)
        assert encode_rows(rows, 9) == fast
    decoded = decode_rows(fast.records, count, 0, fast.base_timestamp, "t", 0, None)
    assert [found.headers for found in decoded] == [tuple(row[2]) for row in rows]


def test_rows_of_several_shapes_take_the_general_way() -> None:
    shapes: list[list[tuple[str, bytes | None]]] = [
        [("a", b"1")],
        [],
        [("b", None), ("a", b"")],
        [("c", b"2")],
    ]
    encoded = encode_rows([(None, b"v", shape) for shape in shapes], 9)
    decoded = decode_rows(encoded.records, 4, 0, 9, "t", 0, None)
    assert [list(found.headers) for found in decoded] == shapes


@pytest.mark.parametrize(
    "odd",
    [[("n", "text")], [(b"n", b"v")], [("n",)], [("n", b"v", b"w")], ["nv"], [("n", bytearray(b"v"))], 5],
)
def test_what_is_no_pair_of_name_and_bytes_is_refused(odd: object) -> None:
    with pytest.raises(RecordTypeError, match="row 0"):
        encode_rows([(None, b"v", odd), (None, b"v", odd)], 9)  # type: ignore[list-item]
