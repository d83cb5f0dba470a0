"""Which member of a group reads which partition: Kafka's three rules, as functions of members and partitions.

- ``range``: topic by topic, each member a run of neighbouring partitions; the first ones get one more. Topics
  with the same subscribers and as many partitions are cut alike, so that equal keys meet at one member.
- ``round_robin``: all partitions in order, dealt out to the members in turn; one that is not subscribed is passed over.
- ``sticky``: as even as can be, and with that as little movement as can be.

Members are dealt with in the order of their names, static ones (by instance id) first: a restarted static member
has a new id and the same place. Every answer names every member, and is a function of the arguments alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from logstore.api.groups import Assignor, validate_assignor
from logstore.groups.balance import Balance
from logstore.types import TopicPartition

Assignment: TypeAlias = dict[str, list[TopicPartition]]


class MemberSubscription(NamedTuple):
    """``topics``: what it wants; ``owned``: what it has until now, which ``sticky`` leaves where it can."""

    topics: frozenset[str]
    instance_id: str | None = None
    owned: frozenset[TopicPartition] = frozenset()


def assign(
    assignor: Assignor, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]
) -> Assignment:
    """Member id -> its partitions, sorted. ``partitions``: how many each topic has; topics that are not there
    have none. Every partition with a subscriber is given to exactly one subscriber.
    """
    validate_assignor(assignor)
    order = sorted(members, key=lambda name: _place(name, members[name]))
    if assignor == "range":
        given = _range(order, members, partitions)
    elif assignor == "round_robin":
        given = _round_robin(order, members, partitions)
    else:
        given = _sticky(order, members, partitions)
    for places in given.values():
        places.sort()
    return given


def _place(name: str, member: MemberSubscription) -> tuple[bool, str, str]:
    return (member.instance_id is None, member.instance_id or "", name)


def _subscribers(order: Sequence[str], members: Mapping[str, MemberSubscription]) -> dict[str, list[str]]:
    """Topic -> its subscribers in order; topics sorted."""
    found: dict[str, list[str]] = {}
    for name in order:
        for topic in members[name].topics:
            found.setdefault(topic, []).append(name)
    return {topic: found[topic] for topic in sorted(found)}


def _range(
    order: Sequence[str], members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]
) -> Assignment:
    given: Assignment = {name: [] for name in order}
    for topic, names in _subscribers(order, members).items():
        each, more = divmod(partitions.get(topic, 0), len(names))
        start = 0
        for rank, name in enumerate(names):
            end = start + each + (rank < more)
            given[name] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return given


def _round_robin(
    order: Sequence[str], members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]
) -> Assignment:
    given: Assignment = {name: [] for name in order}
    turn = 0
    for topic in _subscribers(order, members):
        for number in range(partitions.get(topic, 0)):
            while topic not in members[order[turn % len(order)]].topics:
                turn += 1
            given[order[turn % len(order)]].append(TopicPartition(topic, number))
            turn += 1
    return given


def _sticky(
    order: Sequence[str], members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]
) -> Assignment:
    subscribers = _subscribers(order, members)
    kept, free = _kept(order, members, partitions, subscribers)
    wanted = {members[name].topics for name in order if members[name].topics}
    if len(wanted) <= 1:
        takers = [name for name in order if members[name].topics]
        return kept | _even(takers, kept, free)
    return Balance(kept, free, subscribers).best()


def _kept(
    order: Sequence[str],
    members: Mapping[str, MemberSubscription],
    partitions: Mapping[str, int],
    subscribers: Iterable[str],
) -> tuple[Assignment, list[TopicPartition]]:
    """What each owns and may keep (of two owners the first in order), and partitions without an owner; both sorted."""
    taken: set[TopicPartition] = set()
    kept: Assignment = {}
    for name in order:
        member = members[name]
        mine = [
            place
            for place in sorted(member.owned)
            if place.topic in member.topics
            and 0 <= place.partition < partitions.get(place.topic, 0)
            and place not in taken
        ]
        taken.update(mine)
        kept[name] = [TopicPartition(*place) for place in mine]
    free = [
        place
        for topic in subscribers
        for number in range(partitions.get(topic, 0))
        if (place := TopicPartition(topic, number)) not in taken
    ]
    return kept, free


def _even(takers: Sequence[str], kept: Assignment, free: list[TopicPartition]) -> Assignment:
    """All want the same: every member gets ``each``, some one more. Those that own most are the ones with more, so
    that no other choice moves less: only what is above a member's share leaves it."""
    if not takers:
        return {}
    each, more = divmod(len(free) + sum(len(kept[name]) for name in takers), len(takers))
    by_load = sorted(takers, key=lambda name: -len(kept[name]))  # stable: ties in order
    share = {name: each + (rank < more) for rank, name in enumerate(by_load)}
    given: Assignment = {}
    pool = list(free)
    for name in takers:
        given[name] = kept[name][: share[name]]
        pool += kept[name][share[name] :]
    pool.sort()
    at = 0
    for name in takers:
        missing = share[name] - len(given[name])
        given[name] += pool[at : at + missing]
        at += missing
    return given
