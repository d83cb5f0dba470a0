"""Readers of a simulated cluster: alone, and as members of a group."""

from __future__ import annotations

from collections.abc import Callable

from logstore.api.groups import GroupMembership, JoinRequest
from logstore.errors import (
    MemberFencedError,
    StaleGenerationError,
    UnknownMemberError,
)
from logstore.format.batch import decode_batches
from logstore.types import Isolation, OffsetAndMetadata, TopicPartition
from replication.cluster_node import ClusterNode
from replication.errors import NotLeaderError
from tests.history.events import Moved, OffsetsCommitted, Place, Polled
from tests.replication.sim.checks import BrokenPropertyError
from tests.sim.cluster.client import Answer, Client, again_if_doubtful, fetched
from tests.sim.cluster.world import World


class Reader(Client):
    """Reads partitions in order, as a reader of committed records, and commits its offsets in a group."""

    isolation: Isolation = "read_committed"

    def begin(self) -> None:
        self.group = f"{self.name}-group"
        self._positions: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}

    def step(self) -> None:
        place = self.place()
        if self._committed and self.dice.random() < 0.1:
            self._look_at_commits()
        records, following = self.read(place)
        if records:
            self.note(Polled(tuple((place, offset, value) for offset, value in records)))
            self.world.counts["records read"] += len(records)
        self._positions[place] = following
        if following > 0 and self.dice.random() < 0.3:
            self._commit(place, following)

    def read(self, place: Place) -> tuple[list[tuple[int, str]], int]:
        start = self._positions.get(place, 0)
        work = fetched(place, start, self.isolation)
        data, following, log_start = self.ask(f"fetch {place[0]}-{place[1]}", work)
        if log_start > start:
            self.note(Moved(f"{place[0]}-{place[1]} begins at {log_start}"))
            self.world.counts["readers reset"] += 1
            return [], log_start
        records = decode_batches(data, *place, start_offset=start)
        return [(one.offset, (one.value or b"").decode()) for one in records], following

    def _commit(self, place: Place, offset: int) -> None:
        offsets = {TopicPartition(*place): OffsetAndMetadata(offset, -1, "")}

        def work(node: ClusterNode) -> None:
            node.engine.commit_offsets(self.group, offsets)

        self.ask("commit_offsets", again_if_doubtful(work))
        self.world.counts["offsets committed"] += 1
        self._committed[place] = offset
        self.note(OffsetsCommitted(self.group, ((place, offset),)))

    def _look_at_commits(self) -> None:
        """A group's committed offsets are never older than what was acknowledged."""
        found = self.ask("committed_offsets", lambda node: node.engine.committed_offsets(self.group))
        for place, least in self._committed.items():
            at = found.get(TopicPartition(*place))
            if at is None or at.offset < least:
                raise BrokenPropertyError(
                    f"{self.group} has {at} of {place[0]}-{place[1]}, {least} was committed"
                )


class Member(Client):
    """A member of a group, which reads what it is given and commits it under its generation.

    ``group``: shared with others; records are not in the history (a partition that comes is read from the group's
    offset), commits are.
    """

    def __init__(self, world: World, name: str, topics: dict[str, int], group: str) -> None:
        super().__init__(world, name, topics)
        self.group = group
        self._member_id = ""
        self._request = JoinRequest(
            topics=frozenset(topics), session_timeout_ms=10_000, heartbeat_interval_ms=1_000
        )
        self._positions: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        self._join()

    def _join(self) -> None:
        self._positions.clear()

        def work(node: ClusterNode) -> str:
            member = node.engine.join_group(self.group, self._request)
            node_members(node)[member.member_id] = member
            return member.member_id

        self._member_id = self.ask("join_group", again_if_doubtful(work))
        self.world.counts["members joined"] += 1

    def _with_member(self, name: str, work: Callable[[GroupMembership], Answer]) -> Answer:
        """At the coordinator of now, which takes the member up if it has it not."""

        def asked(node: ClusterNode) -> Answer:
            members = node_members(node)
            member = members.get(self._member_id)
            if member is None or isinstance(member.ended_by(), NotLeaderError):
                member = node.engine.resume_member(self.group, self._member_id, self._request)
                members[self._member_id] = member
            member.polled()
            found = work(member)
            ended = member.ended_by()
            if ended is not None:
                members.pop(self._member_id, None)
                raise ended
            return found

        return self.ask(name, again_if_doubtful(asked))

    def step(self) -> None:
        try:
            self._step()
        except (UnknownMemberError, MemberFencedError, StaleGenerationError) as error:
            self.world.counts[f"members ended by {type(error).__name__}"] += 1
            self._join()

    def _step(self) -> None:
        view = self._with_member("view", lambda member: member.view())
        if view is None:
            raise UnknownMemberError(f"{self._member_id} has no view")
        if view.revoking or set(self._positions) - set(view.assigned):
            for place in [one for one in self._positions if one not in view.assigned]:
                del self._positions[place]
            self._with_member("sync", lambda member: member.sync(view.assigned, view.epoch))
            return
        if not view.assigned:
            return
        place = self.dice.choice(sorted(view.assigned))
        if place not in self._positions:
            found = self.ask("committed_offsets", lambda node: node.engine.committed_offsets(self.group))
            self._positions[place] = found[place].offset if place in found else 0
        start = self._positions[place]
        held = (place.topic, place.partition)
        _, following, _ = self.ask("fetch", fetched(held, start, "read_committed"))
        if following > start:
            at = {place: OffsetAndMetadata(following, -1, "")}
            self._with_member("commit", lambda member: member.commit(at, view.epoch))
            self._positions[place] = following
            self.note(OffsetsCommitted(self.group, ((held, following),)))
            self.world.counts["offsets committed by members"] += 1
        if self.dice.random() < 0.01:
            self._with_member("leave", lambda member: member.leave())


def node_members(node: ClusterNode) -> dict[str, GroupMembership]:
    """The members that a broker looks after for its clients."""
    found: dict[str, GroupMembership] | None = getattr(node, "members_of_clients", None)
    if found is None:
        found = node.members_of_clients = {}  # type: ignore[attr-defined]
    return found
