"""``Checks``: what must be true of Raft in a whole cluster, looked at after every step of every replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logstore.errors import LogStoreError
from logstore.format.batch import iter_headers
from replication.raft.core import RaftCore
from replication.raft.effects import Effect
from replication.raft.types import Role, VoteState
from replication.replicas.replica import Replica
from replication.transport import GroupId
from tests.replication.sim.checks import BrokenPropertyError


class Checks:
    """Of one run. Names of groups are those that their replicas have."""

    def __init__(self) -> None:
        self.looks = 0
        self.skipped = 0
        self._leaders: dict[tuple[GroupId, int], int] = {}
        self._votes: dict[tuple[GroupId, int, int], int] = {}
        self._shown: dict[Replica, int] = {}
        self._ends: dict[Replica, tuple[int, int]] = {}  # of a leader: its term and its log's end
        self._committed: dict[GroupId, dict[int, tuple[int, int]]] = {}  # base offset -> term, crc
        self._most: dict[
            GroupId, tuple[int, int, int]
        ] = {}  # committed up to, the term of the last of it, and when
        self._flushed: dict[tuple[GroupId, int], int] = {}

    def after_step(self, replica: Replica) -> None:
        """With its lock held, so that what it says belongs together."""
        if replica.failure is not None:
            return
        self.looks += 1
        state, log = replica.core.state, replica.log
        where = f"{replica.where} at node {replica.node_id}"
        if state.role is Role.LEADER:
            self._check_leader(replica, where)
        else:
            self._ends.pop(replica, None)
        shown = log.high_watermark
        before = self._shown.get(replica, -1)
        if shown < before:
            raise BrokenPropertyError(f"{where} shows {shown} now, and showed {before} (high watermark)")
        self._flushed[replica.group, replica.node_id] = max(
            log.flushed_offset, self._flushed.get((replica.group, replica.node_id), 0)
        )
        if shown > before:
            self._shown[replica] = shown
            self._check_committed(replica, max(before, 0), shown, where)

    def _check_leader(self, replica: Replica, where: str) -> None:
        state, log = replica.core.state, replica.log
        first = self._leaders.setdefault((replica.group, state.term), replica.node_id)
        if first != replica.node_id:
            raise BrokenPropertyError(
                f"{where} leads in term {state.term}, as node {first} does (election safety)"
            )
        end = log.log_end_offset
        known = self._ends.get(replica)
        if known is not None and known[0] == state.term and end < known[1]:
            raise BrokenPropertyError(f"{where} leads and went back from {known[1]} to {end} (append-only)")
        if known is None or known[0] != state.term:
            most, term, in_term = self._most.get(replica.group, (0, -1, -1))
            if state.term <= in_term:
                most = 0  # a leader of before: it learns so in a moment
            if end < most:
                raise BrokenPropertyError(
                    f"{where} leads and ends at {end}, {most} is committed (leader completeness)"
                )
            if most and state.trail.knows(most) and state.trail.term_before(most) != term:
                raise BrokenPropertyError(
                    f"{where} leads with another entry before {most} (leader completeness)"
                )
        self._ends[replica] = (state.term, end)

    def _check_committed(self, replica: Replica, start: int, end: int, where: str) -> None:
        log, state = replica.log, replica.core.state
        if end > log.flushed_offset:
            raise BrokenPropertyError(
                f"{where} shows {end}, {log.flushed_offset} is durable (durable before reply)"
            )
        if state.role is Role.LEADER:
            voters = state.membership.voters
            have = [node for node in voters if self._flushed.get((replica.group, node), 0) >= end]
            if 2 * len(have) <= len(voters):
                raise BrokenPropertyError(f"{where} shows {end}, durable at {have} of {sorted(voters)} alone")
        most = self._most.get(replica.group, (0, -1, -1))[0]
        if end > most and state.trail.knows(end):
            self._most[replica.group] = (end, state.trail.term_before(end), state.term)
        self._check_bytes(replica, max(start, log.log_start_offset), end, where)

    def _check_bytes(self, replica: Replica, start: int, end: int, where: str) -> None:
        """Batches are compared as they were committed: compaction may write them anew later."""
        known = self._committed.setdefault(replica.group, {})
        try:
            found = _batches(replica, start, end)
        except (OSError, LogStoreError):
            self.skipped += 1  # the disk's fault of this moment, or a start that has just moved
            return
        for base, term, crc in found:
            first = known.setdefault(base, (term, crc))
            if first[0] != term:
                raise BrokenPropertyError(
                    f"{where}: the batch at {base} has term {term}, {first[0]} is committed"
                )
            if first[1] != crc and not replica.where.startswith(("compacted", "__")):
                raise BrokenPropertyError(
                    f"{where}: another batch than was committed is at {base} (log matching)"
                )

    def voted(self, replica: Replica, vote: VoteState) -> None:
        """A vote that is durable: one that a power loss took before that was told to nobody."""
        if vote.voted_for < 0:
            return
        key = (replica.group, replica.node_id, vote.term)
        first = self._votes.setdefault(key, vote.voted_for)
        if first != vote.voted_for:
            raise BrokenPropertyError(
                f"{replica.where}: node {replica.node_id} votes for {vote.voted_for} in term {vote.term}, "
                f"and voted for {first}"
            )


def _batches(replica: Replica, start: int, end: int) -> list[tuple[int, int, int]]:
    """Base offset, term and checksum of what lies between."""
    found: list[tuple[int, int, int]] = []
    offset = start
    while offset < end:
        chunk = replica.log.read(offset, 1 << 20, end)
        if chunk is None:
            break
        found += [(one.base_offset, one.leader_epoch, one.crc) for _, one in iter_headers(bytes(chunk.data))]
        offset = chunk.next_offset
    return found


@contextmanager
def watching(checks: Checks, fail: Callable[[BaseException], None]) -> Iterator[None]:
    """All replicas of this process are looked at inside; ``fail`` is told what is broken."""
    step, carry_out, vote_stored = Replica._step, Replica._carry_out, RaftCore.vote_stored
    replicas: dict[RaftCore, Replica] = {}

    def stepped(self: Replica, one: Callable[[], list[Effect]]) -> None:
        step(self, one)
        try:
            checks.after_step(self)
        except BrokenPropertyError as error:
            fail(error)
            raise

    def carried_out(self: Replica, effects: list[Effect]) -> None:
        replicas[self.core] = self
        carry_out(self, effects)

    def stored(self: RaftCore, vote: VoteState) -> list[Effect]:
        try:
            checks.voted(replicas[self], vote)
        except BrokenPropertyError as error:
            fail(error)
            raise
        return vote_stored(self, vote)

    Replica._step, Replica._carry_out = stepped, carried_out  # type: ignore[method-assign]
    RaftCore.vote_stored = stored  # type: ignore[method-assign]
    try:
        yield
    finally:
        Replica._step, Replica._carry_out = step, carry_out  # type: ignore[method-assign]
        RaftCore.vote_stored = vote_stored  # type: ignore[method-assign]
