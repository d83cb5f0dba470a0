"""Properties that hold after every event of a simulated partition; see ``replication/raft/core.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.raft.effects import Commit, Effect, ReadReady, RoleChanged, Send, Truncate
from replication.raft.messages import AppendReply, VoteReply, VoteRequest
from replication.raft.types import Entry, NodeId, Role

if TYPE_CHECKING:
    from tests.replication.sim.cluster import SimulatedNode


class BrokenPropertyError(AssertionError):
    """The message begins with the property's name."""


class Checks:
    """Sees every effect as it comes out of a replica, and the disks."""

    def __init__(self) -> None:
        self.leaders: dict[int, NodeId] = {}
        self.committed: list[Entry] = []
        self.shown: dict[NodeId, int] = {}
        self.asked: dict[tuple[NodeId, int], int] = {}
        self.reads = 0

    @property
    def committed_end(self) -> int:
        return self.committed[-1].end_offset if self.committed else 0

    def restarted(self, node: NodeId, commit: int) -> None:
        """What it shows begins at its durable high watermark, which may be behind."""
        self.shown[node] = commit

    def asks(self, node: NodeId, read_id: int) -> None:
        self.asked[node, read_id] = self.committed_end

    def see(self, node: SimulatedNode, effect: Effect) -> None:
        match effect:
            case RoleChanged(role, term, _) if role is Role.LEADER:
                self._elected(node, term)
            case Commit(offset):
                self._commits(node, offset)
            case Truncate(offset):
                self._truncates(node, offset)
            case ReadReady(read_id, offset):
                self._reads(node, read_id, offset)
            case Send(_, message):
                self._sends(node, message)
            case _:
                pass

    # --- each property ---

    def _elected(self, node: SimulatedNode, term: int) -> None:
        other = self.leaders.setdefault(term, node.node_id)
        if other != node.node_id:
            raise BrokenPropertyError(
                f"election safety: nodes {other} and {node.node_id} lead in term {term}"
            )
        for entry in self.committed:
            if entry.base_offset >= node.disk.start and entry not in node.disk.log:
                raise BrokenPropertyError(
                    f"leader completeness: node {node.node_id} leads in term {term} without {entry}"
                )
        if node.disk.end < self.committed_end:
            raise BrokenPropertyError(f"leader completeness: node {node.node_id} ends at {node.disk.end}")

    def _commits(self, node: SimulatedNode, offset: int) -> None:
        before = self.shown.get(node.node_id, 0)
        if offset < before:
            raise BrokenPropertyError(f"shown goes back: node {node.node_id} from {before} to {offset}")
        if offset > node.disk.durable_end:
            raise BrokenPropertyError(
                f"shown before durable: node {node.node_id} shows {offset}, durable is {node.disk.durable_end}"
            )
        self.shown[node.node_id] = offset
        known = {entry.base_offset: entry for entry in self.committed}
        for entry in node.disk.log:
            if entry.base_offset >= offset:
                break
            if entry.base_offset in known:
                if known[entry.base_offset] != entry:
                    raise BrokenPropertyError(
                        f"state machine safety: node {node.node_id} shows {entry}, committed was "
                        f"{known[entry.base_offset]}"
                    )
            elif entry.base_offset == self.committed_end:
                self.committed.append(entry)
            elif entry.base_offset > self.committed_end:
                raise BrokenPropertyError(
                    f"state machine safety: node {node.node_id} leaves a hole at {entry}"
                )

    def _truncates(self, node: SimulatedNode, offset: int) -> None:
        if node.core.state.role is Role.LEADER:
            raise BrokenPropertyError(f"leader append-only: node {node.node_id} cuts at {offset}")
        if offset < self.shown.get(node.node_id, 0):
            raise BrokenPropertyError(f"committed is cut: node {node.node_id} at {offset}")

    def _reads(self, node: SimulatedNode, read_id: int, offset: int) -> None:
        self.reads += 1
        due = self.asked.pop((node.node_id, read_id))
        if offset < due:
            raise BrokenPropertyError(
                f"stale read: node {node.node_id} reads at {offset}, {due} was committed when it was asked"
            )

    def _sends(self, node: SimulatedNode, message: object) -> None:
        disk = node.disk
        match message:
            case AppendReply(_, _, True, end) if end > disk.durable_end:
                raise BrokenPropertyError(
                    f"durable before reply: node {node.node_id} says {end}, durable is {disk.durable_end}"
                )
            case VoteReply(_, term, True, False) if disk.vote.term != term:
                raise BrokenPropertyError(
                    f"durable before reply: node {node.node_id} votes in {term}: {disk.vote}"
                )
            case VoteRequest(_, term, _, _, False) if disk.vote != (term, node.node_id):
                raise BrokenPropertyError(
                    f"durable before reply: node {node.node_id} stands in {term}: {disk.vote}"
                )
            case _:
                pass

    def logs_match(self, nodes: list[SimulatedNode]) -> None:
        """Entries of the same offset and term are the same, and so is all before them."""
        for node in nodes:
            for other in nodes:
                if other.node_id <= node.node_id:
                    continue
                start = max(node.disk.start, other.disk.start)
                mine = [entry for entry in node.disk.log if entry.base_offset >= start]
                theirs = [entry for entry in other.disk.log if entry.base_offset >= start]
                agreed = 0
                for number, (one, two) in enumerate(zip(mine, theirs, strict=False)):
                    if (one.base_offset, one.term) == (two.base_offset, two.term):
                        agreed = number + 1
                if mine[:agreed] != theirs[:agreed]:
                    raise BrokenPropertyError(f"log matching: nodes {node.node_id} and {other.node_id}")
