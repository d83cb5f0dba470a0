"""``Replica``: one partition's replica on this node: Raft's core, its log, its vote, and the appends that wait.

Driven from outside: ``tick`` at regular times, ``receive`` for each message, ``sync`` after it has asked for one.
The effects of a step are carried out in their order with the lock held; syncs run beside it. What fails on the disk
takes the replica out of the group, as if its node were down, and not the node: where the log is whole it begins anew
a moment later (``comeback.py``), else its node opens it anew (``replica_manager.py``). A leader whose disk refuses what
is appended gives its place to an in-sync follower (``replication/disk_watch.py``).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Final

from logstore.errors import (
    CorruptBatchError,
    DamagedStoreError,
    LogStoreError,
    OutOfOrderSequenceError,
    from_os_error,
)
from logstore.invariants import invariant
from logstore.log.append_validation import CheckedBatch
from logstore.log.log_offsets import Appended
from logstore.log.producers.producer_state import Marker
from logstore.log.replica_log import ReplicaLog
from logstore.seams.fs import FileSystem
from logstore.types import Acks
from replication.disk_watch import is_refusal
from replication.errors import DivergedLogError, LeaderDiskError, LeaderNotReadyError, NotLeaderError
from replication.raft import effects
from replication.raft.core import RaftCore
from replication.raft.effects import Effect
from replication.raft.messages import AppendReply, AppendRequest, TimeoutNow
from replication.raft.state import SendBudget
from replication.raft.types import NO_NODE, Membership, NodeId, RaftSettings, Role, VoteState
from replication.replicas.comeback import Comeback
from replication.replicas.heirs import Heirs
from replication.replicas.in_sync import InSync
from replication.replicas.log_adapter import LogAdapter
from replication.replicas.log_front import LogFront
from replication.replicas.member_file import MemberFile
from replication.replicas.pending import (
    Awaited,
    PendingAppends,
    PendingReads,
    ReadAnswer,
    ReplicatedAppend,
    refused,
)
from replication.replicas.repair import Abstention
from replication.replicas.replica_host import ReplicaHost
from replication.replicas.state_snapshots import KeptState, StateSnapshots
from replication.replicas.vote_store import VoteStore
from replication.replicas.vote_writer import VoteWriter
from replication.transport import GroupId, GroupMessage

logger = logging.getLogger(__name__)

_REST_TICKS: Final = 5  # without anything to do for so long a leader and its followers rest
_HEARD_S: Final = 1.0


class Replica:
    """Thread-safe. ``open_votes``: the same file again, after a write that failed; ``save_state``: have the log's
    bounds durable; ``lag_s``: how far behind a follower in sync may be; ``states``: of a log whose front goes once a
    snapshot of its state stands for it; ``recovery``: what the node's peers that are not in sync are sent."""

    def __init__(
        self,
        group: GroupId,
        node_id: NodeId,
        log: ReplicaLog,
        votes: VoteStore,
        members: MemberFile,
        settings: RaftSettings,
        host: ReplicaHost[Replica],
        randomness: random.Random,
        *,
        fs: FileSystem,
        open_votes: Callable[[], VoteStore],
        save_state: Callable[[], None],
        lag_s: float,
        states: StateSnapshots | None = None,
        recovery: SendBudget | None = None,
    ) -> None:
        self.group = group
        self.fs = fs
        self.where = log.where
        self.node_id = node_id
        self.log = log
        self.lock = threading.RLock()
        self.failure: LogStoreError | None = None
        self.votes = VoteWriter(votes, open_votes)
        self._states = states
        self._adapter = LogAdapter(log, members, states)
        self._settings = settings
        self._host = host
        self._randomness = randomness
        self._log_front = LogFront(log, save_state, by_snapshots=states is not None)
        self._closed = False
        self._comeback = Comeback(self.where)
        self._pending = PendingAppends(self.where)
        self._reads = PendingReads()
        self._gathering = 0  # depth of ``together``
        self._idle_ticks = 0
        self.resting = False  # no tick is given until something happens (``resting.py``)
        self.in_sync = InSync(lag_s)
        self._heirs = Heirs(host)
        self._recovery = recovery
        self._abstention = Abstention(fs, log.directory)
        self.core = self._make_core()

    def _make_core(self) -> RaftCore:
        trail = self._adapter.trail()
        seed = random.Random(self._randomness.random())
        return RaftCore(
            self.node_id,
            self._settings,
            trail,
            self._adapter,
            self.votes.state,
            min(self.log.high_watermark, trail.end),
            seed,
            abstains=self._abstention.abstains,
            held_back=self._abstention.held_back,
            recovery=self._recovery,
        )

    # --- what it is ---

    @property
    def is_leader(self) -> bool:
        return self.core.state.role is Role.LEADER and self.failure is None

    @property
    def leader_id(self) -> NodeId:
        """-1: not known."""
        return self.core.state.leader_id if self.failure is None else -1

    @property
    def term(self) -> int:
        return self.core.state.term

    @property
    def membership(self) -> Membership:
        return self.core.state.membership

    @property
    def is_all_committed(self) -> bool:
        """Leader: whether all of its log is committed, so that there is nothing of which it is not known."""
        state = self.core.state
        return self.is_leader and state.knows_committed and state.commit == state.trail.end

    @property
    def is_held_back(self) -> bool:
        """Whether what it promised is not known (``repair.py``)."""
        return self._abstention.held_back

    def readmit(self, *, never_promised: bool = False) -> None:
        """See ``RaftCore.readmit``; durable when it returns. StorageError, DiskFullError."""
        with self.lock:
            if self._closed or not self.is_held_back:
                return
            self._abstention.readmit(never_promised=never_promised)
            self.core.readmit(never_promised=never_promised)
            self.wake()

    # --- driven from outside ---

    @property
    def is_damaged(self) -> bool:
        """Whether its own log is, so that others have to fill it anew."""
        return isinstance(self.failure, DamagedStoreError | CorruptBatchError)

    def tick(self, behind: Set[NodeId] = frozenset()) -> None:
        """``behind``: as for ``RaftCore.tick``."""
        with self.lock:
            if self._closed:
                return
            now_s = self._host.now_s()
            if self.failure is not None:
                self._begin_anew(now_s)
                return
            if (start := self._front()) is None:
                return
            core, state = self.core, self.core.state
            if start > state.trail.start:
                core.log_start_raised(start)
            self._comeback.look(now_s)
            self.in_sync.note(state, now_s)
            self._pending.give_up_late(now_s)
            state.reluctant = self._host.disk_refuses(self.node_id)
            self._step(lambda: core.tick(behind))
            if state.role is Role.LEADER:
                self._rest_if_idle()

    def look(self) -> None:
        """Now and then, while it rests: what its log has done by itself."""
        with self.lock:
            start = None if self._closed or self.failure is not None else self._front()
            if start is not None and start > self.core.state.trail.start:
                self.wake()

    def _front(self) -> int | None:
        """Where the log begins; None: it cannot be read, or takes nothing more, and the replica has failed."""
        try:
            return self._log_front.look()
        except (LogStoreError, OSError) as error:
            self._fail(error)
            return None

    def _rest_if_idle(self) -> None:
        idle = (
            not self._pending and self.core.may_rest() and self.in_sync.hears_all(self.core.state, _HEARD_S)
        )
        self._idle_ticks = self._idle_ticks + 1 if idle else 0
        if self._idle_ticks >= _REST_TICKS and self.failure is None:
            self._step(self.core.rest)
            self._rest()

    def _rest(self) -> None:
        self.resting, self._idle_ticks = True, 0
        self._host.rests(self)

    def wake(self) -> None:
        """Something happened: ticks are needed again. With the lock held."""
        if self.resting:
            self.resting = False
            self.in_sync.listen_anew(self.core.state, self._host.now_s())
            self._host.wakes(self)

    def leader_is_gone(self) -> None:
        """The node of the leader is silent, has ended, or was started anew."""
        with self.lock:
            if not self._closed and self.failure is None:
                self.wake()
                self._step(self.core.leader_is_gone)

    def receive(self, message: GroupMessage) -> None:
        with self.lock:
            if self._closed or self.failure is not None:
                return
            inner = message.message
            if self.resting and not isinstance(inner, AppendReply):
                self.wake()
            if isinstance(inner, TimeoutNow):
                self.core.state.reluctant = self._host.disk_refuses(self.node_id)
            self._step(lambda: self.core.receive(inner))
            if self.core.rests(inner) and self.failure is None:
                self._rest()
            if message.log_start > self.log.log_start_offset and isinstance(message.message, AppendRequest):
                self._follow_start(message)

    def _follow_start(self, message: GroupMessage) -> None:
        state = self.core.state
        if state.leader_id == message.message.sender and message.message.term == state.term:
            try:
                self._log_front.follow(message.log_start)
            except LogStoreError as error:
                self._fail(error)

    # What it asked its host for (``replica_round.py``).

    def vote_stored(self, vote: VoteState) -> None:
        self._tell(lambda: self.core.vote_stored(vote))

    def log_synced(self) -> None:
        self._tell(lambda: self.core.log_durable(*self._adapter.flushed(self.core.state.trail)))

    def disk_failed(self, failure: LogStoreError) -> None:
        """To make its vote or its log durable."""
        with self.lock:
            if not self._closed:
                self._fail(failure)

    def _tell(self, step: Callable[[], list[Effect]]) -> None:
        with self.lock:
            if not self._closed and self.failure is None:
                self._step(step)

    def _write_vote(self) -> list[Effect]:
        """The vote that is due, at once: what is cut next was of an earlier term."""
        vote = self.votes.write()
        return [] if vote is None else self.core.vote_stored(vote)

    # --- effects ---

    def _step(self, step: Callable[[], list[Effect]]) -> None:
        """The lock is held. One thing that happened, and all that follows from it."""
        try:
            if due := step():
                self._carry_out(due)
            if self._abstention.abstains and not self.core.state.abstains:
                self._abstention.end()
                logger.warning("%s: this node's replica has caught up, and votes again", self.where)
        except (LogStoreError, OSError) as error:
            self._fail(error)

    def _carry_out(self, due: list[Effect]) -> None:
        waiting = list(due)
        while waiting:
            effect = waiting.pop(0)
            match effect:
                case effects.Send(to, message):
                    start = self.log.log_start_offset if isinstance(message, AppendRequest) else 0
                    self._host.send(to, GroupMessage(self.group, message, start))
                case effects.Append(entries):
                    state = self.core.state
                    self._adapter.append(entries, self.node_id, state.membership)
                    self._host.wants_sync(self)
                    waiting += self.core.log_appended()
                case effects.Commit(offset):
                    self.log.advance_high_watermark(offset)
                    self._pending.settle(self.log.high_watermark)
                case effects.StoreVote(vote):
                    self.votes.want(vote)
                    self._host.wants_sync(self)
                case effects.Truncate(offset):
                    waiting += self._write_vote()
                    self._adapter.truncate(offset)
                case effects.RoleChanged():
                    self._role_changed()
                case effects.InstallSnapshot(snapshot):
                    waiting += self._write_vote()
                    self._adapter.install(snapshot)
                    end = snapshot.end_offset
                    waiting += self.core.log_durable(end, self.core.state.trail.term_before(end))
                case effects.SendSnapshot(to, term, at):
                    request = self._adapter.snapshot_request(self.core.state, to, term, at)
                    if request is not None:
                        self._host.send(to, GroupMessage(self.group, request))
                case effects.ReadReady(read_id, offset):
                    self._reads.answer(read_id, offset)
                case effects.ReadFailed(read_id, error):
                    self._reads.answer(read_id, -1, error)

    def state_before(self, applied: int) -> KeptState | None:
        """What stands for records from ``applied`` on that the log has no more; None: it has them. StorageError;
        DamagedStoreError: it is damaged."""
        if self._states is None or applied >= self.log.log_start_offset:
            return None
        with self.lock:
            return self._adapter.newest_state(self._states)

    def _role_changed(self) -> None:
        if not self.is_leader:
            self._pending.end(self.leader_id)
        self._idle_ticks = 0
        self.in_sync.reset(self.core.state, self._host.now_s())
        self.log.wake_waiters()  # readers that wait here look again, and are told who leads
        self._host.role_changed(self)

    # --- failure ---

    def _fail(self, error: LogStoreError | OSError) -> None:
        """The lock is held. The replica takes no part any more."""
        failure = (
            error if isinstance(error, LogStoreError) else from_os_error(error, "use", self.log.directory)
        )
        if is_refusal(failure):
            self._host.note_refused(failure)
        if self.failure is None:
            self._comeback.failed(failure, self._host.now_s())
            if self.is_leader and (heir := self._heirs.next(self.core.state, self.in_sync)) != NO_NODE:
                self._host.send(heir, GroupMessage(self.group, TimeoutNow(self.node_id, self.term)))
        self.failure = failure
        self.wake()
        self._pending.end(self.leader_id)
        self._reads.end(f"the replica of {self.where} failed: {failure.message}")
        self.log.wake_waiters()
        self._host.role_changed(self)

    def _begin_anew(self, now_s: float) -> None:
        """What failed may work again (a disk that was full): from what the log holds, where that is known."""
        waits = self._host.disk_refuses(self.node_id) or not self._comeback.is_due(now_s)
        if waits or self.log.poisoned or self.is_damaged or isinstance(self.failure, DivergedLogError):
            return
        try:
            self.log.sync()
            self.votes.begin_anew()
            core = self._make_core()
        except (LogStoreError, OSError) as error:
            self._comeback.fails_still(error, now_s)
            return
        self._comeback.worked(now_s)
        self.core, self.failure = core, None
        self._host.role_changed(self)

    # --- appends ---

    def append(
        self,
        batches: Sequence[CheckedBatch],
        acks: Acks,
        *,
        expected_offset: int | None = None,
        append_time_ms: int = -1,
    ) -> ReplicatedAppend:
        """As leader. NotLeaderError, LeaderNotReadyError; errors as ``OwnedLog.append``."""
        with self.lock:
            self.check_leads()
            known = all(batch.header.producer_id >= 0 for batch in batches)
            pending = self._appended(
                lambda: self.log.append(batches, expected_offset, self.term), acks, append_time_ms, known
            )
            return pending.hurried() if known else pending

    def append_marker(self, marker: Marker, *, once: bool, open_since: int) -> ReplicatedAppend:
        """As leader, ``acks="all"``. Errors as ``OwnedLog.append_marker``."""
        with self.lock:
            self.check_leads()
            return self._appended(
                lambda: self.log.append_marker(marker, once=once, open_since=open_since, term=self.term),
                "all",
                -1,
                once,
            )

    def _appended(
        self, append: Callable[[], Appended], acks: Acks, time_ms: int, known: bool
    ) -> ReplicatedAppend:
        before, end = self.core.state.trail.end, self.log.log_end_offset
        invariant(self._gathering > 0 or before == end, f"{self.where}: Raft ends at {before}, not the log")
        try:
            appended = append()
        except LogStoreError as error:
            safe = known or end == self.log.log_end_offset  # to be made again elsewhere
            if self.log.poisoned:
                self._fail(error)
            else:
                self._propose(at_once=is_refusal(error))  # batches before it may be in
            if isinstance(error, OutOfOrderSequenceError):
                return refused(self, before, error)
            if self._gives_way(error) and safe:
                raise LeaderDiskError(f"{error.message}; another node is to lead") from error
            raise
        pending = self.awaited(appended, acks, time_ms, known)
        self._propose()
        return pending

    def awaited(
        self, appended: Appended, acks: Acks = "all", time_ms: int = -1, known: bool = True
    ) -> ReplicatedAppend:
        """An append that is decided when all before its end is committed. With the lock held."""
        done = acks != "all" or appended.next_offset <= self.log.high_watermark
        since_s = self._host.now_s()
        pending = ReplicatedAppend(self, appended, time_ms, done=done, known=known, since_s=since_s)
        if not done:
            self._pending.add(pending)
        return pending

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is appended within is one entry to Raft: one message to each follower, and one sync."""
        with self.lock:
            self._gathering += 1
            try:
                yield
            finally:
                self._gathering -= 1
                self._propose()

    def _gives_way(self, error: LogStoreError) -> bool:
        """Whether another replica is asked to lead, as the disk refused an append."""
        if self.failure is not None:
            return self._heirs.asked != NO_NODE
        if not is_refusal(error):
            return False
        self._host.note_refused(error)
        return self.give_way() != NO_NODE

    def _propose(self, *, at_once: bool = False) -> None:
        """What came into the log behind Raft's back, as one entry."""
        count = self.log.log_end_offset - self.core.state.trail.end
        if count and (at_once or not self._gathering) and self.failure is None:
            self._step(lambda: self.core.propose([(count, None)])[1])

    def help_on(self, append: Awaited) -> None:
        self._host.help_on(append)

    # --- what a leader is asked ---

    def check_leads(self) -> None:
        """NotLeaderError, LeaderNotReadyError. With the lock held, if it is to stay so."""
        self.wake()
        if self._closed:
            raise NotLeaderError(f"this node has given the replica of {self.where} up")
        if self.failure is not None:
            raise NotLeaderError(f"the replica of {self.where} failed: {self.failure.message}")
        try:
            self.core.check_leads()
        except NotLeaderError as error:
            raise NotLeaderError(
                f"node {self.node_id} does not lead {self.where}", leader_id=error.leader_id
            ) from None
        except LeaderNotReadyError:
            raise LeaderNotReadyError(f"{self.where} is about to have another leader") from None

    def read_index(self, answer: ReadAnswer) -> None:
        """Have a majority confirm that this node leads; then ``answer`` has the position up to which all that was
        acknowledged before is committed."""
        with self.lock:
            try:
                self.check_leads()
            except LogStoreError as error:
                answer(-1, error)
                return
            number = self._reads.add(answer)
            self._step(lambda: self.core.read(number))

    def change_membership(self, wanted: Membership) -> ReplicatedAppend:
        """Errors as ``membership.change_membership``."""
        with self.lock:
            self.check_leads()
            try:
                entry, due = self.core.change_membership(wanted)
            except LogStoreError:
                self._step(self.core.log_appended)
                raise
            pending = self.awaited(Appended(entry.base_offset, entry.end_offset))
            self._step(lambda: due)
            return pending

    def transfer(self, to: NodeId) -> None:
        """NotLeaderError; LeaderNotReadyError where ``to`` is no voter that follows."""
        with self.lock:
            self.check_leads()
            self._step(lambda: self.core.transfer(to))

    def give_way(self) -> NodeId:
        """Leader: have an in-sync follower lead instead, which is said; NO_NODE: there is none. With the lock held.
        NotLeaderError, LeaderNotReadyError."""
        heir = self._heirs.next(self.core.state, self.in_sync)
        if heir != NO_NODE:
            self.transfer(heir)
        return heir

    def stand(self) -> None:
        """Stand for election now: nobody has led this group before, and this is the node that should."""
        with self.lock:
            if not self._closed and self.failure is None and self.leader_id < 0:
                self.wake()
                self._step(self.core.stand)

    # --- the end ---

    def close(self) -> None:
        """The replica says and takes nothing more. Its log is its owner's to close."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self._pending.end(self.leader_id)
            self._reads.end(f"this node has given the replica of {self.where} up")
            self.votes.close()
