"""Records of transactions: Kafka's bytes, both versions of them, and whatever else a log may hold."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from aiokafka.protocol import types  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.api.transactions import PreparedTransaction
from logstore.errors import InvalidRecordError, LogStoreError, UnsupportedStoreVersionError
from logstore.format.varint import encode_raw
from logstore.groups.fields import compact_string, i32s, tags
from logstore.transactions.coordinator import TransactionCoordinator
from logstore.transactions.transaction import TransactionState, TransactionStatus
from logstore.transactions.transaction_records import decode_key, decode_value, encode_key, encode_value
from logstore.types import TopicPartition

PLACES = (TopicPartition("delays", 7), TopicPartition("flights", 0), TopicPartition("flights", 2))
STATE = TransactionState("orders", 4711, 3, 60_000, TransactionStatus.PREPARE_COMMIT, PLACES, 2_000, 1_000)
GOLDEN = bytes.fromhex(
    "0000 0000000000001267 0003 0000ea60 02"  # version, producer id, epoch, timeout, status
    "00000002 0006 64656c617973 00000001 00000007"  # delays: 7
    "0007 666c6967687473 00000002 00000000 00000002"  # flights: 0, 2
    "00000000000007d0 00000000000003e8"
)
INT64 = st.integers(-1, 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
STATES = st.builds(
    TransactionState,
    TEXT,
    INT64,
    st.integers(-1, 2**15 - 1),
    INT32,
    st.sampled_from(TransactionStatus),
    st.frozensets(st.builds(TopicPartition, TEXT, INT32), max_size=6).map(lambda found: tuple(sorted(found))),
    INT64,
    INT64,
)
HANDLES = st.lists(st.builds(PreparedTransaction, TEXT, INT64, st.integers(0, 2**15 - 1)), max_size=3)
WITH_PARTICIPANTS = st.builds(
    replace,
    STATES,
    coordinator=st.none() | TEXT,
    prepared_ms=st.integers(-1, 2**63 - 1),
    decides=st.none() | HANDLES.map(tuple),
)


def flexible(state: TransactionState, extra: bytes = b"\0", topic_extra: bytes = b"\0") -> bytes:
    """The state in value version 1, as newer brokers write it."""
    head = struct.pack(">hqhib", 1, state.producer_id, state.epoch, state.timeout_ms, state.status)
    topics = sorted({place.topic for place in state.places})
    null = state.status is TransactionStatus.EMPTY and not topics
    parts = [head, encode_raw(0 if null else len(topics) + 1)]
    for topic in topics:
        numbers = [place.partition for place in state.places if place.topic == topic]
        parts += (compact_string(topic), i32s(numbers), topic_extra)
    return b"".join((*parts, struct.pack(">qq", state.updated_ms, state.start_ms), extra))


def test_golden() -> None:
    key = bytes.fromhex("0000 0006 6f7264657273")
    assert encode_key("orders") == key
    assert decode_key(key) == "orders"
    assert encode_value(STATE) == GOLDEN
    assert decode_value("orders", GOLDEN) == STATE


def test_the_layout_is_what_another_codec_writes() -> None:
    """aiokafka's primitive types, put together as Kafka's schemas say."""
    text = types.String("utf-8")
    schema = types.Schema(
        ("version", types.Int16),
        ("producer_id", types.Int64),
        ("epoch", types.Int16),
        ("timeout", types.Int32),
        ("status", types.Int8),
        ("partitions", types.Array(("topic", text), ("ids", types.Array(types.Int32)))),
        ("updated", types.Int64),
        ("started", types.Int64),
    )
    partitions = [("delays", [7]), ("flights", [0, 2])]
    assert schema.encode([0, 4711, 3, 60_000, 2, partitions, 2_000, 1_000]) == GOLDEN
    assert types.Schema(("version", types.Int16), ("id", text)).encode([0, "grüße"]) == encode_key("grüße")


@settings(derandomize=True, deadline=None)
@given(STATES)
def test_round_trip_in_both_versions(state: TransactionState) -> None:
    assert decode_key(encode_key(state.transactional_id)) == state.transactional_id
    assert decode_value(state.transactional_id, encode_value(state)) == state
    assert decode_value(state.transactional_id, flexible(state)) == state


GOLDEN_PREPARED = bytes.fromhex(
    "0001 0000000000001267 0003 0000ea60 01"  # version 1, producer id, epoch, timeout, ONGOING
    "02 08 666c6967687473 02 00000002 00"  # flights: 2
    "00000000000007d0 00000000000003e8"
    "02"  # two tagged fields
    "904e 07 737061726b2d71"  # 10000: coordinator spark-q
    "914e 08 00000000000005dc"  # 10001: prepared at 1500
)
GOLDEN_DECIDING = bytes.fromhex(
    "0001 0000000000001267 0003 0000ea60 02 01"  # PREPARE_COMMIT of no places
    "00000000000007d0 00000000000003e8"
    "01 924e 14"  # 10002, 20 bytes
    "02 08 737061726b2d30 0000000000000009 0005 00"  # one: spark-0, producer id 9, epoch 5
)


def test_golden_records_of_prepared_transactions() -> None:
    """Kafka's flexible version with tagged fields of ours: its readers see an ONGOING, or a decided, transaction."""
    base = replace(STATE, places=PLACES[2:])
    prepared = replace(base, status=TransactionStatus.ONGOING, coordinator="spark-q", prepared_ms=1_500)
    assert encode_value(prepared) == GOLDEN_PREPARED
    assert decode_value("orders", GOLDEN_PREPARED) == prepared
    deciding = replace(base, places=(), decides=(PreparedTransaction("spark-0", 9, 5),))
    assert encode_value(deciding) == GOLDEN_DECIDING
    assert decode_value("orders", GOLDEN_DECIDING) == deciding


@settings(derandomize=True, deadline=None)
@given(WITH_PARTICIPANTS)
def test_round_trip_with_participants(state: TransactionState) -> None:
    value = encode_value(state)
    assert decode_value(state.transactional_id, value) == state
    without = replace(state, coordinator=None, prepared_ms=-1, decides=None)
    if state == without:
        assert value[:2] == b"\0\0", "what needs no tagged field is written as ever"
    else:
        body = flexible(without)[:-1]
        assert value.startswith(body), "a reader of Kafka's fields alone sees the same transaction"


@pytest.mark.parametrize(
    ("tag", "data"),
    [(10_000, b"\xff"), (10_001, b"\0" * 7), (10_002, b"\5"), (10_002, b"\2\2x" + b"\0" * 10 + b"\0\1")],
)
def test_malformed_fields_of_ours_are_named(tag: int, data: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="malformed"):
        decode_value("orders", flexible(STATE, tags({tag: data})))


def test_tagged_fields_of_newer_brokers_are_passed_over() -> None:
    eight = struct.pack(">q", 99)
    extra = tags({0: eight, 1: eight, 2: b"\0\2", 17: b"unknown"})
    assert decode_value("orders", flexible(STATE, extra, tags({3: b"x"}))) == STATE


def test_null_arrays_are_empty() -> None:
    empty = struct.pack(">qhib", 4711, 3, 60_000, 0)
    times = struct.pack(">qq", 5, -1)
    due = TransactionState("x", 4711, 3, 60_000, TransactionStatus.EMPTY, (), 5, -1)
    assert decode_value("x", b"\0\0" + empty + b"\xff\xff\xff\xff" + times) == due
    assert decode_value("x", b"\0\0" + empty + b"\0\0\0\0" + times) == due
    assert encode_value(due) == b"\0\0" + empty + b"\xff\xff\xff\xff" + times
    assert decode_value("x", b"\0\1" + empty + b"\0" + times + b"\0") == due


def test_places_are_sorted_and_told_once() -> None:
    head = struct.pack(">hqhib", 0, 1, 0, 1000, 1)
    topics = struct.pack(">ih1si2i", 2, 1, b"b", 2, 5, 5) + struct.pack(">h1si2i", 1, b"a", 2, 9, 3)
    state = decode_value("x", head + topics + bytes(16))
    assert state.places == (TopicPartition("a", 3), TopicPartition("a", 9), TopicPartition("b", 5))


@pytest.mark.parametrize("version", [1, 2, 32767, -1])
def test_other_kinds_of_keys_are_passed_over(version: int) -> None:
    key = struct.pack(">h", version) + b"anything"
    assert decode_key(key) is None
    machine = TransactionCoordinator()
    machine.replay(key, GOLDEN)
    machine.replay(None, GOLDEN)
    assert machine.ignored_records == 2
    assert machine.transactions() == []


def test_every_cut_and_every_extra_byte_is_named() -> None:
    key = encode_key("orders")
    for cut in range(len(key)):
        with pytest.raises(InvalidRecordError, match="malformed key of a transaction"):
            decode_key(key[:cut])
    for value in (GOLDEN, flexible(STATE, tags({0: bytes(8)}))):
        for cut in range(len(value)):
            with pytest.raises(InvalidRecordError, match="malformed state of transactional id 'orders'"):
                decode_value("orders", value[:cut])
        with pytest.raises(InvalidRecordError, match=r"1 bytes too many.*__transaction_state"):
            decode_value("orders", value + b"x")
    with pytest.raises(InvalidRecordError, match="1 bytes too many"):
        decode_key(key + b"x")


@pytest.mark.parametrize(
    ("at", "patch", "why"),
    [
        (0, b"\xff\xff", "version -1"),
        (2, b"\xff" * 7 + b"\xfe", "producer id -2"),
        (10, b"\xff\xfe", "epoch -2"),
        (16, b"\7", "transaction status 7"),
        (16, b"\xff", "transaction status -1"),
        (17, b"\xff\xff\xff\xfe", "an array of -2 topics"),
        (17, b"\x7f\xff\xff\xff", "inside the field|string length"),
        (29, b"\xff\xff\xff\xff", "-4 bytes"),
        (29, b"\x7f\xff\xff\xff", "8589934588 bytes"),
        (23, b"\xff", "not UTF-8"),
    ],
)
def test_impossible_values_are_named(at: int, patch: bytes, why: str) -> None:
    with pytest.raises(InvalidRecordError, match=why):
        decode_value("orders", GOLDEN[:at] + patch + GOLDEN[at + len(patch) :])


def test_a_newer_value_is_refused_not_guessed_at() -> None:
    with pytest.raises(UnsupportedStoreVersionError, match="value version 2: this version reads 0 to 1"):
        decode_value("orders", b"\0\2" + GOLDEN[2:])


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.one_of(st.binary(max_size=80), st.binary(max_size=60).map(lambda rest: b"\0\1" + rest)))
def test_any_bytes_are_read_or_named(data: bytes) -> None:
    for decode in (decode_key, lambda value: decode_value("x", value)):
        try:
            decode(data)
        except LogStoreError as error:
            assert str(error)  # noqa: PT017 - which error it is depends on the bytes


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.sampled_from([GOLDEN, flexible(STATE)]), st.data())
def test_any_damaged_record_is_read_or_named_and_the_machine_stays_whole(
    value: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(value) - 1))
    damaged = value[:at] + data.draw(st.binary(min_size=1, max_size=4)) + value[at + 1 :]
    machine = TransactionCoordinator()
    machine.replay(encode_key("orders"), GOLDEN)
    try:
        machine.replay(encode_key("orders"), damaged)
    except LogStoreError:
        assert machine.describe("orders") == STATE
        assert machine.in_doubt() == [STATE]
    else:
        assert encode_value(machine.describe("orders")) if machine.find("orders") else True
