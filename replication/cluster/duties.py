"""What the controller has to do, decided purely from the metadata and from what leaders say of their partitions.

A partition moves in steps, each of which may be repeated: what it lacks of its target comes in as learners; a learner
that has caught up becomes a voter; once all of the target vote, the others go, one at a time, the leader last and after
it gave its place up; then the target is what it has. So it never has fewer voters than it had, or shall have. A move
that was given up goes back in the same steps: what it had brought in keeps its replica until the group has it no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from replication.cluster import placement
from replication.cluster.image import ClusterImage, Place
from replication.cluster.placement import Replicas, Spot
from replication.cluster_status import ClusterStatus, PartitionStatus
from replication.raft.types import Membership, NodeId
from replication.transport import METADATA_GROUP, GroupId

PROMOTE_LAG: Final = 1_000
"""Offsets that a learner may lag behind to be made a voter; as the leader itself demands."""


class Transfer(NamedTuple):
    """``leader`` is asked to give its place to ``to``."""

    group: GroupId
    leader: NodeId
    to: NodeId


class ChangeMembers(NamedTuple):
    """``leader`` is asked to have these members."""

    group: GroupId
    leader: NodeId
    members: Membership


class Moved(NamedTuple):
    """The partition has its target."""

    place: Place
    replicas: Replicas


class Readmitted(NamedTuple):
    """The place's group has counted out the node, whose directory was exchanged: its replica is as any new one."""

    place: Place
    node: NodeId


Duty: TypeAlias = Transfer | ChangeMembers | Moved | Readmitted


class MoveProgress(NamedTuple):
    """A partition that moves. ``lags``: by learner, how many offsets it lacks, -1: not known; ``left``: members that
    are to go."""

    place: Place
    replicas: Replicas
    target: Replicas
    lags: Mapping[NodeId, int]
    left: tuple[NodeId, ...]


# --- leaders ---


def misled(image: ClusterImage, status: ClusterStatus, alive: Collection[NodeId]) -> list[Transfer]:
    """Partitions that another than their preferred leader leads, which is alive and has all of them."""
    found = []
    for place, replicas in image.places():
        group = GroupId(*place)
        now = status.partitions.get(group)
        if now is None or place in image.targets or now.leader == replicas[0]:
            continue
        preferred = replicas[0]
        broker = image.brokers.get(preferred)
        if preferred not in alive or (broker is not None and broker.draining):
            continue
        if any(one.node_id == preferred and one.in_sync and not one.learner for one in now.replicas):
            found.append(Transfer(group, now.leader, preferred))
    return found


# --- moves ---


def moves(image: ClusterImage, status: ClusterStatus, most: int) -> list[Duty]:
    """The next step of each partition that moves; ``most``: that may fill learners at one time."""
    duties: list[Duty] = []
    filling = sum(
        _fills(now)
        for group, now in status.partitions.items()
        if (group.topic_id, group.partition) in image.targets
    )
    for place, target in sorted(image.targets.items()):
        if place in image.vacated:
            continue
        now = status.partitions.get(GroupId(*place))
        duty = None if now is None else _next_step(place, target, now)
        if isinstance(duty, ChangeMembers) and now is not None and _begins_to_fill(now, duty):
            if filling >= most:
                continue
            filling += 1
        if duty is not None:
            duties.append(duty)
    return duties


def _members(now: PartitionStatus) -> Membership:
    return Membership(
        frozenset(one.node_id for one in now.replicas if not one.learner),
        frozenset(one.node_id for one in now.replicas if one.learner),
    )


def _fills(now: PartitionStatus) -> bool:
    return any(one.learner for one in now.replicas)


def _begins_to_fill(now: PartitionStatus, duty: ChangeMembers) -> bool:
    return not _fills(now) and bool(duty.members.learners - _members(now).learners)


def _next_step(place: Place, target: Replicas, now: PartitionStatus) -> Duty | None:
    voters, learners = _members(now)
    wanted = frozenset(target)
    if learners - wanted:  # of a move that was given up: they are not to be filled any more
        return ChangeMembers(now.group, now.leader, Membership(voters, learners & wanted))
    missing = wanted - voters - learners
    if missing:
        return ChangeMembers(now.group, now.leader, Membership(voters, learners | missing))
    ready = [
        one.node_id
        for one in now.replicas
        if one.learner and one.node_id in wanted and 0 <= one.lag <= PROMOTE_LAG
    ]
    if ready:
        members = Membership(voters | {ready[0]}, learners - {ready[0]})
        return ChangeMembers(now.group, now.leader, members)
    if not wanted <= voters:
        return None  # learners are being filled
    return _leave(place, target, now, voters)


def _leave(place: Place, target: Replicas, now: PartitionStatus, voters: frozenset[NodeId]) -> Duty | None:
    """All of the target vote: the others go."""
    rest = voters - frozenset(target)
    going = sorted(rest - {now.leader})
    if going:
        return ChangeMembers(now.group, now.leader, Membership(voters - {going[0]}))
    if now.leader in rest:
        in_sync = {one.node_id for one in now.replicas if one.in_sync}
        heirs = [node for node in target if node in in_sync]
        return Transfer(now.group, now.leader, heirs[0]) if heirs else None
    # Files go with this word: who has the partition must not be taken back any more.
    return Moved(place, target) if now.settled else None


def progress(image: ClusterImage, status: ClusterStatus) -> list[MoveProgress]:
    """Of all partitions that move, in order."""
    found = []
    for place, target in sorted(image.targets.items()):
        now = status.partitions.get(GroupId(*place))
        replicas = () if now is None else now.replicas
        found.append(
            MoveProgress(
                place,
                image.replicas_of(*place),
                target,
                {one.node_id: one.lag for one in replicas if one.learner},
                tuple(one.node_id for one in replicas if one.node_id not in target),
            )
        )
    return found


# --- directories that were exchanged ---


def vacated(image: ClusterImage, status: ClusterStatus, most: int) -> list[Duty]:
    """The next step for replicas that do not know what they promised: each is made a learner, and once that is
    committed it is as any new one. ``most``: steps at one time."""
    found: list[Duty] = []
    for place, nodes in sorted(image.vacated.items()):
        now = status.partitions.get(GroupId(*place))
        if now is None or len(found) >= most:
            continue
        voters, learners = _members(now)
        node = min(nodes)
        if node not in voters:
            if now.settled:
                found.append(Readmitted(place, node))
        elif len(voters) > 1 and node != now.leader:
            members = Membership(voters - {node}, learners | {node})
            found.append(ChangeMembers(now.group, now.leader, members))
    return found


def refilled(image: ClusterImage, status: ClusterStatus) -> list[ChangeMembers]:
    """Learners that are replicas of partitions that do not move: they vote again once they have caught up."""
    found = []
    for place, replicas in image.places():
        now = status.partitions.get(GroupId(*place))
        if now is None or not now.settled or place in image.targets or place in image.vacated:
            continue
        voters, learners = _members(now)
        ready = [one.node_id for one in now.replicas if one.learner and 0 <= one.lag <= PROMOTE_LAG]
        ready = [node for node in ready if node in replicas]
        if ready:
            members = Membership(voters | {ready[0]}, learners - {ready[0]})
            found.append(ChangeMembers(now.group, now.leader, members))
    return found


# --- brokers that leave, and come ---


def drains(image: ClusterImage, spots: Collection[Spot], most: int) -> dict[Place, Replicas]:
    """New targets for partitions of brokers that are drained, as long as fewer than ``most`` move. A partition for
    which no broker is left stays where it is."""
    draining = {one.node_id for one in image.brokers.values() if one.draining}
    room = most - len(image.targets)
    found: dict[Place, Replicas] = {}
    if not draining or room <= 0:
        return found
    counts = Counter(dict(image.load().replicas))
    for place, replicas in image.places():
        if len(found) >= room:
            break
        if place not in image.targets and draining & set(replicas):
            target = _without(replicas, draining, spots, counts)
            if target != replicas:
                found[place] = target
    return found


def _without(
    replicas: Replicas, draining: Collection[NodeId], spots: Collection[Spot], counts: Counter[NodeId]
) -> Replicas:
    target = list(replicas)
    for number, node in enumerate(replicas):
        if node not in draining:
            continue
        staying = [other for other in target if other != node]
        overall = placement.Load(counts)
        instead = placement.replacement(spots, staying, seed=number, overall=overall)
        if instead is not None:
            target[number] = instead
            counts[instead] += 1
            counts[node] -= 1
    return tuple(target)


def metadata_members(image: ClusterImage, status: ClusterStatus) -> Iterator[ChangeMembers]:
    """Every broker of the cluster has the metadata: one that is new first as a learner, then with a vote; those that
    were removed go, the leader last."""
    now = status.partitions.get(METADATA_GROUP)
    if now is None or METADATA_GROUP in image.vacated:
        return
    voters, learners = _members(now)
    gone = (voters | learners) & image.removed
    if gone:
        node = min(gone - {now.leader}, default=now.leader)
        if voters != {node}:
            yield ChangeMembers(METADATA_GROUP, now.leader, Membership(voters - {node}, learners - {node}))
        return
    new = frozenset(image.brokers) - voters - learners
    ready = [
        one.node_id
        for one in now.replicas
        if one.learner and one.node_id in image.brokers and 0 <= one.lag <= PROMOTE_LAG
    ]
    if new:
        yield ChangeMembers(METADATA_GROUP, now.leader, Membership(voters, learners | new))
    elif ready:
        members = Membership(voters | {ready[0]}, learners - {ready[0]})
        yield ChangeMembers(METADATA_GROUP, now.leader, members)
