"""A replica's log: what Raft needs of a partition's log beyond what its owner does with it.

The log is the Raft log: index is offset, term is leader epoch, an entry is a batch. Readers see what the commit index
covers (``advance_high_watermark``), however much more is durable here; what lies beyond may be another leader's and
is cut off again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logstore.errors import DamagedStoreError, from_os_error
from logstore.format.batch import read_header
from logstore.format.control import ControlType, encode_control_batch, encode_leader_change
from logstore.invariants import invariant
from logstore.log.append_validation import CheckedBatch, check_follower_append
from logstore.log.checkpoints import encode_pairs
from logstore.log.epochs import FILE_NAME as EPOCHS_FILE
from logstore.log.epochs import Epochs
from logstore.log.log_offsets import Appended, TermEnd
from logstore.log.owned_log import OwnedLog
from logstore.log.producers.producer_recovery import RecoveredProducers, recover_producers, replay_from
from logstore.log.producers.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from logstore.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from logstore.log.producers.producer_state import ProducerEntry, ProducerStates
from logstore.log.producers.row_counts import note_counts
from logstore.log.recovery import snapshot_install
from logstore.log.recovery.snapshot_install import LogSnapshot
from logstore.log.segments.listing import Listing
from logstore.log.segments.segment_files import truncated
from logstore.log.segments.segment_list import SegmentList
from logstore.seams.fs import replace_file


class ReplicaLog(OwnedLog):
    """See ``OwnedLog``; opened with ``LoadRules(high_watermark=..., epochs="keep")`` and ``by_commit_index``."""

    first_epoch = 1  # of the first leader: it need not be written when its first record comes
    _front: tuple[int, SegmentList, int] | None = None
    """The log start and the list of segments that were seen last, and where the first batch was then."""

    # --- append ---

    def append_leader_change(self, term: int, leader_id: int, voters: Sequence[int]) -> Appended:
        """The first batch of a term: its leader and who could vote. What is committed with it commits all before it.
        ``FencedLeaderEpochError`` unless the term is newer than all that the log knows; errors as ``append``."""
        with self._lock:
            self._check_usable()
            known = self.epochs.entries  # of a log without records the first epoch was only prepared
            self._check_term(term - 1 if known and known[-1][1] < self.log_end_offset else term)
            return self._append_control(
                ControlType.LEADER_CHANGE, encode_leader_change(leader_id, voters), term
            )

    def append_voters(self, value: bytes, term: int) -> Appended:
        """A record of the log's voters, as leader of ``term``. Errors as ``append``."""
        with self._lock:
            self._check_usable()
            self._check_term(term)
            return self._append_control(ControlType.VOTERS, value, term)

    def _append_control(self, kind: ControlType, value: bytes, term: int) -> Appended:
        data = encode_control_batch(kind, value, timestamp_ms=self._clock.wall_ms())
        base = self.log_end_offset
        batch = CheckedBatch(memoryview(data), read_header(data))
        self._append_run([batch], 0, self._writing_epoch(term))
        return Appended(base, self.log_end_offset)

    def append_as_follower(self, batches: Sequence[CheckedBatch]) -> Appended:
        """Keep offsets and epochs as they come. InvalidRecordError on a gap, a step back, or an epoch older than that
        of the last record."""
        with self._lock:
            self._check_usable()
            base = self.log_end_offset
            check_follower_append(batches, base, self.epochs.epoch_at(base - 1), self.where)
            if batches and batches[0].header.leader_epoch < self.epochs.latest:
                self._forget_epochs_without_records()
            for number, batch in enumerate(batches):
                self._assign_epoch(batch.header.leader_epoch)
                self._append_run(batches, number, batch.header.leader_epoch, count=1)
            return Appended(base, self.log_end_offset)

    def _forget_epochs_without_records(self) -> None:
        """An epoch is noted before its first record: where the disk refused that one, records of an older leader, which
        are committed, may come in its place. Durable before them, or they would count as of the newer epoch."""
        before = self.epochs.entries
        if self.epochs.truncate(self.log_end_offset):
            self._store_epochs(before)

    def check_whole(self) -> None:
        """``DamagedStoreError`` where the first segment is missing, ``CorruptBatchError`` for one between two others:
        recovery looks at the newest alone, and others believe that this log holds all. Reads the end of each segment.
        ``OSError``."""
        segments = self.segments.segments
        if segments and segments[0].base_offset > self.log_start_offset:
            raise DamagedStoreError(
                f"{self.where} lacks the records from offset {self.log_start_offset} to "
                f"{segments[0].base_offset - 1}",
                path=self.directory,
            )
        self.segments.check_whole(self.log_start_offset)

    # --- terms ---

    def term_at(self, offset: int) -> int:
        """Term of the record at ``offset``; -1 where it is not known: before the first entry, or past the end."""
        with self._lock:
            return self.epochs.epoch_at(offset) if offset < self.log_end_offset else -1

    def end_of_term(self, term: int) -> TermEnd:
        """The newest term up to ``term`` that the log has records of (-1: none), and where those end: how far a
        follower whose newest term is ``term`` may agree with this log (KIP-101, KIP-595's diverging epoch)."""
        with self._lock:
            return TermEnd(*self.epochs.floor(term, self.log_end_offset))

    # --- truncation ---

    def truncate_to(self, offset: int) -> None:
        """Cut everything from the batch that holds ``offset`` on. Only for replication: a leader's log differs.

        Never below the high watermark. The recovery point is lowered durably first, since below it recovery
        promises what is about to go. Then whole segments go, newest first, so that a crash in between leaves a
        shorter log, never a hole; a closed segment that is cut is copied short and renamed over. Producers, open
        transactions, indexes, epochs and the tail in memory are those of the log that is left; it is durable.
        """
        with self._sync_lock, self._lock:
            self._check_usable()
            invariant(
                offset >= self.high_watermark,
                f"{self.where}: truncated to {offset}, below the high watermark {self.high_watermark}",
            )
            if offset >= self.log_end_offset:
                return
            try:
                start = self._batch_start(offset)
            except OSError as error:
                raise from_os_error(error, "truncate", self.directory) from error
            self._lower_recovery_point(start)
            try:
                self._truncate(start)
            except OSError as error:
                self._poison(from_os_error(error, "truncate", self.directory))
                raise from_os_error(error, "truncate", self.directory) from error
            except BaseException as interrupt:
                self._poison(self._cut_short("a truncation", interrupt))
                raise

    def _lower_recovery_point(self, offset: int) -> None:
        """Durably, or not at all: the next truncation must not take for durable what a failed write left here."""
        before = self.recovery_point
        if before > offset:
            self.recovery_point = offset
            try:
                self._before_roll(self)
            except BaseException:
                self.recovery_point = before
                raise

    def _truncate(self, offset: int) -> None:
        """``offset`` is a batch's first."""
        self._cuts += 1
        self._reads.forget()
        self._held.let_go()
        cut = [one.base_offset for one in self.segments.segments if one.next_offset > offset]
        note_counts(self._pool.fs, self.directory, {}, gone=cut)  # else rows that go would be missed
        self.segments = truncated(self._pool, self.directory, self.segments, offset)
        self.log_end_offset = self.flushed_offset = offset
        self.unsynced_records = 0
        self.cleaner_point = min(self.cleaner_point, offset)
        self._producers_again(offset)
        if self.epochs.truncate(offset):
            path = f"{self.directory}/{EPOCHS_FILE}"
            replace_file(self._pool.fs, path, encode_pairs(self.epochs.entries))
        self._publish(self)

    def _producers_again(self, end: int) -> None:
        listing = Listing.of(self._pool.fs.listdir(self.directory), self.directory)
        snapshots = [base for base, suffix in listing.indexes if suffix == SNAPSHOT_SUFFIX]
        none_at, now_ms = self.producers.no_producers_at, self._clock.wall_ms()
        # From where all is committed: a snapshot knows of no transaction that has ended.
        settled = min(end, self.high_watermark)
        replay = replay_from(self._pool.fs, self.directory, snapshots, none_at, settled, now_ms)
        replay.advance(self.segments.segments, end)
        loaded = recover_producers(
            self._pool,
            self.directory,
            self.segments.segments,
            snapshots,
            replay,
            no_producers_at=none_at,
            next_offset=end,
            point=end,
        )
        if self.segments.active is not None:
            self.segments.active.forget_aborted()
        self.producers.replace(loaded, self.high_watermark)

    # --- snapshots ---

    def first_batch(self) -> int:
        """Base offset of the first batch that there is: the log start, or before it, where records were deleted up to
        the middle of a batch. ``OSError``, ``CorruptBatchError``."""
        known = self._front
        if known is not None and known[0] == self.log_start_offset and known[1] is self.segments:
            return known[2]  # asked at every tick of every replica
        with self._lock:
            start, segments = self.log_start_offset, self.segments
            if start >= self.log_end_offset or segments.active is None:
                return start
            first = max(self._batch_start(start), segments.segments[0].base_offset)
            self._front = start, segments, first
            return first

    def snapshot(self) -> LogSnapshot:
        """What stands for all before ``first_batch``, for a replica that lacks it: its producers and its epochs.
        ``OSError``, ``CorruptBatchError``."""
        start = self.first_batch()
        with self._lock:
            listing = Listing.of(self._pool.fs.listdir(self.directory), self.directory)
            offsets = [
                base for base, suffix in listing.indexes if suffix == SNAPSHOT_SUFFIX and base <= start
            ]
            none_at, now_ms = self.producers.no_producers_at, self._clock.wall_ms()
            replay = replay_from(self._pool.fs, self.directory, offsets, none_at, start, now_ms)
            replay.advance(self.segments.segments, start)
            epochs = tuple(entry for entry in self.epochs.entries if entry[1] < start)
            return LogSnapshot(start, epochs, encode_snapshot(replay.states))

    def install_snapshot(
        self, start_offset: int, producers: Iterable[ProducerEntry], epochs: Sequence[tuple[int, int]]
    ) -> None:
        """Give up all records and begin anew at ``start_offset``, with the ``producers`` and ``epochs`` (epoch, start
        offset) of the records before it: for a follower that is behind the leader's log start. All before it counts
        as committed. Not below the high watermark. A crash leaves the old log or the new one; after an error the
        log is poisoned, and which of the two the next recovery shows is not known."""
        entries = tuple(entry for entry in epochs if entry[1] < start_offset)
        snapshot = LogSnapshot(start_offset, entries, encode_snapshot(producers))
        with self._sync_lock, self._lock:
            self._check_usable()
            invariant(
                start_offset >= self.high_watermark,
                f"{self.where}: a snapshot at {start_offset} must not take back what is committed up to "
                f"{self.high_watermark}",
            )
            try:
                self._install(snapshot)
            except OSError as error:
                failure = from_os_error(error, "install a snapshot in", self.directory)
                self._poison(failure)
                raise failure from error
            except BaseException as interrupt:
                self._poison(self._cut_short("a snapshot's installation", interrupt))
                raise

    def _install(self, snapshot: LogSnapshot) -> None:
        start = snapshot.start_offset
        self._cuts += 1
        snapshot_install.decide(self._pool.fs, self.directory, snapshot)
        self._reads.forget()
        self._held.let_go()
        for segment in self.segments.segments:
            segment.retired = True  # whoever reads it meanwhile finds it vanished
        self.segments = SegmentList()
        snapshot_install.carry_out(self._pool, self.directory, snapshot)
        self.epochs = Epochs(snapshot.epochs)
        self.log_start_offset = self.log_end_offset = self.flushed_offset = self.recovery_point = start
        self.unsynced_records, self.cleaner_point = 0, start
        states = ProducerStates(decode_snapshot(snapshot.producers, self.directory))
        none_at = start if len(states) == 0 else 0
        self.producers.replace(RecoveredProducers(states, none_at, frozenset({start})), start)
        self._advance_high_watermark(start)
        self._installing = True
        self._finish_installing()
        self._publish(self)
