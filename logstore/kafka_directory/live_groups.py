"""Groups of a Kafka broker with their members, as its records of ``__consumer_offsets`` have them.

Key versions 0 and 1 are committed offsets (``groups/offsets.py``), 3 to 8 groups of the consumer protocol
(``groups/group_records.py``, KIP-848), all others but 2 are passed over. Version 2 is a classic group:

    key    version i16 = 2 | group string
    value  version i16 (0 to 4; from 4 on compact, with tagged fields) | protocol type | generation i32 | assignor? |
           leader? | state's time i64 (from 2 on) | members, each: member id | instance id? (from 3 on) | client |
           host | rebalance timeout i32 (from 1 on) | session timeout i32 | subscription bytes | assignment bytes

and subscription and assignment, which clients wrote, begin (``ConsumerProtocolSubscription.json``,
``ConsumerProtocolAssignment.json``; arrays have an i32 count):

    subscription  version i16 | [topic string]
    assignment    version i16 | [topic string | [partition i32]]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from logstore.api.groups import GroupState, GroupSummary, MemberDescription
from logstore.errors import InvalidRecordError, UnsupportedStoreVersionError
from logstore.groups.fields import FieldReader
from logstore.groups.group_records import (
    CURRENT,
    GROUP,
    KINDS,
    MEMBER,
    OUR_TAG,
    STABLE,
    TARGET,
    TARGET_MEMBER,
    GroupKey,
    decode_key,
)
from logstore.groups.offsets import OffsetStore
from logstore.types import TopicPartition

CLASSIC: Final = 2
_NEWEST_CLASSIC: Final = 4
_DEFAULT_ASSIGNOR: Final = "uniform"  # a broker's, where no member asks for one
_NOT_SAID: Final = -1


@dataclass(slots=True)
class _Member:
    """``state``: ``STABLE`` or what it still has to give up or to get."""

    instance_id: str | None = None
    client: str = ""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None
    session_timeout_ms: int = _NOT_SAID
    epoch: int = 0
    state: int = STABLE
    assigned: tuple[TopicPartition, ...] = ()
    revoking: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] = ()


@dataclass(slots=True)
class _Group:
    """``classic``: the assignor of a classic group, None for one of the consumer protocol."""

    epoch: int = 0
    target_epoch: int = 0
    classic: str | None = None
    members: dict[str, _Member] = field(default_factory=dict)

    @property
    def state(self) -> GroupState:
        if not self.members:
            return "empty"
        settled = self.epoch == self.target_epoch and all(
            member.state == STABLE and member.epoch == self.epoch and member.assigned == member.target
            for member in self.members.values()
        )
        return "stable" if settled or self.classic is not None else "reconciling"

    @property
    def assignor(self) -> str:
        if self.classic is not None:
            return self.classic
        wanted = Counter(member.assignor for member in self.members.values() if member.assignor)
        return wanted.most_common(1)[0][0] if wanted else _DEFAULT_ASSIGNOR


class LiveGroups:
    """A machine over ``__consumer_offsets``. ``name_of``: a topic's name by its id of 16 bytes, None if it is not
    known (its partitions are then left out). Not thread-safe."""

    def __init__(self, name_of: Callable[[bytes], str | None]) -> None:
        self.offsets = OffsetStore()
        self._name_of = name_of
        self._groups: dict[str, _Group] = {}

    def summaries(self) -> list[GroupSummary]:
        """Groups with offsets or with records of their own, by name."""
        names = sorted({*self.offsets.groups(), *self._groups})
        return [self._summary(name, self._groups.get(name, _Group())) for name in names]

    def _summary(self, name: str, group: _Group) -> GroupSummary:
        members = tuple(
            MemberDescription(
                member_id=member_id,
                instance_id=member.instance_id,
                client=member.client,
                topics=member.topics,
                pattern=member.pattern,
                epoch=member.epoch,
                assigned=member.assigned,
                revoking=member.revoking,
                target=member.target,
                session_timeout_ms=member.session_timeout_ms,
                left=member.epoch == -2,  # a static member that will be back
            )
            for member_id, member in sorted(group.members.items())
        )
        return GroupSummary(
            name, group.state, members, self.offsets.committed(name), group.assignor, group.epoch
        )

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. InvalidRecordError, UnsupportedStoreVersionError."""
        self.offsets.replay(key, value)
        if key is None:
            return
        reader = FieldReader(key, "key of a group")
        kind = reader.i16()
        if kind == CLASSIC:
            self._replay_classic(reader.string(), value)
        elif kind in KINDS and (found := decode_key(key)) is not None:
            self._replay_consumer(found, value)

    # --- the consumer protocol ---

    def _replay_consumer(self, key: GroupKey, value: bytes | None) -> None:
        if value is None:
            self._delete(key)
            return
        group = self._groups.setdefault(key.group, _Group())
        group.classic = None
        reader = FieldReader(value, f"record of kind {key.kind} of group {key.group!r}")
        _check_version(reader, 0)
        if key.kind == GROUP:
            group.epoch = reader.i32()
        elif key.kind == TARGET:
            group.target_epoch = reader.i32()
        elif key.kind in (MEMBER, TARGET_MEMBER, CURRENT):
            self._replay_member(key.kind, group.members.setdefault(key.member_id, _Member()), reader)

    def _replay_member(self, kind: int, member: _Member, reader: FieldReader) -> None:
        if kind == TARGET_MEMBER:
            member.target = self._places(reader)
        elif kind == CURRENT:
            member.epoch, _previous, member.state = reader.i32(), reader.i32(), reader.i8()
            member.assigned, member.revoking = self._places(reader), self._places(reader)
        else:
            member.instance_id, _rack = reader.nullable_string(), reader.nullable_string()
            member.client, host = reader.compact_string(), reader.compact_string()
            member.client += host  # "consumer-1" and "/10.0.0.7", as Kafka's own tool shows them
            member.topics = tuple(sorted(reader.compact_string() for _ in range(reader.count())))
            member.pattern, _timeout_ms = reader.nullable_string() or None, reader.i32()
            member.assignor = reader.nullable_string()

    def _delete(self, key: GroupKey) -> None:
        group = self._groups.get(key.group)
        if group is None:
            return
        if key.kind == GROUP:
            del self._groups[key.group]
        elif key.kind == MEMBER:
            group.members.pop(key.member_id, None)
        elif key.kind == TARGET_MEMBER and key.member_id in group.members:
            group.members[key.member_id].target = ()
        elif key.kind == CURRENT and key.member_id in group.members:
            group.members[key.member_id].assigned = group.members[key.member_id].revoking = ()

    def _places(self, reader: FieldReader) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(reader.count()):
            topic_id, numbers, tagged = reader.raw(16), reader.i32s(), reader.tags()
            name = tagged[OUR_TAG].decode() if OUR_TAG in tagged else self._name_of(topic_id)
            if name is not None:
                found += (TopicPartition(name, number) for number in numbers)
        return tuple(sorted(found))

    # --- classic groups ---

    def _replay_classic(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(name, None)
            return
        reader = FieldReader(value, f"metadata of group {name!r}")
        version = _check_version(reader, _NEWEST_CLASSIC)
        compact = version >= 4
        _text(reader, compact)
        group = _Group(epoch=reader.i32())
        group.target_epoch = group.epoch
        group.classic = _text(reader, compact) or "-"
        _text(reader, compact)
        if version >= 2:
            reader.i64()
        for _ in range(reader.count() if compact else max(reader.i32(), 0)):
            member_id = _text(reader, compact) or ""
            member = group.members[member_id] = _Member(epoch=group.epoch)
            if version >= 3:
                member.instance_id = _text(reader, compact)
            member.client = (_text(reader, compact) or "") + (_text(reader, compact) or "")
            if version >= 1:
                reader.i32()
            member.session_timeout_ms = reader.i32()
            member.topics = _subscribed(_bytes(reader, compact))
            member.assigned = member.target = _assigned(_bytes(reader, compact))
            if compact:
                reader.tags()
        self._groups[name] = group


def _check_version(reader: FieldReader, newest: int) -> int:
    version = reader.i16()
    if not 0 <= version <= newest:
        raise UnsupportedStoreVersionError(
            f"a record of a group of version {version}: this version reads 0 to {newest}"
        )
    return version


def _text(reader: FieldReader, compact: bool) -> str | None:
    if compact:
        return reader.nullable_string()
    length = reader.i16()
    return None if length < 0 else reader.raw(length).decode("utf-8", "replace")


def _bytes(reader: FieldReader, compact: bool) -> bytes:
    length = reader.unsigned_varint() - 1 if compact else reader.i32()
    return b"" if length < 0 else reader.raw(length)


def _subscribed(data: bytes) -> tuple[str, ...]:
    """Of what a client wrote; none if it is no consumer's (Connect has a format of its own)."""
    reader = FieldReader(data, "subscription of a member")
    try:
        reader.i16()
        return tuple(sorted(reader.string() for _ in range(reader.i32())))
    except InvalidRecordError:
        return ()


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    reader = FieldReader(data, "assignment of a member")
    found: list[TopicPartition] = []
    try:
        reader.i16()
        for _ in range(reader.i32()):
            topic = reader.string()
            found += (TopicPartition(topic, reader.i32()) for _ in range(reader.i32()))
    except InvalidRecordError:
        return ()
    return tuple(sorted(found))
