"""``LogAdapter``: a partition's ``ReplicaLog`` as Raft sees it: entries to read, effects to carry out."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.errors import CorruptBatchError, DamagedStoreError, SegmentVanishedError
from logstore.format.batch import check_crc, read_header
from logstore.invariants import invariant
from logstore.log.append_validation import CheckedBatch
from logstore.log.cleaning.compaction import Cover
from logstore.log.producers.producer_snapshot import decode_snapshot
from logstore.log.replica_log import ReplicaLog
from replication.errors import DamagedMessageError
from replication.raft.trail import Trail
from replication.raft.types import Entry, EntryKind, Membership, NodeId, Snapshot
from replication.replicas.entries import encode_membership, entries_of, entry_of
from replication.replicas.member_file import MemberFile, MemberRow


class LogAdapter:
    """A ``LogView``. Not thread-safe: its replica's lock is held. Errors of its methods: those of the log
    (``StorageError``, ``DiskFullError``, ``PartitionPoisonedError``, ``CorruptBatchError``) and ``OSError``."""

    def __init__(self, log: ReplicaLog, members: MemberFile) -> None:
        self.log = log
        self._members = members

    # --- what there is ---

    def trail(self) -> Trail:
        """What the log holds; all of it is durable when it was just opened."""
        log = self.log
        end = log.log_end_offset
        epochs = [entry for entry in log.epochs.entries if entry[1] < end]
        trail = Trail(epochs, log.first_batch(), end)
        rows = [(row.position, row.membership) for row in self._members.rows if _holds(trail, row)]
        return Trail(epochs, trail.start, end, rows)

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
        """Of all that is before the log; None: nothing is."""
        made = self.log.snapshot()
        membership = trail.membership_at(made.start_offset)
        if made.start_offset == 0 or membership is None:
            return None
        return Snapshot(made.start_offset, made.epochs, membership, made.producers)

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
        """Durable when it returns. ``CorruptBatchError``: the snapshot's producers are none."""
        producers = decode_snapshot(bytes(snapshot.data), self.log.where)
        self._members.note(MemberRow(snapshot.end_offset, -1, snapshot.membership))
        self.log.install_snapshot(snapshot.end_offset, producers, snapshot.epochs)
        self._members.reset(snapshot.end_offset, snapshot.membership)


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
