"""A committed offset's value, its bytes in ``__consumer_offsets``, and all that are committed now.

The bytes (big-endian; a string is ``length i16, UTF-8 bytes``), from Kafka's ``OffsetCommitValue.json``:

    version i16 = 3 | offset i64 | leaderEpoch i32 | metadata string | commitTimestamp i64
    versions 0 and 2: offset i64 | metadata string | commitTimestamp i64
    version 1:        offset i64 | metadata string | commitTimestamp i64 | expireTimestamp i64
    version 4 (brokers from 4.1 on): as 3 with metadata as a compact string, then tagged fields (0: the topic's id),
    which are passed over
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logstore.errors import UnsupportedStoreVersionError
from logstore.groups.fields import FieldReader
from logstore.types import TopicPartition

VALUE_VERSION: Final = 3
NEWEST_VALUE_VERSION: Final = 4

_I16 = struct.Struct(">h")
_I64 = struct.Struct(">q")
_HEAD = struct.Struct(">hqi")  # version, offset, leaderEpoch
_PLAIN = struct.Struct(">hqihq")  # the same, metadata's length 0, commitTimestamp
_PLAIN_VERSION: Final = _I16.pack(VALUE_VERSION)
PLAIN_BYTES: Final = _PLAIN.size
pack_plain = _PLAIN.pack
"""``pack_plain(VALUE_VERSION, offset, leader_epoch, 0, commit_ms)``: a value without metadata."""


class OffsetValue(NamedTuple):
    """``offset``: the next to read; ``leader_epoch`` -1: unknown; ``commit_ms``: ms since 1970 UTC."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int


def encode_value(value: OffsetValue) -> bytes:
    if not value.metadata:
        return _PLAIN.pack(VALUE_VERSION, value.offset, value.leader_epoch, 0, value.commit_ms)
    metadata = value.metadata.encode()
    return b"".join(
        (
            _HEAD.pack(VALUE_VERSION, value.offset, value.leader_epoch),
            _I16.pack(len(metadata)),
            metadata,
            _I64.pack(value.commit_ms),
        )
    )


def is_plain(value: bytes) -> bool:
    """Of ``PLAIN_BYTES``: whether it is what ``pack_plain`` makes."""
    return value[:2] == _PLAIN_VERSION and value[14:16] == b"\0\0"


def are_plain(values: Sequence[bytes]) -> bool:
    """Whether all are what ``pack_plain`` makes: not looked at one by one."""
    if set(map(len, values)) != {PLAIN_BYTES}:
        return False
    joined, count = b"".join(values), len(values)
    return all(
        joined[at::PLAIN_BYTES].count(byte) == count
        for at, byte in ((0, _PLAIN_VERSION[:1]), (1, _PLAIN_VERSION[1:]), (14, b"\0"), (15, b"\0"))
    )


def decode_value(value: bytes) -> OffsetValue:
    """Versions 0 to 4. InvalidRecordError if malformed, UnsupportedStoreVersionError for a newer version."""
    if len(value) == PLAIN_BYTES:  # by far the most: what we write, without metadata
        version, offset, leader_epoch, length, commit_ms = _PLAIN.unpack(value)
        if version == VALUE_VERSION and length == 0:
            return OffsetValue(offset, leader_epoch, "", commit_ms)
    reader = FieldReader(value, "value of a committed offset")
    version = reader.i16()
    if version > NEWEST_VALUE_VERSION:
        raise UnsupportedStoreVersionError(
            f"committed offset of value version {version}: this version reads 0 to {NEWEST_VALUE_VERSION}"
        )
    if version < 0:
        raise reader.malformed(f"version {version}")
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else -1
    metadata = reader.string() if version < 4 else reader.compact_string()
    commit_ms = reader.i64()
    if version == 1:
        reader.i64()  # expireTimestamp: how long offsets are kept is the store's setting
    if version >= 4:
        reader.tags()
    reader.finish()
    return OffsetValue(offset, leader_epoch, metadata, commit_ms)


@dataclass(slots=True)
class CommittedOffsets:
    """What is committed, by group, topic and partition; no group or topic is empty.

    Values are kept as the bytes that ``encode_value`` makes: most are replaced before anybody looks at them, and a
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
        """Those committed then or before. The time is at the end of what ``encode_value`` makes."""
        return [
            TopicPartition(topic, partition)
            for topic, partitions in self._groups.get(group, {}).items()
            for partition, value in partitions.items()
            if int.from_bytes(value[-8:], signed=True) <= commit_ms
        ]

    def of_group(self, group: str) -> Mapping[TopicPartition, OffsetValue]:
        return {
            TopicPartition(topic, partition): decode_value(value)
            for topic, partitions in self._groups.get(group, {}).items()
            for partition, value in partitions.items()
        }
