"""A group's state as members, administrators and the check for dead members see it."""

from __future__ import annotations

from typing import NamedTuple

from logstore.api.groups import GroupState, MemberDescription, MemberView
from logstore.groups.group import NOTHING, Group
from logstore.types import TopicPartition


class GroupDescription(NamedTuple):
    """``epoch``: 0 for a group that never had members; ``empty_since_ms``: -1 with members, and for those."""

    group: str
    state: GroupState
    epoch: int
    assignor: str
    members: tuple[MemberDescription, ...]
    empty_since_ms: int


class MemberSession(NamedTuple):
    """What decides whether a member's session is over. ``liveness``: see ``Member``; ``joined_ms``: the member has
    not beaten before that; ``left_ms``: -1, or when a static member left: it beats no more, and its session ends
    ``session_timeout_ms`` after that."""

    group: str
    member_id: str
    instance_id: str | None
    liveness: bytes
    session_timeout_ms: int
    joined_ms: int
    left_ms: int


def member_view(group: Group, member_id: str) -> MemberView | None:
    """None: no member, or a static one that has left."""
    member = group.members.get(member_id)
    if member is None or member.left_ms >= 0:
        return None
    current = group.current.get(member_id, NOTHING)
    return MemberView(
        member_id=member_id,
        epoch=current.epoch,
        group_epoch=group.epoch,
        assigned=frozenset(current.assigned),
        revoking=frozenset(current.revoking),
        initial={topic: group.topics[topic].initial for topic in member.topics if topic in group.topics},
    )


def awaited(group: Group, member_id: str) -> dict[str, list[TopicPartition]]:
    """See ``GroupCoordinator.awaited``; quick where the member has all."""
    mine = group.current.get(member_id, NOTHING).assigned
    missing = group.targets.get(member_id, frozenset()) - mine.keys()
    held: dict[str, list[TopicPartition]] = {}
    if not missing:
        return held
    for name, current in group.current.items():
        places = [place for place in (*current.assigned, *current.revoking) if place in missing]
        if places and name != member_id:
            member = group.members.get(name)
            held[f"{name} ({'gone' if member is None else member.client})"] = places
    return held


def describe_group(name: str, group: Group) -> GroupDescription:
    state: GroupState = "empty" if not group.members else "stable" if group.is_stable() else "reconciling"
    members = []
    for member_id, member in sorted(group.members.items()):
        current = group.current.get(member_id, NOTHING)
        members.append(
            MemberDescription(
                member_id=member_id,
                instance_id=member.instance_id,
                client=member.client,
                topics=tuple(sorted(member.topics)),
                pattern=member.pattern,
                epoch=current.epoch,
                assigned=tuple(sorted(current.assigned)),
                revoking=tuple(sorted(current.revoking)),
                target=tuple(sorted(group.targets.get(member_id, ()))),
                session_timeout_ms=member.session_timeout_ms,
                left=member.left_ms >= 0,
            )
        )
    return GroupDescription(name, state, group.epoch, group.assignor(), tuple(members), group.empty_since_ms)
