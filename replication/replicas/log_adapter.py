"""``LogAdapter``: a partition's ``ReplicaLog`` as Raft sees it: entries to read, effects to carry out."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.errors import CorruptBatchError, DamagedStoreError, SegmentVanishedError
from logstore.format.batch import check_crc, read_header
from logstore.invariants import invariant
from logstore.log.append_validation import CheckedBatch
from logstore.log.cleaning.compaction import Cover
from logstore.log.producers.producer_snapshot import decode_snapshot
from logstore.log.producers.producer_state import ProducerEntry
from logstore.log.replica_log import ReplicaLog
from replication.errors import DamagedMessageError
from replication.raft.messages import SnapshotRequest
from replication.raft.state import RaftState
from replication.raft.trail import Trail
from replication.raft.types import Entry, EntryKind, Membership, NodeId, Snapshot
from replication.replicas.entries import encode_membership, entries_of, entry_of
from replication.replicas.member_file import MemberFile, MemberRow
from replication.replicas.state_snapshots import KeptState, SnapshotId, StateSnapshots, decode_state


class LogAdapter:
    """A ``LogView``. Not thread-safe: its replica's lock is held. Errors of its methods: those of the log
    (``StorageError``, ``DiskFullError``, ``PartitionPoisonedError``, ``CorruptBatchError``) and ``OSError``.
    ``states``: of a log whose front goes once a snapshot of its state stands for it."""

    def __init__(self, log: ReplicaLog, members: MemberFile, states: StateSnapshots | None = None) -> None:
        self.log = log
        self.states = states
        self._members = members
        self._made: Snapshot | None = None  # the last one, whose pieces may be on their way

    # --- what there is ---

    def trail(self) -> Trail:
        """What the log holds; all of it is durable when it was just opened."""
        log = self.log
        end = log.log_end_offset
        epochs = [entry for entry in log.epochs.entries if entry[1] < end]
        trail = Trail(epochs, log.first_batch(), end)
        rows = [(row.position, row.membership) for row in self._members.rows if _holds(trail, row)]
        return Trail(epochs, trail.start, end, rows)

    def flushed(self, trail: Trail) -> tuple[int, int]:
        """Up to where the log is durable, and the term there."""
        end = self.log.flushed_offset
        return end, trail.term_before(end)

    def entries(self, start: int, max_bytes: int) -> tuple[Entry, ...]:
        log = self.log
        try:
            chunk = log.read(start, max_bytes, log.log_end_offset)
        except SegmentVanishedError:
            return ()  # retention has just taken it: the next tick tells Raft
        if chunk is None:
            return ()
        found = [entry for entry in entries_of(chunk.data) if entry.end_offset > start]
        if not found or found[0].base_offset > start:
            raise DamagedStoreError(
                f"{log.where} lacks the records from offset {start} on, which it had", path=log.directory
            )
        if found[0].base_offset < start:
            rest = _cut(found[0], start)
            if rest is None:
                return ()
            found[0] = rest
        return tuple(found)

    def snapshot(self, trail: Trail) -> Snapshot | None:
        """Of all that is before the log, or of the state that is newer; None: nothing is."""
        if self.states is not None:
            return self._state_snapshot(self.states, trail)
        made = self.log.snapshot()
        membership = trail.membership_at(made.start_offset)
        if made.start_offset == 0 or membership is None:
            return None
        return Snapshot(made.start_offset, made.epochs, membership, made.producers)

    def _state_snapshot(self, states: StateSnapshots, trail: Trail) -> Snapshot | None:
        """DamagedStoreError: there is none any more that stands for what the log lacks."""
        found = states.newest_content()
        if found is None or found[0].end_offset < trail.start:
            if trail.start == 0:
                return None
            raise DamagedStoreError(
                f"{self.log.where} has no whole snapshot of what is before offset {trail.start}",
                path=self.log.directory,
            )
        (end, _), data = found
        membership = trail.membership_at(end)
        if membership is None:
            return None
        return Snapshot(end, tuple(entry for entry in trail.epochs if entry[1] < end), membership, data)

    def newest_state(self, states: StateSnapshots) -> KeptState:
        """What stands for all that the log has no more. StorageError; DamagedStoreError: it is damaged."""
        found, start = states.newest_state(), self.log.log_start_offset
        if found is None or found.end_offset < start:
            raise DamagedStoreError(
                f"{self.log.where} has no whole snapshot of what is before offset {start}",
                path=self.log.directory,
            )
        return found

    def snapshot_request(self, state: RaftState, to: NodeId, term: int, at: int) -> SnapshotRequest | None:
        """The snapshot to be sent in ``term``, a large one from byte ``at`` on, out of the budget for recovery; None:
        there is none, or the term is over."""
        progress = state.peers.get(to)
        if state.term != term or progress is None:
            return None
        request = self._snapshot_request(state, at)
        if request is not None and progress.recovers and state.recovery is not None:
            state.recovery.take(len(request.snapshot.data or b""))
        return request

    def _snapshot_request(self, state: RaftState, at: int) -> SnapshotRequest | None:
        made = self._made
        if at == 0 or made is None or made.end_offset < state.trail.start:
            made = self._made = self.snapshot(state.trail)
        if made is None:
            return None
        total, piece = len(made.data), state.settings.snapshot_piece_bytes
        if total <= piece:
            return SnapshotRequest(state.node_id, state.term, made)
        data = made.data[at : at + piece]
        return SnapshotRequest(state.node_id, state.term, made._replace(data=data), at, total)

    # --- effects ---

    def append(self, entries: Sequence[Entry], leader_id: NodeId, membership: Membership) -> None:
        """Entries of a leader, as they came; or what this leader itself has Raft write. Records that it was given by
        its callers are in the log already. ``DamagedMessageError``: a batch changed on its way, nothing is appended."""
        for entry in entries:
            if entry.membership is not None:
                self._members.note(MemberRow(entry.end_offset, entry.term, entry.membership))
        if entries[0].data is not None:
            self.log.append_as_follower([_checked(entry.data) for entry in entries])
            return
        for entry in entries:
            if entry.kind is EntryKind.LEADER_CHANGE:
                self.log.append_leader_change(entry.term, leader_id, sorted(membership.voters))
            elif entry.membership is not None:
                self.log.append_voters(encode_membership(entry.membership), entry.term)
            invariant(
                self.log.log_end_offset >= entry.end_offset,
                f"{self.log.where} ends at {self.log.log_end_offset}, before {entry.end_offset}",
            )

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self._members.truncate(offset)

    def install(self, snapshot: Snapshot) -> None:
        """Durable when it returns. ``DamagedMessageError``: the snapshot changed on its way, nothing is installed. The
        state comes first: a crash in between leaves the old log, which it does not stand for."""
        producers = self._checked_snapshot(bytes(snapshot.data))
        if self.states is not None:
            term = snapshot.epochs[-1][0] if snapshot.epochs else 0
            self.states.save(SnapshotId(snapshot.end_offset, term), bytes(snapshot.data))
        self._members.note(MemberRow(snapshot.end_offset, -1, snapshot.membership))
        self.log.install_snapshot(snapshot.end_offset, producers, snapshot.epochs)
        self._members.reset(snapshot.end_offset, snapshot.membership)
        self._made = None

    def _checked_snapshot(self, data: bytes) -> list[ProducerEntry]:
        """Its producers, which a state's log does not have."""
        try:
            if self.states is None:
                return list(decode_snapshot(data, self.log.where))
            decode_state(data, self.log.where)
        except CorruptBatchError as error:
            raise DamagedMessageError(f"a snapshot changed on its way: {error.message}") from error
        return []


def _holds(trail: Trail, row: MemberRow) -> bool:
    """Whether the log has the entry that the row is of, or stands behind it."""
    if row.position > trail.end:
        return False
    return row.term < 0 or row.position <= trail.start or trail.term_before(row.position) == row.term


def _checked(data: memoryview) -> CheckedBatch:
    header = read_header(data)
    try:
        check_crc(data, 0, header)
    except CorruptBatchError as error:
        raise DamagedMessageError(f"a batch changed on its way: {error.message}") from error
    return CheckedBatch(memoryview(data), header)


def _cut(entry: Entry, start: int) -> Entry | None:
    """The rest of a batch without records, which compaction has put in the place of several. None: it has records, and
    so ``start`` is where another log ends, whose term there is another one: the leader's next word without entries
    finds that out."""
    header = read_header(entry.data)
    if header.records_count:
        return None
    cover = Cover(start, entry.end_offset, entry.term, header.max_timestamp, False)
    return entry_of(cover.encoded())
