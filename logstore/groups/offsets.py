"""Committed offsets of consumer groups: Kafka's ``__consumer_offsets`` records, and the state they build.

Layout (big-endian; a string is ``length i16, UTF-8 bytes``), from Kafka's message schema ``OffsetCommitKey.json``:

    key    version i16 (0 or 1; we write 1) | group string | topic string | partition i32
    value  see ``offset_values.py``
    null   deletes the key

Key versions 2 and up are of group metadata (``group_records.py``): replay skips and counts them here.

Offsets that a transaction commits are *pending* until its marker. A later commit of the same partition, inside a
transaction or outside of one, counts more than an earlier one, whichever is decided first.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, groupby
from operator import le
from typing import Final, NamedTuple, cast

from logstore.api.groups import are_offsets, validate_group
from logstore.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    UnknownGroupError,
    UnknownPartitionError,
)
from logstore.groups.fields import FieldReader, string
from logstore.groups.offset_values import (
    CommittedOffsets,
    OffsetValue,
    TopicIds,
    are_plain,
    decode_value,
    encode_value,
    is_of_topic,
    is_plain,
    plain_packer,
)
from logstore.machine import Change, Decision
from logstore.types import COUNTER_TOPIC, OffsetAndMetadata, TopicPartition

KEY_VERSION: Final = 1
MAX_METADATA_BYTES: Final = 4096  # Kafka's offset.metadata.max.bytes
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
OFFSET_KIND: Final = _I16.pack(KEY_VERSION)  # what keys of offsets begin with
_KNOWN_PREFIXES: Final = 1 << 16
_WORTH_TOGETHER: Final = 16  # fewer records are replayed one by one
_SHORTEST_RUN: Final = 4  # records of one group and topic in a row, on average


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


# --- codecs -----------------------------------------------------------------------------------------


def encode_key(group: str, topic: str, partition: int) -> bytes:
    return _key_prefix(group, topic) + _I32.pack(partition)


def _key_prefix(group: str, topic: str) -> bytes:
    return _I16.pack(KEY_VERSION) + string(group) + string(topic)


def decode_key(key: bytes) -> OffsetKey | None:
    """The offset key, or None for another kind of key (version 2 and up). InvalidRecordError if malformed."""
    reader = FieldReader(key, "key of a committed offset")
    if reader.i16() not in (0, KEY_VERSION):
        return None
    decoded = OffsetKey(reader.string(), reader.string(), reader.i32())
    reader.finish()
    return decoded


# --- the state machine ------------------------------------------------------------------------------


class _Pending(NamedTuple):
    """A transaction's offset of one partition. ``value`` None: it deletes."""

    epoch: int
    value: OffsetValue | None


class OffsetStore:
    """The committed offsets of all groups: a ``StateMachine`` over ``__consumer_offsets``.

    Not thread-safe; its owner holds the internal topic's lock while it decides, appends and replays.
    ``ignored_records``: replayed records of other kinds (group metadata of a Kafka broker, null keys).
    """

    def __init__(self) -> None:
        self.ignored_records = 0
        self._groups = CommittedOffsets()
        # group -> partition -> producer id -> what is pending, in the order of the log
        self._pending: dict[str, dict[TopicPartition, dict[int, _Pending]]] = {}
        self._prefixes: dict[bytes, tuple[str, str]] = {}  # a key without its partition -> group, topic

    def decide_commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
        end_offsets: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> Decision[dict[TopicPartition, OffsetAndMetadata]]:
        """Commit positions of ``group``; the reply is what will be committed. ``topic_ids``: to which topics they
        are bound, by name; those that it lacks are bound to none.

        ``end_offsets``: where each partition ends now; an offset past it is refused (it would skip records
        that are still to come). None leaves that check out: the ends are not known here.
        Raises InvalidGroupError, InvalidArgumentError, UnknownPartitionError.
        """
        validate_group(group)
        ids = topic_ids or {}
        if len(offsets) > 1 and _are_plain(offsets, end_offsets):
            return Decision(_plain_records(group, offsets, now_ms, ids), dict(offsets))
        records: list[Change] = []
        accepted: dict[TopicPartition, OffsetAndMetadata] = {}
        prefixes: dict[str, bytes] = {}
        for place, position in offsets.items():
            topic, partition = place
            offset, leader_epoch, metadata = position
            _check_position(group, topic, partition, position)
            if end_offsets is not None and topic != COUNTER_TOPIC:
                _check_end(group, topic, partition, offset, end_offsets)
            prefix = prefixes.get(topic)
            if prefix is None:
                prefix = prefixes[topic] = _key_prefix(group, topic)
            value = encode_value(OffsetValue(offset, leader_epoch, metadata, now_ms, ids.get(topic, b"")))
            records.append((prefix + _I32.pack(partition), value))
            accepted[TopicPartition(topic, partition)] = OffsetAndMetadata(offset, leader_epoch, metadata)
        return Decision(tuple(records), accepted)

    def decide_delete_group(self, group: str) -> Decision[list[TopicPartition]]:
        """Forget all offsets of ``group``, those of open transactions too; the reply lists their partitions.
        UnknownGroupError if none."""
        validate_group(group)
        places = self.places(group)
        if not places:
            raise UnknownGroupError(
                f"group {group!r} has no committed offsets to delete",
                hint="`logstore group list` shows the groups",
            )
        return Decision(_tombstones(group, places), places)

    def decide_delete_offsets(
        self, group: str, places: Collection[TopicPartition]
    ) -> Decision[list[TopicPartition]]:
        """Forget the offsets of these partitions; the reply lists those of them that had one."""
        validate_group(group)
        wanted = {TopicPartition(*place) for place in places}
        gone = [place for place in self.places(group) if place in wanted]
        return Decision(_tombstones(group, gone), gone)

    def decide_delete_topic(self, topic: str, topic_ids: TopicIds) -> Decision[list[str]]:
        """Forget every group's offsets in topics that had the name ``topic``, but not those in one that has it now.

        The reply lists the groups that had any; no records if none had.
        """
        records: list[Change] = []
        groups: list[str] = []
        for group in self.groups():
            mine = [place for place in self.lost(group, topic_ids) if place.topic == topic]
            records += _tombstones(group, mine)
            if mine:
                groups.append(group)
        return Decision(tuple(records), groups)

    def lost(self, group: str, topic_ids: TopicIds) -> list[TopicPartition]:
        """Partitions, sorted, of whose offsets, committed or pending, none is of a topic that there is now."""
        gone = set(self._groups.of_other_topics(group, topic_ids))
        for place, entries in self._pending.get(group, {}).items():
            values = [entry.value for entry in entries.values() if entry.value is not None]
            alive = any(is_of_topic(encode_value(value), place.topic, topic_ids) for value in values)
            if alive:
                gone.discard(place)
            elif self._groups.value(group, place) is None:
                gone.add(place)
        return sorted(gone)

    def expired(self, group: str, now_ms: int, retention_ms: int, since_ms: int = -1) -> list[TopicPartition]:
        """Partitions whose offset was committed, and the group empty, for ``retention_ms``. ``since_ms``: when
        the group became empty, -1 if it never had members. What is pending stays."""
        limit_ms = now_ms - retention_ms
        if since_ms > limit_ms:
            return []
        pending = self._pending.get(group, {})
        return sorted(
            place for place in self._groups.committed_until(group, limit_ms) if place not in pending
        )

    # --- replay ---

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. InvalidRecordError, UnsupportedStoreVersionError if it cannot be understood."""
        if key is not None and value is not None and not self._pending and self._replay_plain(key, value):
            return
        found = None if key is None else self._place(key)
        if found is None:
            self.ignored_records += 1
            return
        group, place = found
        if self._pending:
            self._superseded(group, place)
        self._put(group, place, None if value is None else decode_value(value))

    def replay_many(self, changes: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """As ``replay`` for each; a value that a later one of the same key replaces is not looked at."""
        newest = dict(changes)
        if len(newest) >= _WORTH_TOGETHER and not self._pending and self._replay_together(newest):
            return
        replay = self.replay
        for key, value in newest.items():
            replay(key, value)

    def _replay_together(self, newest: dict[bytes | None, bytes | None]) -> bool:
        """Keys of offsets, values without metadata, and no look at one of them in Python. False: something else is
        among them, nothing was done."""
        if None in newest or set(map(type, newest.values())) != {bytes}:
            return False
        keys, values = cast("list[bytes]", list(newest)), cast("list[bytes]", list(newest.values()))
        heads = [key[:-4] for key in keys]
        runs = [(head, len(list(run))) for head, run in groupby(heads)]
        if len(runs) * _SHORTEST_RUN > len(keys) or not are_plain(values):
            return False  # e.g. each key of another group than the one before
        if None in [self._place(key) for key in dict(zip(heads, keys, strict=True)).values()]:
            return False
        partitions = struct.unpack(f">{len(keys)}i", b"".join([key[-4:] for key in keys]))
        start = 0
        for head, count in runs:
            end = start + count
            self._groups.put_all(
                *self._prefixes[head], zip(partitions[start:end], values[start:end], strict=True)
            )
            start = end
        return True

    def _replay_plain(self, key: bytes, value: bytes) -> bool:
        """The short way of nearly all records: a known group and topic, a value without metadata. False: it is
        another kind, nothing was done."""
        known = self._prefixes.get(key[:-4])
        if known is None or not is_plain(value):
            return False
        self._groups.put(*known, int.from_bytes(key[-4:], signed=True), value)
        return True

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        """A transaction's commit. InvalidRecordError for any other kind of record in a transaction."""
        found = None if key is None else self._place(key)
        if found is None:
            shown = "no key" if key is None else f"key {key[:24].hex()}"
            raise InvalidRecordError(
                f"producer {producer_id} (epoch {epoch}) has a record with {shown} in its transaction on "
                "__consumer_offsets: only committed offsets can be part of one"
            )
        group, place = found
        entries = self._pending.setdefault(group, {}).setdefault(place, {})
        entries.pop(producer_id, None)  # the newest commit is the last of them
        entries[producer_id] = _Pending(epoch, None if value is None else decode_value(value))

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        """The producer's pending offsets count, or are forgotten; those of a later epoch are left alone."""
        for group in list(self._pending):
            places = self._pending[group]
            for place in list(places):
                entries = places[place]
                pending = entries.get(producer_id)
                if pending is None or pending.epoch > epoch:
                    continue
                if committed:
                    self._put(group, place, pending.value)
                    for earlier in list(entries):
                        entries.pop(earlier)
                        if earlier == producer_id:
                            break
                else:
                    del entries[producer_id]
                if not entries:
                    del places[place]
            if not places:
                del self._pending[group]

    def _place(self, key: bytes) -> tuple[str, TopicPartition] | None:
        prefix = key[:-4]
        known = self._prefixes.get(prefix)
        if known is None:
            decoded = decode_key(key)
            if decoded is None:
                return None
            if len(self._prefixes) >= _KNOWN_PREFIXES:
                self._prefixes.clear()
            known = self._prefixes[prefix] = (decoded.group, decoded.topic)
        return known[0], TopicPartition(known[1], int.from_bytes(key[-4:], signed=True))

    def _put(self, group: str, place: TopicPartition, value: OffsetValue | None) -> None:
        if value is None:
            self._groups.remove(group, place)
        else:
            self._groups.put(group, *place, encode_value(value))

    def _superseded(self, group: str, place: TopicPartition) -> None:
        """A commit outside of transactions counts more than those that were pending before it."""
        places = self._pending.get(group)
        if places is not None and places.pop(place, None) is not None and not places:
            del self._pending[group]

    # --- looks ---

    def committed(
        self, group: str, topic_ids: TopicIds | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """A copy of the group's offsets; empty for a group that never committed. ``topic_ids``: only those in topics
        that there are now; else all that is in the log. InvalidGroupError."""
        validate_group(group)
        return {
            place: OffsetAndMetadata(value.offset, value.leader_epoch, value.metadata)
            for place, value in self._groups.of_group(group, topic_ids).items()
        }

    def commit_times_ms(self, group: str) -> dict[TopicPartition, int]:
        """When each of the group's offsets was committed, in ms since 1970 UTC."""
        return {place: value.commit_ms for place, value in self._groups.of_group(group).items()}

    def pending(self, group: str, topic_ids: TopicIds | None = None) -> dict[TopicPartition, int]:
        """Partitions with an offset in an open transaction, and the producer id of the newest such. ``topic_ids``:
        as of ``committed``."""
        found = {place: next(reversed(entries)) for place, entries in self._pending.get(group, {}).items()}
        if topic_ids is None:
            return found
        lost = set(self.lost(group, topic_ids))
        return {place: producer_id for place, producer_id in found.items() if place not in lost}

    def pending_producers(self) -> dict[int, int]:
        """Producer ids with open transactions here, and their epochs."""
        return {
            producer_id: pending.epoch
            for places in self._pending.values()
            for entries in places.values()
            for producer_id, pending in entries.items()
        }

    def places(self, group: str) -> list[TopicPartition]:
        """Partitions with an offset, committed or pending, sorted."""
        return sorted(self._groups.places(group) | self._pending.get(group, {}).keys())

    def groups(self) -> list[str]:
        """Names of the groups that have at least one offset, committed or pending, sorted."""
        return sorted({*self._groups.names(), *self._pending})


def _are_plain(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], ends: Mapping[TopicPartition, int] | None
) -> bool:
    """Whether all are of the usual kind, without metadata, and not past their ends: told without a look at each in
    Python. False: one is not, and is to be found."""
    if not are_offsets(offsets):
        return False
    topics = {topic for topic, _ in offsets}
    numbers, leader_epochs, metadata = zip(*offsets.values(), strict=True)
    if set(map(type, metadata)) != {str} or any(metadata):
        return False
    if set(map(type, chain(numbers, leader_epochs))) != {int}:
        return False
    if min(numbers) < 0 or max(numbers) > INT64_MAX:
        return False
    if min(leader_epochs) < -1 or max(leader_epochs) > INT32_MAX:
        return False
    if ends is None:
        return True
    if COUNTER_TOPIC in topics or not ends.keys() >= offsets.keys():
        return False
    return all(map(le, numbers, map(ends.__getitem__, offsets)))


def _plain_records(
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    now_ms: int,
    topic_ids: Mapping[str, bytes],
) -> tuple[Change, ...]:
    topics = {topic for topic, _ in offsets}
    heads = {topic: _key_prefix(group, topic) for topic in topics}
    packers = {topic: plain_packer(now_ms, topic_ids.get(topic, b"")) for topic in topics}
    pack_number = _I32.pack
    return tuple(
        [
            (heads[topic] + pack_number(partition), packers[topic](offset, leader_epoch))
            for (topic, partition), (offset, leader_epoch, _) in offsets.items()
        ]
    )


def _tombstones(group: str, places: Collection[TopicPartition]) -> tuple[Change, ...]:
    return tuple((encode_key(group, *place), None) for place in places)


def _check_position(group: str, topic: str, partition: int, position: OffsetAndMetadata) -> None:
    offset, leader_epoch, metadata = position
    if (
        metadata == ""
        and type(partition) is type(offset) is type(leader_epoch) is int
        and 0 <= partition <= INT32_MAX
        and 0 <= offset <= INT64_MAX
        and -1 <= leader_epoch <= INT32_MAX
    ):
        return  # nearly every position of nearly every commit
    where = f"group {group!r} cannot commit for {topic}-{partition}"
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
    end = end_offsets.get((topic, partition))  # type: ignore[call-overload]  # equal to a TopicPartition
    if end is None:
        raise UnknownPartitionError(f"group {group!r} cannot commit for {topic}-{partition}: there is none")
    if offset > end:
        raise InvalidArgumentError(
            f"group {group!r} cannot commit offset {offset} of {topic}-{partition}: its end is {end}",
            hint="commit the offset after the last record you processed, at most the end",
        )
