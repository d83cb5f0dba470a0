"""Batches on their way in, checked by both twins: what one takes both take, what one refuses both refuse alike."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.config import TopicConfig, parse_topic_config
from logstore.errors import LogStoreError
from logstore.format.batch import HEADER_SIZE, encode_batch, pack_batch, read_header
from logstore.log import append_validation
from logstore.log.append_validation import CheckedBatch
from logstore.types import Buffer
from tests.native.twins import python_twin

PYTHON = python_twin("logstore.log.append_validation")
NOW_MS = 1_700_000_000_000
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
        st.none() | st.integers(NOW_MS - 10_000, NOW_MS + 10_000),
    ),
    min_size=1,
    max_size=9,
)


def outcome_of(module: object, buffer: Buffer) -> object:
    try:
        found = module.split_checked(buffer, "t-0")  # type: ignore[attr-defined]  # either twin
    except LogStoreError as error:
        return type(error), str(error), getattr(error, "position", None)
    return [(bytes(batch.data), tuple(batch.header)) for batch in found]


def both(buffer: Buffer) -> None:
    assert outcome_of(append_validation, buffer) == outcome_of(PYTHON, buffer)


@given(groups=st.lists(ROWS, min_size=1, max_size=3), codec=st.sampled_from(["none", "gzip"]))
@settings(max_examples=60, deadline=None)
def test_whole_batches(groups: list[list[tuple[object, ...]]], codec: str) -> None:
    data = b"".join(encode_batch(rows, now_ms=NOW_MS, codec=codec) for rows in groups)  # type: ignore[arg-type]  # rows as drawn
    for buffer in (data, bytearray(data), memoryview(data), memoryview(b"x" + data)[1:]):
        both(buffer)


@given(
    rows=ROWS,
    place=st.integers(0, 2000),
    byte=st.integers(0, 255),
    cut=st.integers(0, 40),
    sealed=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_odd_bytes(rows: list[tuple[object, ...]], place: int, byte: int, cut: int, sealed: bool) -> None:
    """``sealed``: the checksum is right all the same, so that the records are what is looked at."""
    data = bytearray(encode_batch(rows, now_ms=NOW_MS))  # type: ignore[arg-type]  # rows as drawn
    data[place % len(data)] = byte
    if sealed:
        try:
            header = read_header(data)
        except LogStoreError:
            both(bytes(data))
            return
        data = bytearray(pack_batch(header, bytes(data[HEADER_SIZE:])))
    both(bytes(data[: len(data) - cut]))


@given(
    count=st.sampled_from([2, 3, 5, 70, 140]),
    key=st.none() | st.binary(max_size=3) | st.just(b"k" * 70),
    size=st.sampled_from([-1, 0, 1, 20, 63, 64, 100]),
    odd=st.none() | st.integers(0, 139),
    changes=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), max_size=2),
    cut=st.sampled_from([0, 0, 0, 1, 7]),
)
@settings(max_examples=300, deadline=None)
def test_records_alike(
    count: int, key: bytes | None, size: int, odd: int | None, changes: list[tuple[int, int]], cut: int
) -> None:
    """Of which only the first ones are read; one of them may be longer, and bytes wrong although the checksum fits."""
    value = None if size < 0 else b"v" * size
    rows = [(key, b"another" if number == odd else value) for number in range(count)]
    data = encode_batch(rows, now_ms=NOW_MS)
    records = bytearray(data[HEADER_SIZE : len(data) - cut])
    for place, byte in changes:
        records[place % len(records)] = byte
    both(pack_batch(read_header(data), bytes(records)))


def test_an_offset_that_takes_another_byte() -> None:
    """The records of offsets 63 and 64 are alike but for that; no byte of 64 is taken for all of it."""
    data = encode_batch([(None, b"v" * 20)] * 65, now_ms=NOW_MS)
    both(data)
    records = bytearray(data[HEADER_SIZE:])
    last = len(records) - (len(b"v" * 20) + 8)
    assert records[last] == 2 * (len(records) - last - 1)
    assert records[last + 3 : last + 5] == b"\x80\x01"
    lying = (
        bytes(records[:last])
        + bytes([records[last] - 2])
        + bytes(records[last + 1 : last + 4])
        + bytes(records[last + 5 :])
    )
    both(pack_batch(read_header(data), lying))


@pytest.mark.parametrize(
    "buffer",
    [b"", b"\0" * 61, b"\0" * 200, memoryview(bytearray(80)).cast("I"), memoryview(bytes(240))[::2]],
)
def test_odd_buffers(buffer: Buffer) -> None:
    try:
        expected = outcome_of(PYTHON, buffer)
    except Exception as error:  # noqa: BLE001 - whatever it is, both raise it
        with pytest.raises(type(error)):
            outcome_of(append_validation, buffer)
    else:
        assert outcome_of(append_validation, buffer) == expected


CONFIGS: tuple[TopicConfig, ...] = tuple(
    parse_topic_config(settings)
    for settings in (
        {}, {"max.message.bytes": "100"}, {"segment.bytes": "1024"}, {"compression.type": "gzip"},
        {"compression.type": "none"}, {"message.timestamp.type": "LogAppendTime"}, {"cleanup.policy": "compact"},
        {"message.timestamp.after.max.ms": "0"}, {"message.timestamp.before.max.ms": "5"},
    )
)  # fmt: skip


@given(
    rows=ROWS,
    config=st.sampled_from(CONFIGS),
    now_ms=st.sampled_from([0, NOW_MS, NOW_MS + 6, 2**62]),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "attributes": st.integers(0, 127),
            "last_offset_delta": st.integers(0, 3),
            "max_timestamp": st.sampled_from([-1, -(2**63), 2**63 - 1, 2**62]),
            "base_timestamp": st.sampled_from([-1, -(2**63), -(2**62) - 1, 2**63 - 1]),
            "producer_id": st.sampled_from([-1, 7]),
        },
    ),
)
@settings(max_examples=300, deadline=None)
def test_what_a_leader_stores(
    rows: list[tuple[object, ...]], config: TopicConfig, now_ms: int, fields: dict[str, int]
) -> None:
    data = encode_batch(rows, now_ms=NOW_MS)  # type: ignore[arg-type]  # rows as drawn
    batch = CheckedBatch(memoryview(data), read_header(data)._replace(**fields))

    def stored(module: object) -> object:
        try:
            made = module.check_leader_append([batch], config, now_ms, "t-0")  # type: ignore[attr-defined]  # either twin
        except (LogStoreError, OverflowError, ValueError) as error:
            return type(error), str(error)
        return [(bytes(one.data), tuple(one.header)) for one in made]

    assert stored(append_validation) == stored(PYTHON)
