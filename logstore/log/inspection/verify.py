"""Reading everything in a partition's folder and naming what is wrong, with file and position.

What a crash can explain above the recovery point of a store that was not closed is a warning: the next open
cuts it, by the rules of ``recovery.py``. All else is a fault. Nothing is written and no lock is taken, so a
writer may be at work; its last, half-written batch then shows as such a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from logstore.errors import (
    DamagedStoreError,
    LogStoreError,
    MissingExtraError,
    StorageError,
    UnsupportedStoreVersionError,
    from_os_error,
)
from logstore.format.batch import decode_batches
from logstore.format.control import decode_control_batch
from logstore.log import checkpoints, epochs
from logstore.log.cleaning import cleaner_mark, swap
from logstore.log.epochs import Epochs
from logstore.log.inspection.inspect import (
    INT32_MAX,
    INT64_MAX,
    BadSpan,
    PartitionFolder,
    ScannedBatch,
    Span,
    list_folder,
    read_small,
    scan_segment,
    segment_base_offsets,
    segment_path,
)
from logstore.log.producers import row_counts
from logstore.log.producers.transaction_check import TransactionCheck
from logstore.log.segments.index_check import IndexCheck
from logstore.seams.fs import FileSystem
from logstore.types import Record

_SEGMENT_FILE = re.compile(
    r"(\d{20})(?:\.(?:log|index|timeindex|txnindex|snapshot)(?:\.(?:cleaned|swap|deleted|tmp))?|\.swap(?:\.tmp)?|\.log\.cut-.+)"
)
_TEXT_FILES = (
    epochs.FILE_NAME,
    checkpoints.METADATA_FILE,
    cleaner_mark.FILE_NAME,
    row_counts.FILE_NAME,
)
_OTHER_FILES = frozenset([*_TEXT_FILES, *(f"{name}.tmp" for name in _TEXT_FILES)])
_REPLICA_FILE = re.compile(r"raft-[a-z]+(\.tmp)?")  # what a node of a cluster keeps beside its replica's log
_BROKER_FILE = re.compile(
    r"quorum-state(\.tmp)?|\d{20}-\d{10}\.checkpoint(\.(part|deleted))?|.*\.tmp|\d{20}\..+\.deleted"
)
_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


class Fault(NamedTuple):
    """Something wrong. ``position``: byte in the file, -1 for the file as a whole; ``kind``: one word.

    ``warning``: the next open repairs it by itself, or it harms nothing.
    """

    path: str
    position: int
    kind: str
    message: str
    warning: bool = False


@dataclass(slots=True)
class Totals:
    """What was read. ``progress`` is called with the bytes of each batch and bad span."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    progress: Callable[[int], None] | None = None

    def add_bytes(self, count: int) -> None:
        self.bytes += count
        if self.progress is not None:
            self.progress(count)

    def add(self, other: Totals) -> None:
        """Count what another one counted; its progress was told already."""
        self.partitions += other.partitions
        self.segments += other.segments
        self.batches += other.batches
        self.records += other.records
        self.bytes += other.bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionFacts:
    """What the store says of a partition beside its files; None: not known (all offsets count records).

    ``clean``: its store was closed in order; ``same_boot``: the machine has not restarted since it was
    written; ``gaps_allowed``: a broker's compaction may have taken offsets, ours puts empty batches there;
    ``by_broker``: a Kafka broker wrote the folder.
    """

    topic_id: str | None = None
    clean: bool = False
    same_boot: bool = False
    recovery_point: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    gaps_allowed: bool = False
    by_broker: bool = False

    def may_cut(self, offset: int, kind: str, *, last: bool) -> bool:
        """Whether the next open may cut a bad span of this kind that starts at ``offset``; ``last``: it lies
        in the last segment. The rules are those of ``recovery.py``."""
        if self.clean or (self.recovery_point is None and not last):
            return False
        if self.recovery_point is not None and offset < self.recovery_point:
            return False
        return not self.same_boot or (last and kind == "torn")


def verify_partition(
    fs: FileSystem, folder: PartitionFolder, facts: PartitionFacts, totals: Totals
) -> Iterator[Fault]:
    """All faults of one partition, in the order of its files. StorageError when the disk refuses to read."""
    totals.partitions += 1
    try:
        check = _PartitionCheck(fs, folder, facts, totals)
    except (DamagedStoreError, UnsupportedStoreVersionError) as error:
        yield Fault(getattr(error, "path", None) or folder.path, -1, "swap", error.message)
        return
    yield from check.run()


def _half_placed(fs: FileSystem, directory: str) -> set[int]:
    """Base offsets of cleaned segments whose index files may still be those of the segments before: a cleaning
    was cut short between its renames, and the next owner does the rest."""
    try:
        found = swap.pending(fs, directory, list_folder(fs, directory))
    except OSError as error:
        raise from_os_error(error, "read a swap in", directory) from error
    return {base for one in found for base, _ in one.new}


class _PartitionCheck:
    """One walk over a partition's files. ``_next_offset``: the offset due next; -1 while it is not known."""

    def __init__(
        self, fs: FileSystem, folder: PartitionFolder, facts: PartitionFacts, totals: Totals
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._facts = facts
        self._totals = totals
        self._epochs = Epochs()
        self._transactions = TransactionCheck(fs, folder.path)
        self._bases = segment_base_offsets(fs, folder.path)
        self._half_placed = _half_placed(fs, folder.path)
        self._next_offset = self._bases[0] if self._bases else 0
        self._leader_epoch = -1
        self._cut = False  # recovery will cut here: nothing behind it counts
        self._codec_missing = False  # said once per partition

    def run(self) -> Iterator[Fault]:
        yield from self._check_names()
        yield from self._check_metadata()
        yield from self._load_epochs()
        yield from self._check_mark()
        yield from self._check_first_segment()
        for base_offset in self._bases:
            self._totals.segments += 1
            yield from self._check_segment(base_offset)
            if self._cut:
                return
        yield from self._check_ends()

    # --- the files around the segments ---

    def _check_names(self) -> Iterator[Fault]:
        logs = set(self._bases)
        for name in list_folder(self._fs, self._folder.path):
            path = f"{self._folder.path}/{name}"
            try:
                is_dir = self._fs.stat(path).is_dir
            except FileNotFoundError:
                continue  # a writer removed it since
            except OSError as error:
                yield Fault(path, -1, "name", from_os_error(error, "look at", path).message)
                continue
            match = _SEGMENT_FILE.fullmatch(name)
            if match is not None and int(match[1]) > INT64_MAX:
                match = None  # its number is no offset
            if match is None and self._facts.by_broker and _BROKER_FILE.fullmatch(name):
                continue
            if match is None and _REPLICA_FILE.fullmatch(name) and not is_dir:
                continue
            if is_dir or (match is None and name not in _OTHER_FILES):
                yield Fault(path, -1, "name", "no file of a partition has such a name; move it elsewhere")
            elif match and name[20:] in _INDEX_SUFFIXES and int(match[1]) not in logs:
                crash = not self._facts.clean and int(match[1]) >= (self._facts.recovery_point or 0)
                yield Fault(path, -1, "orphan", f"an index without its segment {match[1]}.log", warning=crash)
            elif name.endswith((".tmp", ".cleaned", ".swap")):
                yield Fault(
                    path, -1, "leftover", "an unfinished write that a crash left; harmless", warning=True
                )

    def _check_metadata(self) -> Iterator[Fault]:
        path = f"{self._folder.path}/{checkpoints.METADATA_FILE}"
        known = self._facts.topic_id
        try:
            topic_id = checkpoints.decode_metadata(read_small(self._fs, path), path)
        except FileNotFoundError:
            if any(self._fs.stat(segment_path(self._folder.path, base)).size for base in self._bases):
                yield Fault(path, -1, "metadata", "missing; it holds the topic's id")
            else:  # it is durable before the first record
                text = "missing: the folder's creation was cut short; the first record's writer makes it"
                yield Fault(path, -1, "metadata", text, warning=True)
        except LogStoreError as error:
            yield Fault(path, 0, "metadata", error.message)
        else:
            if known is not None and topic_id != known:
                text = f"the folder belongs to the topic id {topic_id}, the catalogue says {known}"
                yield Fault(path, 0, "metadata", text)

    def _check_mark(self) -> Iterator[Fault]:
        try:
            cleaner_mark.read_mark(self._fs, self._folder.path)
        except LogStoreError as error:
            yield Fault(f"{self._folder.path}/{cleaner_mark.FILE_NAME}", 0, "mark", error.message)

    def _load_epochs(self) -> Iterator[Fault]:
        path = f"{self._folder.path}/{epochs.FILE_NAME}"
        try:
            content = read_small(self._fs, path)
            if not content and self._facts.by_broker:
                return  # made empty, filled with the first epoch
            entries = checkpoints.decode_pairs(content, path)
        except FileNotFoundError:
            return  # no epoch was ever noted; the batches speak for themselves
        except LogStoreError as error:
            yield Fault(path, 0, "epochs", error.message)
            return
        for before, entry in pairwise(entries):
            if entry[0] <= before[0] or entry[1] < before[1]:
                yield Fault(path, -1, "epochs", f"entry {entry} does not grow over {before}")
                return
        self._epochs = Epochs(entries)

    # --- segments ---

    def _check_first_segment(self) -> Iterator[Fault]:
        start = self._facts.log_start_offset
        if start is not None and self._next_offset > start:
            path = segment_path(self._folder.path, self._next_offset)
            text = f"offsets {start} to {self._next_offset - 1} are missing before this segment"
            yield Fault(path, -1, "gap", text)

    def _check_segment(self, base_offset: int) -> Iterator[Fault]:
        path = segment_path(self._folder.path, base_offset)
        yield from self._check_due(path, 0, base_offset)
        indexes = IndexCheck(self._fs, self._folder.path, base_offset, by_broker=self._facts.by_broker)
        for span in self._spans(path, base_offset):
            if isinstance(span, BadSpan):
                yield self._bad_span(path, base_offset, span)
                self._totals.add_bytes(span.length)
                if self._cut:
                    return
                indexes.lose_track()
                self._transactions.lose_track()
                continue
            yield from self._check_due(path, span.position, span.header.base_offset)
            self._next_offset = span.header.next_offset
            yield from self._check_batch(path, base_offset, span)
            indexes.see(span)
            self._totals.batches += 1
            self._totals.add_bytes(span.header.size)
        point = self._facts.recovery_point
        rebuilt = not self._facts.clean and (point is None or not 0 <= self._next_offset <= point)
        rebuilt = rebuilt or base_offset in self._half_placed
        for finding in indexes.finish():
            yield Fault(*finding, warning=rebuilt or finding[2] == "missing")
        for finding in self._transactions.finish(base_offset):
            yield Fault(*finding, warning=rebuilt)

    def _spans(self, path: str, base_offset: int) -> Iterator[Span]:
        try:
            yield from scan_segment(self._fs, path, base_offset)
        except StorageError as error:
            yield BadSpan(0, 0, "unreadable", error.message)

    def _check_due(self, path: str, position: int, offset: int) -> Iterator[Fault]:
        """Offsets of a partition never go back, and only compaction leaves gaps."""
        due = self._next_offset
        if due < 0:
            return  # behind a bad span: how many offsets it held is not known
        if offset < due:
            yield Fault(path, position, "offset", f"offset {offset} where {due} was due: offsets go back")
        elif offset > due and not self._facts.gaps_allowed:
            yield Fault(path, position, "gap", f"offsets {due} to {offset - 1} are missing")
            self._next_offset = offset

    def _bad_span(self, path: str, base_offset: int, span: BadSpan) -> Fault:
        offset = self._next_offset
        if self._facts.may_cut(offset, span.kind, last=base_offset == self._bases[-1]):
            self._cut = True
            text = f"{span.message}: an unfinished write; the next open cuts the log here, at offset {offset}"
            return Fault(path, span.position, span.kind, text, warning=True)
        self._next_offset = -1
        where = f"from offset {offset} on" if offset >= 0 else "right behind other bad bytes"
        text = f"{span.message}; {span.length} bytes cannot be read, {where}"
        return Fault(path, span.position, span.kind, text)

    def _check_batch(self, path: str, base_offset: int, batch: ScannedBatch) -> Iterator[Fault]:
        header, position = batch.header, batch.position
        if header.last_offset - base_offset > INT32_MAX:
            text = f"offset {header.last_offset} is past what the segment can hold"
            yield Fault(path, position, "offset", text)
        if header.leader_epoch < self._leader_epoch:
            text = f"leader epoch {header.leader_epoch} behind epoch {self._leader_epoch}: epochs go back"
            yield Fault(path, position, "epoch", text)
        self._leader_epoch = max(self._leader_epoch, header.leader_epoch)
        noted = self._epochs.epoch_at(header.base_offset)
        if noted >= 0 and noted != header.leader_epoch:
            text = f"leader epoch {header.leader_epoch} where {epochs.FILE_NAME} says {noted}"
            yield Fault(path, position, "epoch", text)
        yield from self._check_records(path, batch)

    def _check_records(self, path: str, batch: ScannedBatch) -> Iterator[Fault]:
        header = batch.header
        try:
            records = self._decoded(batch)
        except MissingExtraError as error:
            if not self._codec_missing:
                self._codec_missing = True
                text = f"records compressed with {header.codec} were not looked into: {error}"
                yield Fault(path, batch.position, "codec", text, warning=True)
            return
        except LogStoreError as error:
            text = f"the batch of offset {header.base_offset}: {error.message}"
            yield Fault(path, batch.position, "records", text)
            return
        self._totals.records += len(records)
        offsets = [record.offset for record in records]
        if offsets and (offsets[0] < header.base_offset or offsets != sorted(set(offsets))):
            text = f"offsets of records in the batch of offset {header.base_offset} do not grow"
            yield Fault(path, batch.position, "offset", text)
        newest = max((record.timestamp_ms for record in records), default=-1)
        if records and newest > header.max_timestamp:
            text = f"a record's time {newest} is past its batch's largest, {header.max_timestamp}"
            yield Fault(path, batch.position, "timestamp", text)

    def _decoded(self, batch: ScannedBatch) -> list[Record]:
        self._transactions.see(batch.header, batch.data)
        if batch.header.is_control and batch.header.records_count == 0:
            return []  # a cleaning of Kafka's took the marker and left the batch
        if batch.header.is_control:
            decode_control_batch(batch.data, 0, batch.header)
            return []
        return decode_batches(batch.data, self._folder.topic, self._folder.partition, check=False)

    # --- the store's word against the files' ---

    def _check_ends(self) -> Iterator[Fault]:
        end, facts = self._next_offset, self._facts
        if end < 0:
            return  # the last bytes were bad, and said so
        path = segment_path(self._folder.path, self._bases[-1]) if self._bases else self._folder.path
        closed_at = facts.log_end_offset if facts.clean else None
        if closed_at is not None and closed_at < end:
            text = f"the log ends at {end}, its store was closed with the end at {closed_at}"
            yield Fault(path, -1, "end", text)
        durable_end = max(closed_at or 0, facts.recovery_point or 0)
        if durable_end > end:
            text = f"offsets {end} to {durable_end - 1} are missing at the end: they were durable"
            yield Fault(path, -1, "end", text)
        if facts.log_start_offset is not None and facts.log_start_offset > end:
            text = f"the log start offset {facts.log_start_offset} lies past the end of the log, {end}"
            yield Fault(path, -1, "end", text)
