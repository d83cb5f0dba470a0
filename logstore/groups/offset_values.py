"""A committed offset's value, its bytes in ``__consumer_offsets``, and all that are committed now.

The bytes (big-endian; a string is ``length i16, UTF-8 bytes``), from Kafka's ``OffsetCommitValue.json``:

    version i16 = 4 | offset i64 | leaderEpoch i32 | metadata compact string | commitTimestamp i64 | tagged fields
    version 3:        offset i64 | leaderEpoch i32 | metadata string | commitTimestamp i64
    versions 0 and 2: offset i64 | metadata string | commitTimestamp i64
    version 1:        offset i64 | metadata string | commitTimestamp i64 | expireTimestamp i64

Tagged field 0 of version 4 (brokers from 4.1 on write it) is the id of the topic: the key has only its name, which
another topic may have had before. A value without an id is written as version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from logstore.errors import UnsupportedStoreVersionError
from logstore.groups.fields import FieldReader, compact_string
from logstore.types import COUNTER_TOPIC, TopicPartition

UNBOUND_VERSION: Final = 3
BOUND_VERSION: Final = 4
NO_TOPIC: Final = bytes(16)  # Kafka's id of no topic

TopicIds: TypeAlias = Callable[[str], bytes | None]
"""The id that the topic of a name has now, 16 bytes; None: there is no such topic."""


class SeenEnds(NamedTuple):
    """``ends``: of each partition; ``topic_ids``: of their topics, by name, when they were looked at."""

    ends: dict[TopicPartition, int]
    topic_ids: dict[str, str]


_I16 = struct.Struct(">h")
_I64 = struct.Struct(">q")
_HEAD = struct.Struct(">hqi")  # version, offset, leaderEpoch
_PLAIN = struct.Struct(">hqihq")  # the same, metadata's length 0, commitTimestamp
_BOUND = struct.Struct(
    ">hqiBq3s16s"
)  # the same, metadata's length + 1, commitTimestamp, the field's head, the id
_ID_HEAD: Final = b"\x01\x00\x10"  # one tagged field, number 0, of 16 bytes
# Where a value without metadata has what all such values share, by its size.
_PLAIN_BYTES: Final = _PLAIN.size
_BOUND_BYTES: Final = _BOUND.size
_SHARED: Final = {
    _PLAIN_BYTES: tuple(zip((0, 1, 14, 15), _I16.pack(UNBOUND_VERSION) + b"\0\0", strict=True)),
    _BOUND_BYTES: tuple(
        zip((0, 1, 14, 23, 24, 25), _I16.pack(BOUND_VERSION) + b"\1" + _ID_HEAD, strict=True)
    ),
}


class OffsetValue(NamedTuple):
    """``offset``: the next to read; ``leader_epoch`` -1: unknown; ``commit_ms``: ms since 1970 UTC; ``topic_id``: 16
    bytes, empty if the value does not say which topic it is of."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    topic_id: bytes = b""


def plain_packer(commit_ms: int, topic_id: bytes) -> Callable[[int, int], bytes]:
    """What makes values without metadata, of (offset, leader epoch)."""
    if topic_id:
        pack_bound = _BOUND.pack
        return lambda offset, epoch: pack_bound(
            BOUND_VERSION, offset, epoch, 1, commit_ms, _ID_HEAD, topic_id
        )
    pack = _PLAIN.pack
    return lambda offset, epoch: pack(UNBOUND_VERSION, offset, epoch, 0, commit_ms)


def encode_value(value: OffsetValue) -> bytes:
    if not value.metadata:
        return plain_packer(value.commit_ms, value.topic_id)(value.offset, value.leader_epoch)
    if value.topic_id:
        return b"".join(
            (
                _HEAD.pack(BOUND_VERSION, value.offset, value.leader_epoch),
                compact_string(value.metadata),
                _I64.pack(value.commit_ms),
                _ID_HEAD,
                value.topic_id,
            )
        )
    metadata = value.metadata.encode()
    return b"".join(
        (
            _HEAD.pack(UNBOUND_VERSION, value.offset, value.leader_epoch),
            _I16.pack(len(metadata)),
            metadata,
            _I64.pack(value.commit_ms),
        )
    )


def is_plain(value: bytes) -> bool:
    """Whether it is what a ``plain_packer`` makes."""
    size = len(value)
    if size == _BOUND_BYTES:
        return value[:2] == b"\0\4" and value[14] == 1 and value[23:26] == _ID_HEAD
    return size == _PLAIN_BYTES and value[:2] == b"\0\3" and value[14:16] == b"\0\0"


def are_plain(values: Sequence[bytes]) -> bool:
    """Whether all are what plain packers make, all bound to topics or none: not looked at one by one."""
    sizes = set(map(len, values))
    if len(sizes) != 1 or (size := sizes.pop()) not in _SHARED:
        return False
    joined, count = b"".join(values), len(values)
    return all(joined[at::size].count(byte) == count for at, byte in _SHARED[size])


def topic_id_of(value: bytes) -> bytes:
    """Of what ``encode_value`` makes: the topic's id, empty if it is not bound to one."""
    return value[-16:] if value[1] == BOUND_VERSION else b""


def is_of_topic(value: bytes, topic: str, topic_ids: TopicIds) -> bool:
    """Whether an offset counts for the topic that has the name now. Of a value that does not say which topic it is
    of (older versions wrote none else) there was no other when it was committed."""
    if topic == COUNTER_TOPIC:
        return True
    now = topic_ids(topic)
    return now is not None and topic_id_of(value) in (now, b"", NO_TOPIC)


def commit_ms_of(value: bytes) -> int:
    """Of what ``encode_value`` makes."""
    time = value[-27:-19] if value[1] == BOUND_VERSION else value[-8:]
    return int.from_bytes(time, signed=True)


def decode_value(value: bytes) -> OffsetValue:
    """Versions 0 to 4. InvalidRecordError if malformed, UnsupportedStoreVersionError for a newer version."""
    if is_plain(value):  # by far the most: what we write, without metadata
        if len(value) == _BOUND_BYTES:
            _, offset, leader_epoch, _, commit_ms, _, topic_id = _BOUND.unpack(value)
            return OffsetValue(offset, leader_epoch, "", commit_ms, topic_id)
        _, offset, leader_epoch, _, commit_ms = _PLAIN.unpack(value)
        return OffsetValue(offset, leader_epoch, "", commit_ms)
    reader = FieldReader(value, "value of a committed offset")
    version = reader.i16()
    if version > BOUND_VERSION:
        raise UnsupportedStoreVersionError(
            f"committed offset of value version {version}: this version reads 0 to {BOUND_VERSION}"
        )
    if version < 0:
        raise reader.malformed(f"version {version}")
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else -1
    metadata = reader.string() if version < 4 else reader.compact_string()
    commit_ms = reader.i64()
    if version == 1:
        reader.i64()  # expireTimestamp: how long offsets are kept is the store's setting
    topic_id = reader.tags().get(0, b"") if version >= BOUND_VERSION else b""
    reader.finish()
    if len(topic_id) not in (0, 16):
        raise reader.malformed(f"the id of a topic has {len(topic_id)} bytes")
    return OffsetValue(offset, leader_epoch, metadata, commit_ms, b"" if topic_id == NO_TOPIC else topic_id)


@dataclass(slots=True)
class CommittedOffsets:
    """What is committed, by group, topic and partition; no group or topic is empty.

    Values are kept as the bytes that ``encode_value`` makes: most are replaced before any reader asks for them, and a
    million tuples would be a million objects for every collection of garbage to go through.
    """

    _groups: dict[str, dict[str, dict[int, bytes]]] = field(default_factory=dict)

    def put(self, group: str, topic: str, partition: int, value: bytes) -> None:
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = value

    def put_all(self, group: str, topic: str, values: Iterable[tuple[int, bytes]]) -> None:
        """By partition; at least one."""
        self._groups.setdefault(group, {}).setdefault(topic, {}).update(values)

    def remove(self, group: str, place: TopicPartition) -> None:
        """Nothing to remove is fine."""
        topics = self._groups.get(group, {})
        partitions = topics.get(place.topic, {})
        if partitions.pop(place.partition, None) is None or partitions:
            return
        del topics[place.topic]
        if not topics:
            del self._groups[group]

    def names(self) -> Iterable[str]:
        """Of the groups that have any."""
        return self._groups.keys()

    def places(self, group: str) -> set[TopicPartition]:
        found = self._groups.get(group, {})
        return {
            TopicPartition(topic, partition)
            for topic, partitions in found.items()
            for partition in partitions
        }

    def committed_until(self, group: str, commit_ms: int) -> list[TopicPartition]:
        """Those committed then or before."""
        return [
            TopicPartition(topic, partition)
            for topic, partitions in self._groups.get(group, {}).items()
            for partition, value in partitions.items()
            if commit_ms_of(value) <= commit_ms
        ]

    def of_other_topics(self, group: str, topic_ids: TopicIds) -> list[TopicPartition]:
        """Those whose topic is not there any more, whatever has its name now."""
        return [
            TopicPartition(topic, partition)
            for topic, partitions in self._groups.get(group, {}).items()
            for partition, value in partitions.items()
            if not is_of_topic(value, topic, topic_ids)
        ]

    def value(self, group: str, place: TopicPartition) -> bytes | None:
        return self._groups.get(group, {}).get(place.topic, {}).get(place.partition)

    def of_group(self, group: str, topic_ids: TopicIds | None = None) -> Mapping[TopicPartition, OffsetValue]:
        """``topic_ids``: only what counts for the topics that there are now."""
        return {
            TopicPartition(topic, partition): decode_value(value)
            for topic, partitions in self._groups.get(group, {}).items()
            for partition, value in partitions.items()
            if topic_ids is None or is_of_topic(value, topic, topic_ids)
        }
