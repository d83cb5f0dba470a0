"""One group's state: what its records say, and how it comes to rest after a change.

A change (a member joins, leaves, wants something else; a topic grows) raises the group's epoch and makes a new
*target*: the partitions that each member shall have. What each member *has* follows at once as far as it can, in the
same decision:

- what a member has and shall not have is *being revoked*: it is still the member's alone, which finishes, commits
  and then says what it owns now;
- a partition that a member shall have and no member has is given to that member.

So a partition has one owner at the most, and moves in two decisions: the old owner's giving up gives it to the
new one. A member's epoch is the group's at the last change of what it has. Each partition carries the epoch in
which its owner got it: a commit is good from that epoch on (KIP-1251), so that a rebalance which leaves a
partition where it is refuses no commit for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar, cast

from logstore.api.groups import Assignor
from logstore.groups import group_records as layout
from logstore.groups.assignors import MemberSubscription, assign
from logstore.groups.group_records import Current, GroupKey, GroupValue, Member, TopicFacts
from logstore.invariants import invariant
from logstore.machine import Change
from logstore.types import TopicPartition

MAX_EPOCH: Final = 2**31 - 1
NOTHING: Final = Current(0, 0, layout.STABLE, {}, {})
_NO_PLACES: Final[frozenset[TopicPartition]] = frozenset()

_Value = TypeVar("_Value")


class Group:
    """``topics``: what the members want or wanted; ``targets``, ``current``: by member id.

    Values are never changed in place: a copy is cheap, and what changed is found by comparing.
    """

    __slots__ = ("current", "empty_since_ms", "epoch", "members", "target_epoch", "targets", "topics")

    def __init__(self) -> None:
        self.epoch = 0
        self.empty_since_ms = -1
        self.topics: dict[str, TopicFacts] = {}
        self.members: dict[str, Member] = {}
        self.target_epoch = 0
        self.targets: dict[str, frozenset[TopicPartition]] = {}
        self.current: dict[str, Current] = {}

    def copy(self) -> Group:
        made = Group()
        made.epoch, made.empty_since_ms, made.target_epoch = (
            self.epoch,
            self.empty_since_ms,
            self.target_epoch,
        )
        made.topics, made.members = dict(self.topics), dict(self.members)
        made.targets, made.current = dict(self.targets), dict(self.current)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    def is_gone(self) -> bool:
        """No record of it is left."""
        return self.epoch == 0 and not (self.topics or self.members or self.targets or self.current)

    # --- records ---

    def replay(self, key: GroupKey, value: bytes | None) -> bool:
        """Apply one record. False: it is of another program's member and was passed over."""
        kind, _, member_id = key
        if kind == layout.GROUP:
            self.epoch, self.empty_since_ms = (0, -1) if value is None else layout.decode_group(value)
        elif kind == layout.TOPICS:
            self.topics = {} if value is None else layout.decode_topics(value)
        elif kind == layout.TARGET:
            self.target_epoch = 0 if value is None else layout.decode_target(value)
        elif kind == layout.MEMBER:
            member = None if value is None else layout.decode_member(value)
            _put(self.members, member_id, member)
            return value is None or member is not None
        elif kind == layout.TARGET_MEMBER:
            _put(self.targets, member_id, None if value is None else layout.decode_target_member(value))
        else:
            _put(self.current, member_id, None if value is None else layout.decode_current(value))
        return True

    def records_to(self, new: Group, name: str) -> tuple[Change, ...]:
        """What makes this state ``new``, in an order that Kafka's coordinator takes when it loads the log: of members
        that go the current assignment, the target and the member; the member that gives a partition up before its
        taker."""
        records = self._leaving(new, name)
        value = GroupValue(new.epoch, new.empty_since_ms)
        if value != (self.epoch, self.empty_since_ms):
            records.append((layout.encode_key(layout.GROUP, name), layout.encode_group(value)))
        if new.topics != self.topics:
            topics = layout.encode_topics(new.topics) if new.topics else None
            records.append((layout.encode_key(layout.TOPICS, name), topics))
        records += _changes(layout.MEMBER, name, self.members, new.members, layout.encode_member)
        if new.target_epoch != self.target_epoch:
            records.append((layout.encode_key(layout.TARGET, name), layout.encode_target(new.target_epoch)))
        records += _changes(
            layout.TARGET_MEMBER, name, self.targets, new.targets, layout.encode_target_member
        )
        records += [
            (layout.encode_key(layout.CURRENT, name, member_id), layout.encode_current(current))
            for member_id, current in _moves(self.current, new.current)
        ]
        return tuple(records)

    def tombstones(self, name: str) -> tuple[Change, ...]:
        """What makes it gone; the group itself last, as its members go before it."""
        kinds = (layout.TARGET, layout.TOPICS, layout.GROUP)
        whole = [(layout.encode_key(kind, name), None) for kind in kinds] if self.epoch or self.topics else []
        return (*self._leaving(Group(), name), *whole)

    def _leaving(self, new: Group, name: str) -> list[Change]:
        return [
            *_tombstones(layout.CURRENT, name, self.current, new.current),
            *_tombstones(layout.TARGET_MEMBER, name, self.targets, new.targets),
            *_tombstones(layout.MEMBER, name, self.members, new.members),
        ]

    # --- looks ---

    def holder_of(self, instance_id: str) -> str | None:
        """The member with this instance id."""
        found = (name for name, member in self.members.items() if member.instance_id == instance_id)
        return next(found, None)

    def successor_of(self, member_id: str) -> str | None:
        """The member that took its place by its instance id."""
        found = (name for name, member in self.members.items() if member.replaced == member_id)
        return next(found, None)

    def assignor(self) -> Assignor:
        """What most members ask for; of several the first by name."""
        votes = Counter(member.assignor for member in self.members.values())
        return cast(Assignor, min(votes, key=lambda name: (-votes[name], name))) if votes else "sticky"

    def is_stable(self) -> bool:
        """Everybody has what it shall have."""
        return all(self.current.get(name, NOTHING).state == layout.STABLE for name in self.members)

    # --- changes, on a copy ---

    def learn(self, partitions: Mapping[str, int], *, came_later: bool) -> None:
        """Take over the facts about what the members want. ``came_later``: a topic that is new to the group was
        not there when the group began. A topic without subscribers stays known as long as it exists."""
        wanted = set().union(*(member.topics for member in self.members.values()))
        for topic in wanted:
            count = partitions.get(topic, 0)
            known = self.topics.get(topic)
            if known is not None:
                initial = known.initial
            else:
                initial = 0 if came_later else count
            self.topics[topic] = TopicFacts(count, initial)
        for topic in [name for name in self.topics if name not in wanted and name not in partitions]:
            del self.topics[topic]

    def take_over(self, old: str, new: str) -> None:
        """``new`` stands where ``old`` stood; what was being revoked from ``old`` is free."""
        self.members[new] = self.members.pop(old)
        if old in self.targets:
            self.targets[new] = self.targets.pop(old)
        if old in self.current:
            self.current[new] = self.current.pop(old)._replace(revoking={})

    def remove(self, member_id: str, now_ms: int) -> None:
        """What it had is free."""
        del self.members[member_id]
        self.targets.pop(member_id, None)
        self.current.pop(member_id, None)
        if not self.members:
            self.empty_since_ms = now_ms

    def give_up(self, member_id: str, owned: Collection[TopicPartition], epoch: int) -> None:
        """The member says what it owns; what it got after ``epoch`` it cannot know of yet."""
        current = self.current[member_id]

        def kept(places: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
            return {place: since for place, since in places.items() if place in owned or since > epoch}

        self.current[member_id] = current._replace(
            assigned=kept(current.assigned), revoking=kept(current.revoking)
        )

    def drop_topic(self, topic: str) -> None:
        """It was deleted: there is nothing left to finish or commit. One of that name that comes later is new."""
        if any(topic in member.topics for member in self.members.values()):
            self.topics[topic] = TopicFacts(0, 0)
        else:
            self.topics.pop(topic, None)
        for name, current in self.current.items():
            self.current[name] = current._replace(
                assigned={at: since for at, since in current.assigned.items() if at.topic != topic},
                revoking={at: since for at, since in current.revoking.items() if at.topic != topic},
            )

    def advance(self) -> None:
        """A new epoch and a new target."""
        invariant(self.epoch < MAX_EPOCH, "a group's epoch fits 31 bits")
        self.epoch += 1
        subscriptions = {
            name: MemberSubscription(member.topics, member.instance_id, self.targets.get(name, _NO_PLACES))
            for name, member in self.members.items()
        }
        counts = {topic: facts.partitions for topic, facts in self.topics.items()}
        given = assign(self.assignor(), subscriptions, counts)
        self.targets = {name: frozenset(places) for name, places in given.items()}
        self.target_epoch = self.epoch

    def settle(self, acting: str | None = None) -> None:
        """Move what members have towards the target as far as it goes. ``acting``: the member that is here and
        will be told; its epoch is the group's from now on."""
        kept: dict[str, dict[TopicPartition, int]] = {}
        lost: dict[str, dict[TopicPartition, int]] = {}
        owned: set[TopicPartition] = set()
        count = 0
        for name, member in self.members.items():
            target, current = self.targets.get(name, _NO_PLACES), self.current.get(name, NOTHING)
            held = {**current.assigned, **current.revoking}
            kept[name] = {place: since for place, since in held.items() if place in target}
            gone = member.left_ms >= 0  # the member cannot finish anything
            lost[name] = {} if gone else {at: since for at, since in held.items() if at not in target}
            owned.update(kept[name], lost[name])
            count += len(kept[name]) + len(lost[name])
        invariant(count == len(owned), "a partition has one owner in its group")
        for name in sorted(self.members):
            target, mine = self.targets.get(name, _NO_PLACES), kept[name]
            if len(mine) < len(target):
                granted = target - owned
                owned |= granted
                mine.update(dict.fromkeys(granted, self.epoch))
            state = layout.UNRELEASED if len(mine) < len(target) else layout.STABLE
            state = layout.UNREVOKED if lost[name] else state
            old = self.current.get(name, NOTHING)
            if name == acting and old.epoch != self.epoch:
                self.current[name] = Current(self.epoch, old.epoch, state, mine, lost[name])
            elif (state, mine, lost[name]) != (old.state, old.assigned, old.revoking):
                previous = old.epoch if old.epoch != self.epoch else old.previous
                self.current[name] = Current(self.epoch, previous, state, mine, lost[name])
            elif name not in self.current:
                self.current[name] = Current(self.epoch, 0, state, {}, {})


def _put(table: dict[str, _Value], name: str, value: _Value | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


def _tombstones(kind: int, group: str, old: Mapping[str, object], new: Mapping[str, object]) -> list[Change]:
    return [(layout.encode_key(kind, group, name), None) for name in sorted(old.keys() - new.keys())]


def _changes(
    kind: int,
    group: str,
    old: Mapping[str, _Value],
    new: Mapping[str, _Value],
    encode: Callable[[_Value], bytes],
) -> list[Change]:
    return [
        (layout.encode_key(kind, group, name), encode(new[name]))
        for name in sorted(new)
        if old.get(name) != new[name]
    ]


def _moves(old: Mapping[str, Current], new: Mapping[str, Current]) -> list[tuple[str, Current]]:
    """The current assignments that change, each once no other member has what it takes. Where some exchange partitions
    all at once (static members that have left), one of them gives up what it had before it takes what it gets."""
    owners = {place: name for name in old.keys() & new.keys() for place in _held(old[name])}
    waiting = [name for name in sorted(new) if old.get(name) != new[name]]
    from_whom = {name: {owners.get(place, name) for place in _held(new[name])} - {name} for name in waiting}
    gave_up: set[str] = set()
    moves: list[tuple[str, Current]] = []
    while waiting:
        free = [name for name in waiting if from_whom[name] <= gave_up]
        moves += [(name, new[name]) for name in free]
        waiting = [name for name in waiting if not from_whom[name] <= gave_up]
        gave_up.update(free)
        if not free:
            stuck = [name for name in waiting if name not in gave_up]
            invariant(bool(stuck), "a member that takes a partition waits for a member that changes, too")
            name = stuck[0]
            kept = {at: since for at, since in new[name].assigned.items() if owners.get(at) == name}
            moves.append((name, new[name]._replace(state=layout.UNRELEASED, assigned=kept)))
            gave_up.add(name)
    return moves


def _held(current: Current) -> set[TopicPartition]:
    return {*current.assigned, *current.revoking}
