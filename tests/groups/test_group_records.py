"""Bytes of a group's records. The golden ones were read by the generated classes of Kafka 4.1.1
(``org.apache.kafka.coordinator.group.generated``), field by field as here, and written back the same."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import InvalidRecordError, LogStoreError, UnsupportedStoreVersionError
from logstore.groups import group_records as layout
from logstore.groups.group_records import Current, GroupKey, GroupValue, Member, TopicFacts
from logstore.types import TopicPartition

FLIGHTS_0, FLIGHTS_2, BAGS_1 = (
    TopicPartition("flights", 0),
    TopicPartition("flights", 2),
    TopicPartition("bags", 1),
)
MEMBER = Member(
    instance_id="inst-1",
    client="app@host",
    topics=frozenset({"flights", "bags"}),
    pattern="f.*",
    assignor="sticky",
    session_timeout_ms=45_000,
    max_poll_interval_ms=300_000,
    liveness=bytes((0, 0, 0, 7)),
    joined_ms=1_700_000_000_000,
    replaced="old-id",
)
BAGS_ID, FLIGHTS_ID = "8ecbaf607e9687fbad6a27fd7a926a4e", "c8cf489ed22983a294f17b2a75528728"

GOLDEN: list[tuple[int, str, Callable[[Any], bytes], Callable[[bytes], Any], Any, str]] = [
    (
        layout.GROUP,
        "",
        layout.encode_group,
        layout.decode_group,
        GroupValue(12, -1),
        "0000 0000000c 01 809801 08 ffffffffffffffff",
    ),
    (
        layout.TOPICS,
        "",
        layout.encode_topics,
        layout.decode_topics,
        {"flights": TopicFacts(4, 3), "bags": TopicFacts(0, 0)},
        f"0000 03 {BAGS_ID} 0562616773 00000000 01 01 809801 04 00000000"
        f"{FLIGHTS_ID} 08666c6967687473 00000004 01 01 809801 04 00000003 00",
    ),
    (
        layout.MEMBER,
        "m1",
        layout.encode_member,
        layout.decode_member,
        MEMBER,
        "0000 07696e73742d31 00 0961707040686f7374 01 03 0562616773 08666c6967687473 04662e2a 000493e0"
        "07737469636b79 02 00 01 00 809801 1e 0000afc8 00000007 0000018bcfe56800 ffffffffffffffff"
        "6f6c642d6964",
    ),
    (layout.TARGET, "", layout.encode_target, layout.decode_target, 12, "0000 0000000c 00"),
    (
        layout.TARGET_MEMBER,
        "m1",
        layout.encode_target_member,
        layout.decode_target_member,
        frozenset({FLIGHTS_0, FLIGHTS_2, BAGS_1}),
        f"0000 03 {BAGS_ID} 02 00000001 01 809801 04 62616773"
        f"{FLIGHTS_ID} 03 00000000 00000002 01 809801 07 666c6967687473 00",
    ),
    (
        layout.CURRENT,
        "m1",
        layout.encode_current,
        layout.decode_current,
        Current(12, 11, layout.UNREVOKED, {FLIGHTS_0: 3, FLIGHTS_2: 12}, {BAGS_1: 4}),
        f"0000 0000000c 0000000b 01 02 {FLIGHTS_ID} 03 00000000 00000002"
        "02 00 09 03 00000003 0000000c 809801 07 666c6967687473"
        f"02 {BAGS_ID} 02 00000001 02 00 05 02 00000004 809801 04 62616773 00",
    ),
]


@pytest.mark.parametrize(("kind", "member_id", "encode", "decode", "value", "golden"), GOLDEN)
def test_golden(
    kind: int,
    member_id: str,
    encode: Callable[[Any], bytes],
    decode: Callable[[bytes], Any],
    value: Any,
    golden: str,
) -> None:
    data = bytes.fromhex(golden)
    assert encode(value) == data
    assert decode(data) == value
    key = struct.pack(">h", kind) + b"\0\1g" + (b"\0\2m1" if member_id else b"")
    assert layout.encode_key(kind, "g", member_id) == key
    assert layout.decode_key(key) == GroupKey(kind, "g", member_id)
    for cut in range(len(data)):
        with pytest.raises(InvalidRecordError, match="malformed"):
            decode(data[:cut])
    with pytest.raises(InvalidRecordError, match="1 bytes too many"):
        decode(data + b"x")
    with pytest.raises(UnsupportedStoreVersionError, match="of version 1: this version reads 0"):
        decode(b"\0\1" + data[2:])
    with pytest.raises(InvalidRecordError, match="version -1"):
        decode(b"\xff\xff" + data[2:])


@pytest.mark.parametrize("kind", [0, 1, 2, 9, 16, 0x4C00])
def test_other_kinds_of_keys_are_not_of_groups(kind: int) -> None:
    assert layout.decode_key(struct.pack(">h", kind) + b"anything") is None


def test_a_member_of_a_broker_is_left_to_it() -> None:
    value = bytes.fromhex("0000 00 00 01 01 01 00 ffffffff 0278 01 00 01 00")
    assert layout.decode_member(value) is None


def test_topics_of_a_broker_have_no_name_here() -> None:
    value = bytes.fromhex(f"0000 02 {BAGS_ID} 02 00000001 00 00")
    assert layout.decode_target_member(value) == frozenset()


def test_a_topic_of_a_broker_has_its_racks_passed_over() -> None:
    value = bytes.fromhex(f"0000 02 {BAGS_ID} 0562616773 00000002 02 00000000 02 0272 00 00 00")
    assert layout.decode_topics(value) == {"bags": TopicFacts(2, 2)}


def test_epochs_go_with_partitions() -> None:
    good = layout.encode_current(Current(1, 0, 0, {FLIGHTS_0: 1}, {}))
    bad = good.replace(bytes.fromhex("05 02 00000001"), bytes.fromhex("01 01"))
    with pytest.raises(InvalidRecordError, match="0 epochs for 1 partitions"):
        layout.decode_current(bad)


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
I32, I64 = st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1)
PLACES = st.dictionaries(st.builds(TopicPartition, TEXT.filter(bool), I32), I32, max_size=6)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.builds(
        Member,
        st.none() | TEXT,
        TEXT,
        st.frozensets(TEXT),
        st.none() | TEXT,
        st.sampled_from(["range", "round_robin", "sticky"]),
        I32,
        I32,
        st.binary(min_size=4, max_size=4),
        I64,
        I64,
        TEXT,
    ),
    st.builds(Current, I32, I32, st.integers(0, 2), PLACES, PLACES),
    st.dictionaries(TEXT, st.builds(TopicFacts, I32, I32), max_size=4),
    st.builds(GroupValue, I32, I64),
)
def test_round_trip(
    member: Member, current: Current, topics: dict[str, TopicFacts], group: GroupValue
) -> None:
    assert layout.decode_member(layout.encode_member(member)) == member
    assert layout.decode_current(layout.encode_current(current)) == current
    assert layout.decode_topics(layout.encode_topics(topics)) == topics
    assert layout.decode_group(layout.encode_group(group)) == group
    places = frozenset(current.assigned)
    assert layout.decode_target_member(layout.encode_target_member(places)) == places


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.binary(max_size=64), st.booleans())
def test_any_bytes_are_read_or_named(data: bytes, versioned: bool) -> None:
    for decode in (layout.decode_key, *(row[3] for row in GOLDEN)):
        try:
            decode(b"\0\0" + data if versioned else data)
        except LogStoreError as error:
            assert str(error)  # noqa: PT017 - which error it is depends on the bytes


def test_ids_made_of_names_are_uuids_that_say_so() -> None:
    made = layout.topic_id("flights")
    assert made.hex() == FLIGHTS_ID
    assert (made[6] >> 4, made[8] >> 6) == (8, 2)
    assert made != layout.topic_id("bags")
