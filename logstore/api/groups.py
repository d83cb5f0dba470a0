"""Consumer groups as clients see them: the request to join, a member's part, and descriptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

from logstore.api.cancellation import CancelHandle
from logstore.arguments import mapping, partition_place, shown, whole
from logstore.errors import InvalidArgumentError, InvalidGroupError, LogStoreError
from logstore.types import OffsetAndMetadata, TopicPartition

MAX_GROUP_CHARACTERS: Final = 249
_MAX_PARTITION: Final = 2**31 - 1

Assignor: TypeAlias = Literal["range", "round_robin", "sticky"]
ASSIGNORS: Final[tuple[str, ...]] = get_args(Assignor)


GroupState: TypeAlias = Literal["empty", "stable", "reconciling"]


class MemberIdentity(NamedTuple):
    """Who commits: a member, under the generation in which it was given what it commits for."""

    member_id: str
    epoch: int


class MemberView(NamedTuple):
    """A member's part. ``epoch``: its generation, for commits; ``group_epoch``: the group's.

    ``assigned`` may be read now. ``revoking`` is to be given up: finish, commit, then sync without them.
    ``initial``: partitions a topic had when the group first subscribed to it; where the group has no offset,
    partitions from that number on came later and are read from their start.
    """

    member_id: str
    epoch: int
    group_epoch: int
    assigned: frozenset[TopicPartition]
    revoking: frozenset[TopicPartition]
    initial: Mapping[str, int]


class MemberDescription(NamedTuple):
    """``target``: what it shall have when all have moved. ``left``: a static member that said good-bye and whose
    place is kept until its session ends."""

    member_id: str
    instance_id: str | None
    client: str
    topics: tuple[str, ...]
    pattern: str | None
    epoch: int
    assigned: tuple[TopicPartition, ...]
    revoking: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    session_timeout_ms: int
    left: bool


class GroupSummary(NamedTuple):
    """A group as it stands. ``members``: those that are alive, or whose place is kept; ``epoch``: of its
    assignments, 0 for a group that never had members."""

    group: str
    state: GroupState
    members: tuple[MemberDescription, ...]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    assignor: str = "sticky"
    epoch: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinRequest:
    """What a consumer tells a group. ``topics``: names, those that match ``pattern`` now among them; ``instance_id``:
    of a static member, whose place outlives a restart."""

    topics: frozenset[str]
    pattern: str | None = None
    instance_id: str | None = None
    assignor: Assignor = "sticky"
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000


class GroupMembership(Protocol):
    """A member of a group, from ``join_group`` until it leaves, is fenced or expires. Thread-safe.

    The backend keeps it alive by itself for as long as ``polled`` is called every ``max_poll_interval_ms``.
    """

    @property
    def member_id(self) -> str: ...
    def view(self) -> MemberView | None:
        """What it has now, the same object until that changes; None: it is no member any more. Cheap."""
        ...

    def ended_by(self) -> LogStoreError | None:
        """Why ``view`` is None: UnknownMemberError, or MemberFencedError (its instance id was taken over)."""
        ...

    def is_settled(self) -> bool:
        """Whether it has all that it shall have: nothing is on its way here from another member."""
        ...

    def sync(self, owned: Collection[TopicPartition], epoch: int) -> None:
        """It owns just these now; ``epoch``: of the view by which it acted. ``view`` is newer afterwards."""
        ...

    def update(self, topics: Collection[str]) -> None:
        """It wants these topics, or their partitions have changed. ``view`` is newer afterwards."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], epoch: int) -> None:
        """As ``Backend.commit_offsets``; ``epoch``: of the view by which the partitions were read."""
        ...

    def polled(self) -> None:
        """The consumer asks for records. Cheap."""
        ...

    def cancel_on_change(self, handle: CancelHandle | None, seen: MemberView | None) -> None:
        """Cancel ``handle`` when ``view`` is no more ``seen``, at once if it is not now. One at a time; None takes
        it back."""
        ...

    def leave(self) -> None:
        """Give up membership; a static member's place is kept until its session ends. Safe to call again."""
        ...

    def abandon(self) -> None:
        """The consumer was dropped: leave soon. Takes no lock, so that a collector of garbage may call it."""
        ...


def validate_assignor(assignor: object) -> None:
    """InvalidArgumentError unless it is the name of one."""
    if assignor not in ASSIGNORS:
        raise InvalidArgumentError(f"assignor={shown(assignor)}", hint=f"it is one of {', '.join(ASSIGNORS)}")


def validate_group(group: str) -> None:
    """InvalidGroupError unless ``group`` is 1 to 249 characters of valid Unicode without NUL."""
    if not isinstance(group, str):
        raise InvalidGroupError(f"a group name is text, not {type(group).__name__}")
    if not 1 <= len(group) <= MAX_GROUP_CHARACTERS:
        raise InvalidGroupError(f"group name of {len(group)} characters: {group[:40]!r}")
    if "\0" in group or any("\ud800" <= character <= "\udfff" for character in group):
        raise InvalidGroupError(f"group name {group!r} holds a NUL or half of a surrogate pair")


def checked_offsets(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is to be committed, by kind: partitions as (topic, partition), positions as ``OffsetAndMetadata``
    (or just offsets). InvalidArgumentError."""
    if type(offsets) is dict and offsets and are_offsets(offsets):
        return dict(offsets)
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for place, position in mapping(offsets, "offsets", "(topic, partition) -> OffsetAndMetadata").items():
        if not isinstance(position, tuple) or len(position) != 3:
            position = OffsetAndMetadata(whole(position, "offset"))
        checked[partition_place(place)] = OffsetAndMetadata(*position)
    return checked


def are_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
    """Whether partitions and positions are what they claim to be, whatever the positions' numbers are; at least
    one."""
    if len(offsets) == 1:  # what most commits are: sets and tuples would cost several times as much
        ((place, position),) = offsets.items()
        if type(place) is not TopicPartition or type(position) is not OffsetAndMetadata:
            return False
        topic, partition = place
        return type(topic) is str and type(partition) is int and 0 <= partition <= _MAX_PARTITION
    if set(map(type, offsets)) != {TopicPartition} or set(map(type, offsets.values())) != {OffsetAndMetadata}:
        return False
    topics, partitions = zip(*offsets, strict=True)
    if set(map(type, topics)) != {str} or set(map(type, partitions)) != {int}:
        return False
    return bool(min(partitions) >= 0 and max(partitions) <= _MAX_PARTITION)
