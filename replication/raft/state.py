"""``RaftState``: everything that one replica knows, which the handlers of a step read and change."""

from __future__ import annotations

import random
from typing import Any, NamedTuple, Protocol

from replication.raft.effects import Append, Effect, RoleChanged, Send, StoreVote
from replication.raft.messages import Message
from replication.raft.progress import Progress
from replication.raft.trail import Trail
from replication.raft.types import (
    NO_NODE,
    Entry,
    EntryKind,
    Membership,
    NodeId,
    RaftSettings,
    Role,
    VoteState,
)


class LogView(Protocol):
    """Reads the replica's log, which the driver keeps as the effects say."""

    def entries(self, start: int, max_bytes: int) -> tuple[Entry, ...]:
        """Whole entries from the one that begins at ``start`` on, one at least if there is any."""
        ...


class SendBudget(Protocol):
    """Bytes that may be sent to peers that are far behind."""

    def has_room(self) -> bool: ...
    def take(self, size: int) -> None: ...


class WaitingRead(NamedTuple):
    """``position``: what was committed when it was asked; ``round``: of the leader's messages since."""

    read_id: int
    position: int
    round: int


class IncomingSnapshot(NamedTuple):
    """The pieces of a snapshot that have come, of ``total`` bytes, from the leader of ``term``."""

    term: int
    end_offset: int
    total: int
    data: bytearray


class RaftState:
    """``vote`` is what was asked to be stored; ``stored_vote`` what is durable: until they agree, messages are held.
    ``durable``: position up to which the own log is durable; ``commit``: up to where it is committed and durable here.
    """

    def __init__(
        self,
        node_id: NodeId,
        settings: RaftSettings,
        trail: Trail,
        log: LogView,
        vote: VoteState,
        commit: int,
        randomness: random.Random,
        abstains: bool = False,
        held_back: bool = False,
        recovery: SendBudget | None = None,
    ) -> None:
        self.recovery = recovery
        self.node_id = node_id
        self.settings = settings
        self.trail = trail
        self.log = log
        self.vote = self.stored_vote = vote
        self.commit = commit
        self.durable = trail.end
        self.randomness = randomness
        self.role = Role.FOLLOWER
        self.leader_id: NodeId = NO_NODE
        # Ticks: so far; of the last word of a leader; of the next election; of a leader's last look for its majority.
        self.now = self.heard_tick = self.deadline_tick = self.quorum_tick = 0
        self.pre_votes: dict[NodeId, bool] = {}
        # Of the election that it holds in its term, until that is won or the term is over; None: it holds none.
        self.ballots: dict[NodeId, bool] | None = None
        # Elections in a row that others took part in, and nobody won; whether others take part in the one of now.
        self.crowded = 0
        self.has_rivals = False
        # Its log may hold less than it once acknowledged (damage, another disk): until it has what a leader has
        # committed in that one's term it gives no vote, and does not stand.
        self.abstains = abstains or held_back
        # What it promised is not known either: it abstains however much it holds.
        self.held_back = held_back
        self.transferring = False  # it stands because the leader asked it to
        self.reluctant = False  # its disk refuses writes: it stands where no other replica does
        # Of a follower: how far its log agrees with its leader's, what that one said is committed, and the round of a
        # reply that waits for the log to be durable.
        self.accepted_end = commit
        self.leader_commit = 0
        self.owed: int | None = None
        self.incoming: IncomingSnapshot | None = None
        # Of a leader.
        self.led_from_empty = False  # its log was empty when it was elected
        self.peers: dict[NodeId, Progress] = {}
        self.round = 0
        self.reads: list[WaitingRead] = []
        self.transfer_to: NodeId = NO_NODE
        self.transfer_tick = 0
        self._effects: list[Effect] = []
        self._held: list[Send] = []

    # --- who is who ---

    @property
    def term(self) -> int:
        return self.vote.term

    @property
    def membership(self) -> Membership:
        return self.trail.membership or Membership(frozenset())

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.membership.voters

    @property
    def others(self) -> list[NodeId]:
        """All that have the log but this one, in order."""
        return sorted((self.membership.voters | self.membership.learners) - {self.node_id})

    @property
    def has_committed(self) -> bool:
        """Leader: whether something of its own term is committed."""
        return self.trail.term_before(self.commit) == self.term

    @property
    def knows_committed(self) -> bool:
        """Leader: whether it knows all that is committed. With an empty log it was elected by a majority of logs that
        are no longer: nothing was committed then."""
        return self.led_from_empty or self.has_committed

    # --- effects ---

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def send(self, to: NodeId, message: Message) -> None:
        """Now, or once the vote is durable that the message speaks under."""
        if self.vote == self.stored_vote:
            self._effects.append(Send(to, message))
        else:
            self._held.append(Send(to, message))

    def store_vote(self, vote: VoteState) -> None:
        if vote == self.vote:
            return
        self._held.clear()  # what it said before is of another term, or of another vote
        self.ballots = None
        self.vote = vote
        self._effects.append(StoreVote(vote))

    def note_vote_stored(self, vote: VoteState) -> None:
        self.stored_vote = max(vote, self.stored_vote)  # a later one may have been told first
        if self.stored_vote == self.vote:
            self._effects += self._held
            self._held.clear()

    def append_own(
        self,
        count: int,
        kind: EntryKind = EntryKind.RECORDS,
        data: Any = None,
        membership: Membership | None = None,
    ) -> Entry:
        """The leader's next entry, of ``count`` offsets."""
        end = self.trail.end
        entry = Entry(end, end + count, self.term, kind, data, membership)
        self.trail.append(entry)
        self.emit(Append((entry,)))
        return entry

    def show_role(self) -> None:
        self.emit(RoleChanged(self.role, self.term, self.leader_id))

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
