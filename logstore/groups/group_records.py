"""A group's state as records of ``__consumer_offsets``: those of Kafka's consumer protocol (KIP-848).

Keys are ``version i16 | group string [| member id string]``, values ``version i16 = 0`` and then flexible fields
(see ``fields.py``), from Kafka's schemas ``ConsumerGroup*Key.json`` and ``ConsumerGroup*Value.json`` of 4.1:

    key 3  group       epoch i32
    key 4  topics      [topic id uuid | name | partitions i32 | racks (none)]
    key 5  member      instance id? | rack (null) | client | host (empty) | [topic] | pattern? |
                       rebalance timeout i32 (ours: max_poll_interval_ms) | assignor?
    key 6  target      epoch i32
    key 7  target of   [topic id uuid | [partition i32]]
           a member
    key 8  current     member epoch i32 | previous i32 | state i8 | assigned | being revoked, both as in key 7,
           of a member each partition's epoch in tag 0 (KIP-1251)
    null   deletes the key

What Kafka has no field for is in tagged fields of ours, from 0x4C00 on, which its readers pass over:

    group    4C00  empty since, i64 ms, -1 while it has members
    topic    4C00  partitions when the group first subscribed to it, i32
    member   4C00  session timeout i32 | liveness, 4 bytes | joined i64 ms | left i64 ms (-1: has not) | id taken over
                   from
    places   4C00  the topic's name

A machine is not told topic ids and names topics itself; where Kafka's layout has an id there is one made from
the name. Member records without our field are a Kafka broker's, and are left to it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from logstore.errors import UnsupportedStoreVersionError
from logstore.format.varint import encode_raw
from logstore.groups import fields
from logstore.groups.fields import NO_TAGS, NULL, FieldReader
from logstore.types import TopicPartition

GROUP, TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT = 3, 4, 5, 6, 7, 8
MEMBER_KINDS: Final = frozenset((MEMBER, TARGET_MEMBER, CURRENT))
KINDS: Final = frozenset((GROUP, TOPICS, TARGET)) | MEMBER_KINDS
OUR_TAG: Final = 0x4C00
CLASSIC_TAG: Final = 0  # in a member: null, it does not speak the classic protocol
EPOCHS_TAG: Final = 0  # in places of key 8

STABLE, UNREVOKED, UNRELEASED = 0, 1, 2  # Kafka's MemberState

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_CURRENT: Final = struct.Struct(">iib")
LIVENESS_BYTES: Final = 4
_EXTRAS: Final = struct.Struct(f">i{LIVENESS_BYTES}sqq")
_VERSION: Final = b"\0\0"


class GroupKey(NamedTuple):
    """``kind``: the key's version; ``member_id``: "" where the record is the whole group's."""

    kind: int
    group: str
    member_id: str


class GroupValue(NamedTuple):
    epoch: int
    empty_since_ms: int


class TopicFacts(NamedTuple):
    """``initial``: partitions it had when the group first subscribed to it (0: it came later)."""

    partitions: int
    initial: int


class Member(NamedTuple):
    """What a member told of itself. ``liveness``: 4 bytes by which the runtime that judges members finds the
    member's signs of life; the machine keeps and does not read them. ``left_ms``: -1, or when a static member said
    good-bye; ``replaced``: the member id whose place it took by its instance id, or "".
    """

    instance_id: str | None
    client: str
    topics: frozenset[str]
    pattern: str | None
    assignor: str
    session_timeout_ms: int
    max_poll_interval_ms: int
    liveness: bytes
    joined_ms: int
    left_ms: int = -1
    replaced: str = ""


class Current(NamedTuple):
    """What a member has: partition -> the epoch in which it got it."""

    epoch: int
    previous: int
    state: int
    assigned: Mapping[TopicPartition, int]
    revoking: Mapping[TopicPartition, int]


@lru_cache(maxsize=4096)
def topic_id(name: str) -> bytes:
    """16 bytes that stand for the name, marked as a name's (a uuid of version 8)."""
    made = bytearray(hashlib.sha256(name.encode()).digest()[:16])
    made[6] = made[6] & 0x0F | 0x80
    made[8] = made[8] & 0x3F | 0x80
    return bytes(made)


# --- keys -------------------------------------------------------------------------------------------


def encode_key(kind: int, group: str, member_id: str = "") -> bytes:
    key = _I16.pack(kind) + fields.string(group)
    return key + fields.string(member_id) if kind in MEMBER_KINDS else key


def decode_key(key: bytes) -> GroupKey | None:
    """None for a key of another kind. InvalidRecordError if malformed."""
    reader = FieldReader(key, "key of a group")
    kind = reader.i16()
    if kind not in KINDS:
        return None
    decoded = GroupKey(kind, reader.string(), reader.string() if kind in MEMBER_KINDS else "")
    reader.finish()
    return decoded


# --- values -----------------------------------------------------------------------------------------


def encode_group(value: GroupValue) -> bytes:
    ours = fields.tags({OUR_TAG: _I64.pack(value.empty_since_ms)})
    return _VERSION + _I32.pack(value.epoch) + ours


def encode_topics(topics: Mapping[str, TopicFacts]) -> bytes:
    pieces = [_VERSION, encode_raw(len(topics) + 1)]
    for name in sorted(topics):
        facts = topics[name]
        pieces += (
            topic_id(name),
            fields.compact_string(name),
            _I32.pack(facts.partitions),
            encode_raw(1),
            fields.tags({OUR_TAG: _I32.pack(facts.initial)}),
        )
    pieces.append(NO_TAGS)
    return b"".join(pieces)


def encode_member(member: Member) -> bytes:
    extras = _EXTRAS.pack(member.session_timeout_ms, member.liveness, member.joined_ms, member.left_ms)
    return b"".join(
        (
            _VERSION,
            fields.nullable_string(member.instance_id),
            NULL,
            fields.compact_string(member.client),
            fields.compact_string(""),
            encode_raw(len(member.topics) + 1),
            *map(fields.compact_string, sorted(member.topics)),
            fields.nullable_string(member.pattern),
            _I32.pack(member.max_poll_interval_ms),
            fields.nullable_string(member.assignor),
            fields.tags({CLASSIC_TAG: NULL, OUR_TAG: extras + member.replaced.encode()}),
        )
    )


def encode_target(epoch: int) -> bytes:
    return _VERSION + _I32.pack(epoch) + NO_TAGS


def encode_target_member(places: Collection[TopicPartition]) -> bytes:
    return _VERSION + _places(dict.fromkeys(places, 0), epochs=False) + NO_TAGS


def encode_current(current: Current) -> bytes:
    return b"".join(
        (
            _VERSION,
            _CURRENT.pack(current.epoch, current.previous, current.state),
            _places(current.assigned, epochs=True),
            _places(current.revoking, epochs=True),
            NO_TAGS,
        )
    )


def _places(places: Mapping[TopicPartition, int], *, epochs: bool) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        by_topic.setdefault(topic, []).append(partition)
    pieces = [encode_raw(len(by_topic) + 1)]
    for topic, numbers in by_topic.items():
        tagged = {OUR_TAG: topic.encode()}
        if epochs:
            tagged[EPOCHS_TAG] = fields.i32s([places[TopicPartition(topic, number)] for number in numbers])
        pieces += (topic_id(topic), fields.i32s(numbers), fields.tags(tagged))
    return b"".join(pieces)


def _open(value: bytes, what: str) -> FieldReader:
    reader = FieldReader(value, what)
    version = reader.i16()
    if version > 0:
        raise UnsupportedStoreVersionError(f"{what} of version {version}: this version reads 0")
    if version < 0:
        raise reader.malformed(f"version {version}")
    return reader


def _close(reader: FieldReader) -> dict[int, bytes]:
    tagged = reader.tags()
    reader.finish()
    return tagged


def _number(reader: FieldReader, tagged: Mapping[int, bytes], form: struct.Struct, missing: int) -> int:
    data = tagged.get(OUR_TAG)
    if data is None:
        return missing
    if len(data) != form.size:
        raise reader.malformed(f"tagged field {OUR_TAG:#x} of {len(data)} bytes, not {form.size}")
    number: int = form.unpack(data)[0]
    return number


def _name(reader: FieldReader, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise reader.malformed(f"a name in a tagged field is not UTF-8: {error.reason}") from None


def decode_group(value: bytes) -> GroupValue:
    """InvalidRecordError if malformed, UnsupportedStoreVersionError for a newer version; so do those below."""
    reader = _open(value, "epoch of a group")
    epoch = reader.i32()
    return GroupValue(epoch, _number(reader, _close(reader), _I64, -1))


def decode_topics(value: bytes) -> dict[str, TopicFacts]:
    reader = _open(value, "topics of a group")
    topics = {}
    for _ in range(reader.count()):
        reader.raw(16)
        name, partitions = reader.compact_string(), reader.i32()
        for _ in range(reader.count()):
            reader.i32()
            for _ in range(reader.count()):
                reader.compact_string()
            reader.tags()
        topics[name] = TopicFacts(partitions, _number(reader, reader.tags(), _I32, partitions))
    _close(reader)
    return topics


def decode_member(value: bytes) -> Member | None:
    """None for a member that another program's groups have."""
    reader = _open(value, "member of a group")
    instance_id, _rack = reader.nullable_string(), reader.nullable_string()
    client, _host = reader.compact_string(), reader.compact_string()
    topics = frozenset(reader.compact_string() for _ in range(reader.count()))
    pattern, max_poll_interval_ms = reader.nullable_string(), reader.i32()
    assignor = reader.nullable_string()
    extras = _close(reader).get(OUR_TAG)
    if extras is None:
        return None
    if len(extras) < _EXTRAS.size:
        raise reader.malformed(f"tagged field {OUR_TAG:#x} of {len(extras)} bytes")
    session_timeout_ms, liveness, joined_ms, left_ms = _EXTRAS.unpack_from(extras)
    return Member(
        instance_id=instance_id,
        client=client,
        topics=topics,
        pattern=pattern,
        assignor=assignor or "sticky",
        session_timeout_ms=session_timeout_ms,
        max_poll_interval_ms=max_poll_interval_ms,
        liveness=liveness,
        joined_ms=joined_ms,
        left_ms=left_ms,
        replaced=_name(reader, extras[_EXTRAS.size :]),
    )


def decode_target(value: bytes) -> int:
    reader = _open(value, "target of a group")
    epoch = reader.i32()
    _close(reader)
    return epoch


def decode_target_member(value: bytes) -> frozenset[TopicPartition]:
    reader = _open(value, "target of a member")
    places = frozenset(_read_places(reader))
    _close(reader)
    return places


def decode_current(value: bytes) -> Current:
    reader = _open(value, "assignment of a member")
    epoch, previous, state = reader.i32(), reader.i32(), reader.i8()
    assigned, revoking = _read_places(reader), _read_places(reader)
    _close(reader)
    return Current(epoch, previous, state, assigned, revoking)


def _read_places(reader: FieldReader) -> dict[TopicPartition, int]:
    """Topics that carry no name of ours are passed over."""
    found: dict[TopicPartition, int] = {}
    for _ in range(reader.count()):
        reader.raw(16)
        numbers = reader.i32s()
        tagged = reader.tags()
        if OUR_TAG not in tagged:
            continue
        topic = _name(reader, tagged[OUR_TAG])
        epochs: Iterable[int] = (0,) * len(numbers)
        if EPOCHS_TAG in tagged:
            inner = FieldReader(tagged[EPOCHS_TAG], "list of partitions' epochs")
            epochs = inner.i32s()
            inner.finish()
            if len(epochs) != len(numbers):
                raise reader.malformed(f"{len(epochs)} epochs for {len(numbers)} partitions")
        for number, since in zip(numbers, epochs, strict=True):
            found[TopicPartition(topic, number)] = since
    return found
