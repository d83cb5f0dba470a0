"""Open a partition for writing: trust what lies below the durable recovery point, scan what lies above.

- Below the recovery point nothing is scanned and nothing is ever cut: damage there is ``DamagedStoreError``.
- Above it, after a power loss, unsynced blocks may be missing in any order, so the log ends at the first bad
  batch; what is cut is kept beside it as `<segment>.cut-<time>` and reported.
- Above it, in the same boot, the page cache has survived: only an incomplete last write can be explained, and
  only that is cut. Anything else is damage.
- What is kept is durable, which does not make it committed: of a replica readers see no more than the high
  watermark that its state had, and its epochs are those of its records. A node that is alone commits what it
  recovered, and begins a new epoch after an unclean stop.

A clean partition takes the same way with its end as the recovery point: only the batches behind the newest
index entry are looked at. Whatever is kept is durable when ``load`` returns; recovery can itself be cut short
anywhere and be run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from logstore.errors import CorruptBatchError, DamagedStoreError, LogStoreError
from logstore.format.batch import HEADER_SIZE, check_crc, read_header
from logstore.log.cleaning import swap
from logstore.log.cleaning.retirement import DELETED_SUFFIX
from logstore.log.epochs import Epochs
from logstore.log.producers import producer_snapshot, transaction_index
from logstore.log.producers.lost_rows import put_back
from logstore.log.producers.producer_recovery import RecoveredProducers, recover_producers, replay_from
from logstore.log.producers.producer_replay import ProducerReplay
from logstore.log.producers.producer_state import ProducerStates
from logstore.log.recovery import snapshot_install
from logstore.log.recovery.epoch_recovery import recover_epochs
from logstore.log.recovery.scan import BadBatch, SegmentScan
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.growing_table import GrowingTable
from logstore.log.segments.listing import Listing
from logstore.log.segments.mapped_table import MappedTable
from logstore.log.segments.offset_index import IndexRule, OffsetIndex
from logstore.log.segments.segment import LOG_SUFFIX, Segment, file_name
from logstore.log.segments.segment_list import SegmentList
from logstore.log.segments.time_index import TimeIndex
from logstore.seams.fs import exists, read_file, remove_if_there, replace_file, write_all
from logstore.types import Buffer

_COPY_BYTES = 1 << 20
_INDEXES = (offset_index.SUFFIX, time_index.SUFFIX, transaction_index.SUFFIX)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadRules:
    """What is known before a partition is looked at.

    ``recovery_point``: offset below which all is durable, None if no state was found; ``clean``: the state
    says the log ends exactly there; ``same_boot``: the page cache of the last writer still exists;
    ``no_producers_at``: see ``PartitionState``; ``now_ms``: wall time, also of appends of which no snapshot tells;
    ``leave_cleaned``: another process is cleaning, and its `.cleaned` files are no leftovers.
    ``high_watermark``: what was durably known to be committed; None: all that is recovered is (a node that is
    alone). ``epochs``: after an unclean stop "step" begins a new one, as nobody else can elect a leader; "keep" has
    those whose records are there.
    """

    recovery_point: int | None
    log_start_offset: int
    clean: bool
    same_boot: bool
    interval_bytes: int
    max_batch_bytes: int
    now_ms: int
    no_producers_at: int = 0
    leave_cleaned: bool = False
    high_watermark: int | None = None
    epochs: Literal["step", "keep"] = "step"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoveredPartition:
    """What recovery did to one partition; ``store.recovery_report`` lists these.

    ``cut_bytes`` of ``cut_files`` were taken off the end; they began at offset ``end_offset`` or later.
    """

    topic: str
    partition: int
    scanned_bytes: int
    end_offset: int
    cut_bytes: int
    cut_files: tuple[str, ...]
    cut_reason: str | None
    leader_epoch: int
    indexes_rebuilt: int


class Loaded(NamedTuple):
    """A partition ready for its writer; all of it is durable. ``installing``: a snapshot took the log's place, and
    that is to be finished (``snapshot_install``) once the state says where the log begins."""

    segments: SegmentList
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    epochs: Epochs
    report: RecoveredPartition
    producers: RecoveredProducers
    installing: bool = False


def load(pool: FilePool, directory: str, topic: str, partition: int, rules: LoadRules) -> Loaded:
    """Bring the partition in ``directory`` (which exists) to a state that can be appended to.

    Errors: ``DamagedStoreError`` (with file and position), ``UnsupportedStoreVersionError``, ``OSError``.
    """
    return _Recovery(pool, directory, topic, partition, rules).run()


def load_new(topic: str, partition: int) -> Loaded:
    """What ``load`` finds in a folder that was just made: nothing."""
    report = RecoveredPartition(
        topic=topic,
        partition=partition,
        scanned_bytes=0,
        end_offset=0,
        cut_bytes=0,
        cut_files=(),
        cut_reason=None,
        leader_epoch=-1,
        indexes_rebuilt=0,
    )
    producers = RecoveredProducers(ProducerStates(), 0, frozenset())
    return Loaded(SegmentList([]), 0, 0, 0, Epochs(), report, producers)


class _Recovery:
    """One run; its fields are the report in the making."""

    def __init__(self, pool: FilePool, directory: str, topic: str, partition: int, rules: LoadRules) -> None:
        self.pool = pool
        self.fs = pool.fs
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.rules = rules
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.cut_files: list[str] = []
        self.cut_reason: str | None = None
        self.indexes_rebuilt = 0
        self.snapshots: list[int] = []
        self.replay = ProducerReplay(ProducerStates(), 0)

    def run(self) -> Loaded:
        self.pool.forget(self.directory)
        try:
            self.fs.stat(self.directory)  # refuses a symbolic link, which a listing would follow
            names = self.fs.listdir(self.directory)
        except FileNotFoundError:
            raise DamagedStoreError(f"{self.directory} is gone", path=self.directory) from None
        installed = self._installed(names)
        if installed or swap.recover(self.fs, self.directory, names):
            names = self.fs.listdir(self.directory)
        rules = self.rules
        listing = Listing.of(names, self.directory)
        for name in listing.leftovers:
            if not (rules.leave_cleaned and name.endswith((swap.CLEANED_SUFFIX, DELETED_SUFFIX))):
                remove_if_there(self.fs, f"{self.directory}/{name}")  # a process may sweep what it retired
        for base, suffix in sorted(listing.indexes):
            if base not in listing.bases and suffix in _INDEXES:
                self.fs.remove(f"{self.directory}/{file_name(base, suffix)}")  # of a roll that was cut short
        segments = self._segments(listing)
        point = rules.recovery_point
        if point is None:
            # Data without its state file: no crash explains that. Only the last segment may be unfinished.
            point = segments[-1].base_offset if segments else rules.log_start_offset
        due = point if rules.high_watermark is None else max(point, rules.high_watermark)
        if not segments and due > rules.log_start_offset:
            raise DamagedStoreError(
                f"{self.directory} holds no segment, but records up to offset {due} were durable",
                path=self.directory,
            )
        self._meet_producers(segments, listing, point)
        segments, next_offset = self._recover_from(segments, point)
        if segments and next_offset < due:
            path = segments[-1].path()
            raise DamagedStoreError(
                f"{path} ends at offset {next_offset}, but records up to {due} were durable",
                path=path,
                position=segments[-1].size,
            )
        self._rebuild_missing_indexes(segments[:-1], listing)
        epochs = recover_epochs(
            self.fs,
            self.directory,
            segments,
            next_offset,
            # A node that is alone begins an epoch of its own after an unclean stop, unless nothing was ever there.
            step=rules.epochs == "step" and not rules.clean,
            keep_empty=rules.epochs == "step",
            log_start_offset=rules.log_start_offset,
        )
        producers = self._producers(segments, next_offset, point)
        self.indexes_rebuilt += put_back(self.pool, self.directory, segments)
        if not rules.clean:
            self.fs.sync_dir(self.directory)
        return Loaded(
            SegmentList(segments),
            rules.log_start_offset,
            next_offset,
            next_offset
            if rules.high_watermark is None
            else max(rules.high_watermark, rules.log_start_offset),
            epochs,
            self._report(next_offset, epochs),
            producers,
            installed,
        )

    def _installed(self, names: list[str]) -> bool:
        """Carry out the snapshot that was decided on, if there is one: the log begins anew where it says."""
        with _as_damage(self.directory):
            snapshot = snapshot_install.pending(self.fs, self.directory, names)
        if snapshot is None:
            return False
        snapshot_install.carry_out(self.pool, self.directory, snapshot)
        start = snapshot.start_offset
        self.rules = replace(
            self.rules, recovery_point=start, log_start_offset=start, high_watermark=start, no_producers_at=0
        )
        return True

    def _meet_producers(self, segments: list[Segment], listing: Listing, point: int) -> None:
        """What producers had done before ``point``; the scan behind it goes on from there."""
        self.snapshots = [base for base, suffix in listing.indexes if suffix == producer_snapshot.SUFFIX]
        rules = self.rules
        for segment in segments[max(SegmentList(segments).floor(point), 0) :]:
            segment.closed = False  # not mapped, nor its indexes believed: their ends may have to go
        # A snapshot knows of no transaction that has ended: one whose marker is not committed yet has to be met.
        settled = point if rules.high_watermark is None else min(point, rules.high_watermark)
        self.replay = replay_from(
            self.fs, self.directory, self.snapshots, rules.no_producers_at, settled, rules.now_ms
        )
        with _as_damage(self.directory):
            self.replay.advance(segments, point)

    def _producers(self, segments: list[Segment], next_offset: int, point: int) -> RecoveredProducers:
        with _as_damage(self.directory):
            return recover_producers(
                self.pool,
                self.directory,
                segments,
                self.snapshots,
                self.replay,
                no_producers_at=self.rules.no_producers_at,
                next_offset=next_offset,
                point=point,
                clean=self.rules.clean,
            )

    def _segments(self, listing: Listing) -> list[Segment]:
        segments = []
        for number, base in enumerate(listing.bases):
            following = listing.bases[number + 1] if number + 1 < len(listing.bases) else base
            size = self.fs.stat(f"{self.directory}/{base:020d}{LOG_SUFFIX}").size
            segments.append(
                Segment(
                    self.pool,
                    self.directory,
                    base,
                    size=size,
                    next_offset=following,
                    interval_bytes=self.rules.interval_bytes,
                )
            )
        return segments

    # --- the scan ---

    def _recover_from(self, segments: list[Segment], point: int) -> tuple[list[Segment], int]:
        """Scan every segment that reaches past ``point``; the last one left becomes the active one."""
        if not segments:
            return [], self.rules.log_start_offset
        first = max(SegmentList(segments).floor(point), 0)
        for number in range(first, len(segments)):
            segment = segments[number]
            last = number == len(segments) - 1
            scan = self._scan(segment, point)
            bad = scan.bad
            if bad is None and not last:
                bad = self._seam(segment, scan, segments[number + 1].base_offset, point)
            if bad is None and not last:
                segment.next_offset = segments[number + 1].base_offset
                self._keep(segment)
                continue
            if bad is not None:
                self._check_cut(segment, bad, scan.next_offset, point, last)
                # Newest first, the cut last: wherever this is cut short, what is left shows no hole.
                for orphan in reversed(segments[number + 1 :]):
                    self._set_aside(orphan)
                self._cut(segment, bad)
            self._keep(segment)
            return segments[: number + 1], scan.next_offset
        return segments, segments[-1].next_offset

    def _seam(self, segment: Segment, scan: SegmentScan, following: int, point: int) -> BadBatch | None:
        """Whether the next segment goes on where this one ends. Compaction leaves gaps, but only below the
        recovery point."""
        due = scan.next_offset
        if due == following or due < min(following, point):
            return None
        if due > following:
            raise DamagedStoreError(
                f"{segment.path()} ends at offset {due}, but the next segment starts at {following}",
                path=segment.path(),
                position=scan.position,
            )
        error = CorruptBatchError(f"the next segment starts at offset {following}, {due} was due")
        return BadBatch(scan.position, incomplete=False, zeros=True, error=error)

    def _scan(self, segment: Segment, point: int) -> SegmentScan:
        """Check all batches from the newest trusted index entry on and make the index rows anew from there."""
        segment.closed = False  # nothing here is mapped: its end may have to go
        offsets, times, rule, start = self._trusted(segment, point)
        first_timestamp = -1
        if start > 0:
            first_timestamp = read_header(segment.bytes_at(0, HEADER_SIZE)).max_timestamp
        scan = SegmentScan(
            segment.bytes_at
            if self.rules.clean
            else lambda at, length: self._dirty_again(segment, at, length),
            start=start,
            end=segment.size,
            next_offset=segment.base_offset,
            max_batch_bytes=max(self.rules.max_batch_bytes, 1 << 20),
            gapless_from=point,
        )
        for position, header, data in scan:
            if first_timestamp < 0:
                first_timestamp = header.max_timestamp
            if rule.feed(header.last_offset, header.size, header.max_timestamp):
                offsets.append(header.last_offset, position)
                times.maybe_append(rule.max_timestamp_ms, rule.offset_of_max)
            if header.producer_id >= 0 and header.base_offset >= point:
                with _as_damage(segment.path()):
                    self.replay.take(segment.base_offset, header, data)
        self.scanned_bytes += scan.position - start
        segment.activate(offsets, times, rule, first_timestamp)
        segment.next_offset = max(scan.next_offset, segment.base_offset)
        return scan

    def _trusted(self, segment: Segment, point: int) -> tuple[OffsetIndex, TimeIndex, IndexRule, int]:
        """Index rows below the recovery point (synced with it), and the position of the newest one's batch.

        The batch there has to confirm the row; if it does not, nothing of the index is trusted.
        """
        rule = IndexRule(self.rules.interval_bytes)
        rows = self._rows_below(segment, point)
        if rows is None:
            offsets = OffsetIndex(segment.base_offset, GrowingTable(offset_index.ROW))
            times = TimeIndex(segment.base_offset, GrowingTable(time_index.ROW))
            return offsets, times, rule, 0
        offsets, times = rows
        newest = offsets.last()
        start = newest[1] if newest is not None else 0
        known = times.last()
        if known is not None:
            rule.max_timestamp_ms, rule.offset_of_max = known
        # The rule stands as it stood when that batch was entered: no bytes since, the batch itself next.
        return offsets, times, rule, start

    def _rows_below(self, segment: Segment, point: int) -> tuple[OffsetIndex, TimeIndex] | None:
        try:
            offset_rows = read_file(self.fs, segment.path(offset_index.SUFFIX))
            time_rows = read_file(self.fs, segment.path(time_index.SUFFIX))
        except FileNotFoundError:
            return None
        base = segment.base_offset
        offset_table = MappedTable(memoryview(offset_rows), offset_index.ROW)
        count = offset_table.floor(point - 1 - base) + 1
        if count == 0 or offset_table.first_break() is not None:
            return None
        if offset_table.row(0)[1] == 0:
            # A segment's first batch never gets an entry. A row of zeros that a power loss left can look like
            # one, and that batch would even bear it out.
            return None
        last_offset, start = offset_table.row(count - 1)
        if not self._confirms(segment, start, base + last_offset):
            return None
        offsets = OffsetIndex(
            base, GrowingTable(offset_index.ROW, offset_rows[: count * offset_index.ROW.size])
        )
        times = TimeIndex(base, GrowingTable(time_index.ROW))
        previous = -1
        for timestamp_ms, relative in time_index.ROW.iter_unpack(
            time_rows[: len(time_rows) // time_index.ROW.size * time_index.ROW.size]
        ):
            if relative > last_offset:
                break
            if timestamp_ms <= previous or relative < 0:
                return None
            times.table.append(timestamp_ms, relative)  # type: ignore[union-attr]
            previous = timestamp_ms
        return offsets, times

    def _confirms(self, segment: Segment, position: int, last_offset: int) -> bool:
        if not 0 <= position <= segment.size - HEADER_SIZE:
            return False
        head = segment.bytes_at(position, HEADER_SIZE)
        try:
            header = read_header(head)
            check_crc(segment.bytes_at(position, header.size), 0, header)
        except LogStoreError:
            return False  # the scan from the start will say exactly what is wrong and where
        return header.last_offset == last_offset and (
            position > 0 or header.base_offset >= segment.base_offset
        )

    # --- what is kept, what is cut ---

    def _keep(self, segment: Segment) -> None:
        """Make the segment and its indexes durable as they now are. Of a clean one an index that lacks rows goes
        on in place: another process that writes the log by turns may have it open."""
        rules = self.rules
        if not rules.clean:
            with self.pool.pinned(segment.path(), True) as file:
                file.sync()
        for suffix, index in ((offset_index.SUFFIX, segment.offsets()), (time_index.SUFFIX, segment.times())):
            table = index.table
            content = table.encoded() if isinstance(table, GrowingTable) else b""
            path = segment.path(suffix)
            known = read_file(self.fs, path) if exists(self.fs, path) else None
            if rules.clean and known is not None and len(known) < len(content) and content.startswith(known):
                with self.pool.pinned(path, True) as file:
                    write_all(file, [content[len(known) :]], len(known))
                self.indexes_rebuilt += 1
            elif known != content:
                self.pool.forget_file(path)
                replace_file(self.fs, path, content)
                self.indexes_rebuilt += 1
            elif not rules.clean:
                with self.pool.pinned(path, True) as file:
                    write_all(file, [content], 0)  # as with the log: see ``_dirty_again``
                    file.sync()
            if isinstance(table, GrowingTable):
                table.mark_stored()

    def _dirty_again(self, segment: Segment, position: int, length: int) -> Buffer:
        """Up to ``length`` bytes, written once more as they are: after a failed fsync the kernel may have marked
        dirty pages clean. They read well and are on no disk, and a later fsync of untouched pages succeeds without
        writing them."""
        data = segment.bytes_at(position, length)
        with self.pool.pinned(segment.path(), True) as file:
            write_all(file, [data], position)
            file.write_soon(len(data), position)
        return data

    def _check_cut(self, segment: Segment, bad: BadBatch, next_offset: int, point: int, last: bool) -> None:
        """``DamagedStoreError`` unless a crash can explain what is there."""
        where = f"{segment.path()} at byte {bad.position}"
        if next_offset < point:
            raise DamagedStoreError(
                f"{where}, below the durable recovery point {point}: {bad.error.message}",
                path=segment.path(),
                position=bad.position,
            )
        if self.rules.same_boot and not (last and bad.incomplete):
            raise DamagedStoreError(
                f"{where}: {bad.error.message}; the machine has not restarted since this was written, so no "
                "power loss explains it",
                path=segment.path(),
                position=bad.position,
            )

    def _cut(self, segment: Segment, bad: BadBatch) -> None:
        self._keep_aside(segment, bad)
        self.cut_reason = f"byte {bad.position}: {bad.error.message}"
        with self.pool.pinned(segment.path(), True) as file:
            file.truncate(bad.position)
            file.sync()
        segment.size = bad.position

    def _keep_aside(self, segment: Segment, bad: BadBatch) -> None:
        """Copy the bytes about to be cut, durably; a tail of nothing but zeros holds nothing to keep."""
        count = segment.size - bad.position
        self.cut_bytes += count
        if bad.zeros:
            return
        path = self._cut_path(segment)
        temporary = path + ".tmp"
        if exists(self.fs, temporary):
            self.fs.remove(temporary)
        target = self.fs.open(temporary, "create")
        try:
            position = bad.position
            while position < segment.size:
                part = segment.bytes_at(position, _COPY_BYTES)
                write_all(target, [part], position - bad.position)
                position += len(part)
            target.sync()
        finally:
            target.close()
        self.fs.rename(temporary, path)
        self.fs.sync_dir(self.directory)
        self.cut_files.append(path)

    def _set_aside(self, segment: Segment) -> None:
        """A whole segment behind the cut: renamed, not read."""
        path = self._cut_path(segment)
        self.cut_bytes += segment.size
        self.cut_files.append(path)
        self.pool.forget_file(segment.path())
        self.fs.rename(segment.path(), path)
        for suffix in _INDEXES:
            self.pool.forget_file(segment.path(suffix))
            if exists(self.fs, segment.path(suffix)):
                self.fs.remove(segment.path(suffix))
        self.fs.sync_dir(self.directory)

    def _cut_path(self, segment: Segment) -> str:
        stamp = self.rules.now_ms
        while exists(self.fs, f"{segment.path()}.cut-{stamp}"):
            stamp += 1
        return f"{segment.path()}.cut-{stamp}"

    def _rebuild_missing_indexes(self, closed: list[Segment], listing: Listing) -> None:
        for segment in closed:
            suffixes = (offset_index.SUFFIX, time_index.SUFFIX)
            if not segment.closed:
                segment.close_for_appends()  # scanned above, and its indexes written
            elif any((segment.base_offset, suffix) not in listing.indexes for suffix in suffixes):
                segment.rewrite_indexes(self.rules.interval_bytes)
                self.indexes_rebuilt += 1

    def _report(self, next_offset: int, epochs: Epochs) -> RecoveredPartition:
        return RecoveredPartition(
            topic=self.topic,
            partition=self.partition,
            scanned_bytes=self.scanned_bytes,
            end_offset=next_offset,
            cut_bytes=self.cut_bytes,
            cut_files=tuple(self.cut_files),
            cut_reason=self.cut_reason,
            leader_epoch=epochs.latest,
            indexes_rebuilt=self.indexes_rebuilt,
        )


@contextmanager
def _as_damage(path: str) -> Iterator[None]:
    """A batch or an index that is no such thing, met where it should be sound."""
    try:
        yield
    except CorruptBatchError as error:
        raise DamagedStoreError(error.message, path=error.path or path, position=error.position) from error
