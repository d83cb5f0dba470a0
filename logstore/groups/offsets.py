"""Committed offsets of consumer groups: Kafka's ``__consumer_offsets`` records, and the state they build.

Layout (big-endian; a string is ``length i16, UTF-8 bytes``), from Kafka's message schemas
``OffsetCommitKey.json`` and ``OffsetCommitValue.json``:

    key    version i16 (0 or 1; we write 1) | group string | topic string | partition i32
    value  version i16 = 3 | offset i64 | leaderEpoch i32 | metadata string | commitTimestamp i64
           versions 0 and 2: offset i64 | metadata string | commitTimestamp i64
           version 1:        offset i64 | metadata string | commitTimestamp i64 | expireTimestamp i64
           version 4 (brokers from 4.1 on): as 3 with metadata as a compact string, then tagged fields (0: the
           topic's id), which are passed over
    null   deletes the key

A Kafka directory also holds group metadata under other key versions (2 and up): replay skips and counts them.
Expiry of the offsets of dead groups comes with shared groups; nothing here forgets by time.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from logstore.arguments import mapping, partition_place, whole
from logstore.errors import (
    InvalidArgumentError,
    InvalidGroupError,
    InvalidRecordError,
    UnknownGroupError,
    UnknownPartitionError,
    UnsupportedStoreVersionError,
)
from logstore.machine import Change, Decision
from logstore.types import OffsetAndMetadata, TopicPartition

KEY_VERSION: Final = 1
VALUE_VERSION: Final = 3
NEWEST_VALUE_VERSION: Final = 4
MAX_GROUP_CHARACTERS: Final = 249
MAX_METADATA_BYTES: Final = 4096  # Kafka's offset.metadata.max.bytes
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_VALUE_HEAD = struct.Struct(">hqi")  # version, offset, leaderEpoch
_BARE_VALUE = struct.Struct(">hqihq")  # the same, metadata of 0 bytes, commitTimestamp
_KEY_HEAD = struct.Struct(">hh")  # version, length of the group's name


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    """``offset``: the next to read; ``leader_epoch`` -1: unknown; ``commit_ms``: ms since 1970 UTC."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int


def validate_group(group: str) -> None:
    """InvalidGroupError unless ``group`` is 1 to 249 characters of valid Unicode without NUL."""
    if not isinstance(group, str):
        raise InvalidGroupError(f"a group name is text, not {type(group).__name__}")
    if not 1 <= len(group) <= MAX_GROUP_CHARACTERS:
        raise InvalidGroupError(f"group name of {len(group)} characters: {group[:40]!r}")
    if "\0" in group or any("\ud800" <= character <= "\udfff" for character in group):
        raise InvalidGroupError(f"group name {group!r} holds a NUL or half of a surrogate pair")


# --- codecs -----------------------------------------------------------------------------------------


def encode_key(group: str, topic: str, partition: int) -> bytes:
    group_bytes = group.encode()
    topic_bytes = topic.encode()
    return b"".join(
        (
            _I16.pack(KEY_VERSION),
            _I16.pack(len(group_bytes)),
            group_bytes,
            _I16.pack(len(topic_bytes)),
            topic_bytes,
            _I32.pack(partition),
        )
    )


def encode_value(value: OffsetValue) -> bytes:
    metadata = value.metadata.encode()
    return b"".join(
        (
            _VALUE_HEAD.pack(VALUE_VERSION, value.offset, value.leader_epoch),
            _I16.pack(len(metadata)),
            metadata,
            _I64.pack(value.commit_ms),
        )
    )


def decode_key(key: bytes) -> OffsetKey | None:
    """The offset key, or None for another kind of key (version 2 and up). InvalidRecordError if malformed."""
    return _sound_key(key) or _read_key(key)


def _sound_key(key: bytes) -> OffsetKey | None:
    """The key as brokers write it, at a third of the price; None: it is to be read with more care."""
    try:
        version, length = _KEY_HEAD.unpack_from(key)
        group_end = 4 + length
        topic_end = len(key) - 4
        if not 0 <= version <= KEY_VERSION or length < 0 or group_end + 2 > topic_end:
            return None
        if _I16.unpack_from(key, group_end)[0] != topic_end - group_end - 2:
            return None
        group, topic = key[4:group_end].decode(), key[group_end + 2 : topic_end].decode()
        return OffsetKey(group, topic, _I32.unpack_from(key, topic_end)[0])
    except (struct.error, UnicodeDecodeError):
        return None


def _read_key(key: bytes) -> OffsetKey | None:
    reader = _Reader(key, "key")
    if reader.i16() not in (0, KEY_VERSION):
        return None
    decoded = OffsetKey(reader.string(), reader.string(), reader.i32())
    reader.finish()
    return decoded


def decode_value(value: bytes) -> OffsetValue:
    """Versions 0 to 4. InvalidRecordError if malformed, UnsupportedStoreVersionError for a newer version."""
    if len(value) == _BARE_VALUE.size:  # most often: no metadata
        version, offset, leader_epoch, length, commit_ms = _BARE_VALUE.unpack(value)
        if version == VALUE_VERSION and length == 0:
            return OffsetValue(offset, leader_epoch, "", commit_ms)
    reader = _Reader(value, "value")
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
        reader.i64()  # expireTimestamp: offsets outlive it here, see the module's docstring
    if version >= 4:
        reader.tagged_fields()
    reader.finish()
    return OffsetValue(offset, leader_epoch, metadata, commit_ms)


class _Reader:
    """Reads fields one after the other and refuses to run past the end."""

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = bytes(data)
        self._at = 0
        self._what = what

    def malformed(self, why: str) -> InvalidRecordError:
        return InvalidRecordError(
            f"malformed {self._what} of a committed offset, {len(self._data)} bytes: {why}",
            hint="run `logstore log verify` on __consumer_offsets",
        )

    def _number(self, form: struct.Struct) -> int:
        try:
            number: int = form.unpack_from(self._data, self._at)[0]
        except struct.error:
            raise self.malformed(f"it ends inside the field at byte {self._at}") from None
        self._at += form.size
        return number

    def i16(self) -> int:
        return self._number(_I16)

    def i32(self) -> int:
        return self._number(_I32)

    def i64(self) -> int:
        return self._number(_I64)

    def unsigned_varint(self) -> int:
        start, value = self._at, 0
        for shift in range(0, 35, 7):
            if self._at >= len(self._data):
                break
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.malformed(f"the number at byte {start} does not end")

    def tagged_fields(self) -> None:
        for _ in range(self.unsigned_varint()):
            tag, size = self.unsigned_varint(), self.unsigned_varint()
            if self._at + size > len(self._data):
                raise self.malformed(f"tagged field {tag} of {size} bytes")
            self._at += size

    def compact_string(self) -> str:
        field = self._at
        length = self.unsigned_varint() - 1
        return self._text(length, self._at - field)

    def string(self) -> str:
        return self._text(self._number(_I16), 2)

    def _text(self, length: int, head: int) -> str:
        """``length`` bytes of text, behind a length field of ``head`` bytes."""
        start = self._at
        if length < 0 or start + length > len(self._data):
            raise self.malformed(f"string length {length} at byte {start - head}")
        self._at = start + length
        try:
            return self._data[start : self._at].decode()
        except UnicodeDecodeError as error:
            raise self.malformed(f"string at byte {start} is not UTF-8: {error.reason}") from None

    def finish(self) -> None:
        if self._at != len(self._data):
            raise self.malformed(f"{len(self._data) - self._at} bytes too many")


# --- the state machine ------------------------------------------------------------------------------


def checked_offsets(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is to be committed, by kind: partitions as (topic, partition), positions as ``OffsetAndMetadata``
    (or just offsets). InvalidArgumentError."""
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for place, position in mapping(offsets, "offsets", "(topic, partition) -> OffsetAndMetadata").items():
        if not isinstance(position, tuple) or len(position) != 3:
            position = OffsetAndMetadata(whole(position, "offset"))
        checked[partition_place(place)] = OffsetAndMetadata(*position)
    return checked


class OffsetStore:
    """The committed offsets of all groups: a ``StateMachine`` over ``__consumer_offsets``.

    Not thread-safe; its owner holds the internal topic's lock while it decides, appends and replays.
    ``ignored_records``: replayed records of other kinds (group metadata of a Kafka broker, null keys).
    """

    def __init__(self) -> None:
        self.ignored_records = 0
        self._groups: dict[str, dict[TopicPartition, OffsetValue]] = {}

    def decide_commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
        end_offsets: Mapping[TopicPartition, int] | None = None,
    ) -> Decision[dict[TopicPartition, OffsetAndMetadata]]:
        """Commit positions of ``group``; the reply is what will be committed.

        ``end_offsets``: where each partition ends now; an offset past it is refused (it would skip records
        that are still to come). None leaves that check out: the ends are not known here.
        Raises InvalidGroupError, InvalidArgumentError, UnknownPartitionError.
        """
        validate_group(group)
        records: list[Change] = []
        accepted: dict[TopicPartition, OffsetAndMetadata] = {}
        for place, position in offsets.items():
            topic, partition = place
            offset, leader_epoch, metadata = position
            _check_position(group, topic, partition, position)
            if end_offsets is not None:
                _check_end(group, topic, partition, offset, end_offsets)
            value = encode_value(OffsetValue(offset, leader_epoch, metadata, now_ms))
            records.append((encode_key(group, topic, partition), value))
            accepted[TopicPartition(topic, partition)] = OffsetAndMetadata(offset, leader_epoch, metadata)
        return Decision(tuple(records), accepted)

    def decide_delete_group(self, group: str) -> Decision[list[TopicPartition]]:
        """Forget all offsets of ``group``; the reply lists their partitions. UnknownGroupError if none."""
        validate_group(group)
        places = self._groups.get(group)
        if not places:
            raise UnknownGroupError(
                f"group {group!r} has no committed offsets to delete",
                hint="`logstore group list` shows the groups",
            )
        records = tuple((encode_key(group, *place), None) for place in places)
        return Decision(records, sorted(places))

    def decide_delete_topic(self, topic: str) -> Decision[list[str]]:
        """Forget every group's offsets in ``topic``: a later topic of that name starts anew.

        The reply lists the groups that had any; no records if none had.
        """
        records: list[Change] = []
        groups: list[str] = []
        for group, places in self._groups.items():
            mine = [place for place in places if place.topic == topic]
            records.extend((encode_key(group, *place), None) for place in mine)
            if mine:
                groups.append(group)
        return Decision(tuple(records), sorted(groups))

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. InvalidRecordError, UnsupportedStoreVersionError if it cannot be understood."""
        decoded = None if key is None else decode_key(key)
        if decoded is None:
            self.ignored_records += 1
            return
        place = TopicPartition(decoded.topic, decoded.partition)
        if value is not None:
            self._groups.setdefault(decoded.group, {})[place] = decode_value(value)
            return
        places = self._groups.get(decoded.group)
        if places is not None and places.pop(place, None) is not None and not places:
            del self._groups[decoded.group]

    def replay_many(self, changes: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """As ``replay`` for each; a value that a later one of the same key replaces is not looked at."""
        groups, replay = self._groups, self.replay
        read_key, read_value, bare = _KEY_HEAD.unpack_from, _BARE_VALUE.unpack, _BARE_VALUE.size
        make = tuple.__new__  # as the constructors of named tuples do, without their frame
        for key, value in dict(changes).items():
            if key is None or value is None or len(value) != bare:
                replay(key, value)
                continue
            version, length = read_key(key) if len(key) > 10 else (-1, 0)
            group_end, topic_end = 4 + length, len(key) - 4
            written, offset, leader_epoch, metadata, commit_ms = read_value(value)
            if (
                version != KEY_VERSION
                or written != VALUE_VERSION
                or metadata
                or not 4 <= group_end < topic_end - 1
                or key[group_end : group_end + 2] != (topic_end - group_end - 2).to_bytes(2, "big")
            ):
                replay(key, value)  # with more care
                continue
            try:
                group, topic = key[4:group_end].decode(), key[group_end + 2 : topic_end].decode()
            except UnicodeDecodeError:
                replay(key, value)
                continue
            place = make(TopicPartition, (topic, int.from_bytes(key[topic_end:], "big", signed=True)))
            found = make(OffsetValue, (offset, leader_epoch, "", commit_ms))
            places = groups.get(group)
            if places is None:
                groups[group] = {place: found}
            else:
                places[place] = found

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        del epoch, key, value
        raise InvalidRecordError(
            f"producer {producer_id} committed offsets in a transaction, which this version cannot follow"
        )

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        del epoch, committed
        raise InvalidRecordError(
            f"a transaction of producer {producer_id} ended among the offsets, which this version cannot follow"
        )

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """A copy of the group's offsets; empty for a group that never committed. InvalidGroupError."""
        validate_group(group)
        return {
            place: OffsetAndMetadata(value.offset, value.leader_epoch, value.metadata)
            for place, value in self._groups.get(group, {}).items()
        }

    def commit_times_ms(self, group: str) -> dict[TopicPartition, int]:
        """When each of the group's offsets was committed, in ms since 1970 UTC."""
        return {place: value.commit_ms for place, value in self._groups.get(group, {}).items()}

    def groups(self) -> list[str]:
        """Names of the groups that have at least one committed offset, sorted."""
        return sorted(self._groups)


def _check_position(group: str, topic: str, partition: int, position: OffsetAndMetadata) -> None:
    where = f"group {group!r} cannot commit for {topic}-{partition}"
    offset, leader_epoch, metadata = position
    for name, number, low, high in (
        ("partition", partition, 0, INT32_MAX),
        ("offset", offset, 0, INT64_MAX),
        ("leader_epoch", leader_epoch, -1, INT32_MAX),
    ):
        if type(number) is not int or not low <= number <= high:
            raise InvalidArgumentError(
                f"{where}: {name} {number!r} is not a whole number from {low} to {high}"
            )
    if not isinstance(metadata, str):
        raise InvalidArgumentError(f"{where}: metadata is text, not {type(metadata).__name__}")
    if not metadata.isascii():
        try:
            size = len(metadata.encode())
        except UnicodeEncodeError:
            raise InvalidArgumentError(f"{where}: metadata holds half of a surrogate pair") from None
    else:
        size = len(metadata)
    if size > MAX_METADATA_BYTES:
        raise InvalidArgumentError(f"{where}: metadata of {size} bytes, at most {MAX_METADATA_BYTES} fit")


def _check_end(
    group: str, topic: str, partition: int, offset: int, end_offsets: Mapping[TopicPartition, int]
) -> None:
    end = end_offsets.get(TopicPartition(topic, partition))
    if end is None:
        raise UnknownPartitionError(f"group {group!r} cannot commit for {topic}-{partition}: there is none")
    if offset > end:
        raise InvalidArgumentError(
            f"group {group!r} cannot commit offset {offset} of {topic}-{partition}: its end is {end}",
            hint="commit the offset after the last record you processed, at most the end",
        )
