"""Copy all that is readable of a damaged store into a new one, and list every range that is lost.

The unit is the batch: one whose CRC is right and whose records decode is copied byte for byte, so that every
record keeps its offset, timestamp and epoch. Offsets that have no readable batch any more are covered by
empty batches: nothing behind them moves, and no offset is given out twice. The source is only read.

A batch whose codec is not installed here is copied unseen. The topics' names, ids and settings come from the
catalogue; if that is damaged too, names come from the folders, ids from `partition.metadata`, and settings
are the defaults. Committed positions of groups are records of an internal topic and come along like all
others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from logstore.config import parse_topic_config
from logstore.directory import topic_state
from logstore.directory.catalogue import INTERNAL_PREFIX, Catalogue, CatalogueFile, encode_uuid, is_uuid
from logstore.directory.layout import DirectoryKind, classify_directory, make_root, missing_store
from logstore.directory.topic_state import PartitionState, TopicState
from logstore.errors import (
    ForeignDirectoryError,
    InvalidArgumentError,
    LogStoreError,
    MissingExtraError,
    StorageError,
    from_os_error,
)
from logstore.format.batch import STAMP_SIZE, decode_batches, read_header, stamp
from logstore.log import checkpoints
from logstore.log.cleaning.cleaner_mark import copy_mark
from logstore.log.epochs import FILE_NAME as EPOCHS_FILE
from logstore.log.epochs import Epochs
from logstore.log.inspection.inspect import (
    INT32_MAX,
    INT64_MAX,
    BadSpan,
    PartitionFolder,
    ScannedBatch,
    Span,
    partition_folders,
    scan_segment,
    segment_base_offsets,
    segment_path,
)
from logstore.log.producers.producer_replay import marker_of
from logstore.log.producers.salvaged_producers import SalvagedProducers
from logstore.log.segments.segment_writer import PartitionWriter
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem, read_file


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets [start, end_exclusive) of one partition; end -1: nothing says how far the log went."""

    topic: str
    partition: int
    start: int
    end_exclusive: int
    reason: str


@dataclass(slots=True)
class SalvageReport:
    """What was copied, in counts, and what was not. ``notes``: what else a reader of the copy must know."""

    topics: int = 0
    partitions: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    lost: list[LostRange] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Topic:
    """A topic as far as it is known. ``folders``: its partitions that have one."""

    name: str
    topic_id: str
    partitions: int
    config: dict[str, str]
    created_ms: int
    folders: dict[int, PartitionFolder]


def salvage(
    fs: FileSystem,
    source: str,
    target: str,
    clock: Clock,
    *,
    progress: Callable[[int], None] | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> SalvageReport:
    """Copy what is readable of the store at ``source`` into a new store at ``target``.

    ``progress`` is called with the bytes read. ForeignDirectoryError when ``target`` is not empty or
    ``source`` holds no store; StorageError and DiskFullError from the target's disk stop the copy, and the
    target is then no store yet (its catalogue is written last).
    """
    kind = classify_directory(fs, source)
    if kind in (DirectoryKind.MISSING, DirectoryKind.FILE, DirectoryKind.KAFKA):
        raise missing_store(kind, source)
    if kind not in (DirectoryKind.STORE, DirectoryKind.HEADLESS) and not any(
        segment_base_offsets(fs, folder.path) for folder in partition_folders(fs, source)
    ):
        raise missing_store(kind, source)
    require_new(fs, target)
    require_outside(target, source)
    try:
        return _Salvage(fs, source, target, clock, progress, random_bytes).run()
    except OSError as error:
        raise from_os_error(error, "copy", error.filename or target) from error


def require_new(fs: FileSystem, target: str) -> None:
    """ForeignDirectoryError unless ``target`` is missing or empty."""
    kind = classify_directory(fs, target)
    if kind is DirectoryKind.FILE:
        raise missing_store(kind, target)
    if kind not in (DirectoryKind.MISSING, DirectoryKind.EMPTY):
        cut_short = kind is DirectoryKind.HEADLESS
        raise ForeignDirectoryError(
            f"{target} is not empty: a copy is only written to a new directory",
            hint="it looks like a copy that was cut short: remove it, or choose another place"
            if cut_short
            else None,
        )


def require_outside(target: str, source: str) -> None:
    """InvalidArgumentError if ``target`` lies inside the store ``source``: a copy is no part of it."""
    place, store = os.path.realpath(target), os.path.realpath(source)
    if place == store or place.startswith(store + os.sep):
        raise InvalidArgumentError(f"{target} lies inside the store {source}", hint="copy to another place")


class _Salvage:
    """One run; its report grows with it."""

    def __init__(
        self,
        fs: FileSystem,
        source: str,
        target: str,
        clock: Clock,
        progress: Callable[[int], None] | None,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._fs = fs
        self._source = source
        self._target = target
        self._clock = clock
        self._progress = progress
        self._random_bytes = random_bytes
        self._next_producer_id = 0
        self.report = SalvageReport()

    def run(self) -> SalvageReport:
        make_root(self._fs, self._target)
        topic_state.make_directory(self._fs, self._target)
        old = self._catalogue()
        catalogue = Catalogue(store_id=encode_uuid(self._random_bytes(16)))
        if old is not None:
            catalogue = replace(catalogue, next_producer_id=old.next_producer_id, producers=old.producers)
        for topic in self._topics(old):
            catalogue = catalogue.with_topic(
                topic.name,
                topic_id=topic.topic_id,
                partitions=topic.partitions,
                config=topic.config,
                created_ms=topic.created_ms,
                internal=topic.name.startswith(INTERNAL_PREFIX),
            )
            self._copy_topic(topic)
            self.report.topics += 1
        self._fs.sync_dir(self._target)
        file = CatalogueFile(self._fs, self._target)
        next_id = max(catalogue.next_producer_id, self._next_producer_id)
        try:
            file.save(replace(catalogue, next_producer_id=next_id))
        finally:
            file.close()
        return self.report

    # --- what there is ---

    def _topics(self, catalogue: Catalogue | None) -> Iterator[_Topic]:
        folders: dict[str, dict[int, PartitionFolder]] = {}
        for folder in partition_folders(self._fs, self._source):
            folders.setdefault(folder.topic, {})[folder.partition] = folder
        if catalogue is not None:
            for name, entry in sorted(catalogue.topics.items()):
                yield _Topic(
                    name=name,
                    topic_id=entry.topic_id,
                    partitions=entry.partitions,
                    config=self._usable_config(name, dict(entry.config)),
                    created_ms=entry.created_ms,
                    folders=folders.pop(name, {}),
                )
        for name, present in sorted(folders.items()):
            if catalogue is not None:
                self.report.notes.append(
                    f"topic {name!r} is not in the catalogue; it was copied all the same"
                )
            yield _Topic(
                name=name,
                topic_id=self._topic_id(present),
                partitions=max(present) + 1,
                config={},
                created_ms=self._clock.wall_ms(),
                folders=present,
            )

    def _catalogue(self) -> Catalogue | None:
        file = CatalogueFile(self._fs, self._source)
        try:
            return file.load()
        except LogStoreError as error:
            self.report.notes.append(
                f"topics and their settings are guessed from folders, producers have lost their names: {error.message}"
            )
            return None
        finally:
            file.close()

    def _usable_config(self, name: str, config: dict[str, str]) -> dict[str, str]:
        try:
            parse_topic_config(config)
        except LogStoreError as error:
            self.report.notes.append(f"topic {name!r} gets the default settings: {error.message}")
            return {}
        return config

    def _topic_id(self, present: dict[int, PartitionFolder]) -> str:
        for folder in present.values():
            path = f"{folder.path}/{checkpoints.METADATA_FILE}"
            try:
                topic_id = checkpoints.decode_metadata(read_file(self._fs, path), path)
            except (LogStoreError, OSError) as error:
                self.report.notes.append(f"{path} does not give the topic's id: {error}")
                continue
            if is_uuid(topic_id):
                return topic_id
        return encode_uuid(self._random_bytes(16))

    # --- the copy ---

    def _copy_topic(self, topic: _Topic) -> None:
        state = self._state(topic)
        rows: dict[int, PartitionState] = {}
        for partition in range(topic.partitions):
            known = state.partitions.get(partition) if state is not None else None
            clean = state is not None and state.is_clean(partition)
            rows[partition] = self._copy_partition(topic, partition, known, clean)
            self.report.partitions += 1
        copied = TopicState(topic.topic_id, self._clock.boot_id(), True, rows)
        topic_state.save(self._fs, self._target, topic.name, copied)

    def _state(self, topic: _Topic) -> TopicState | None:
        try:
            state = topic_state.load(self._fs, self._source, topic.name)
        except LogStoreError as error:
            self.report.notes.append(f"where the logs of {topic.name!r} ended is not known: {error.message}")
            return None
        known = state if state is not None and state.topic_id == topic.topic_id else None
        if topic.folders and not topic.name.startswith(INTERNAL_PREFIX) and not (known and known.clean):
            self.report.notes.append(
                f"topic {topic.name!r} was not closed in order: whether its logs went on behind what was copied "
                "is not known"
            )
        return known

    def _copy_partition(
        self, topic: _Topic, partition: int, known: PartitionState | None, clean: bool
    ) -> PartitionState:
        folder = topic.folders.get(partition)
        bases = segment_base_offsets(self._fs, folder.path) if folder is not None else []
        start = bases[0] if bases else 0
        if known is not None:
            start = min(start, known.log_start_offset) if bases else known.log_start_offset
        writer = PartitionWriter(
            self._fs,
            f"{self._target}/{topic.name}-{partition}",
            topic.topic_id,
            start_offset=start,
            index_interval_bytes=parse_topic_config(topic.config).index_interval_bytes,
        )
        try:
            copy = _PartitionCopy(
                self._fs,
                topic.name,
                partition,
                writer,
                self.report,
                self._progress,
                known_end=_known_end(known, clean),
                clean=clean and known is not None,
            )
            copy.gaps_allowed = "compact" in topic.config.get("cleanup.policy", "")
            if folder is None:
                copy.reason = "the partition's folder is missing"
            elif (stranger := self._other_owner(folder, topic)) is not None:
                copy.reason = (
                    f"{folder.path} belongs to a topic with the id {stranger}, not to {topic.topic_id}"
                )
                self.report.notes.append(f"{copy.reason}; it was not copied")
            else:
                copy.epochs = self._epochs(folder)
                limits = [*bases[1:], bases[-1] + INT32_MAX + 1] if bases else []
                for base, limit in zip(bases, limits, strict=True):
                    copy.segment(folder, base, limit)
            copy.finish()
            if copy.epochs.latest >= 0:  # it may have no record; it must not be given again
                writer.epochs.assign(copy.epochs.latest, writer.next_offset)
            copy.producers.write(self._fs, f"{self._target}/{topic.name}-{partition}")
            writer.finish()
        finally:
            writer.abandon()
        self._next_producer_id = max(self._next_producer_id, copy.producers.next_id)
        log_start = max(start, known.log_start_offset) if known is not None else start
        end = writer.next_offset
        if folder is not None:
            cleaned_to = known.cleaner_point if known is not None else 0
            copy_mark(self._fs, folder.path, writer.folder, cleaned_to=cleaned_to, end=end)
        return PartitionState(end, min(log_start, end), end, end)

    def _other_owner(self, folder: PartitionFolder, topic: _Topic) -> str | None:
        """The id of the topic that the folder says it belongs to, if that is another one."""
        path = f"{folder.path}/{checkpoints.METADATA_FILE}"
        try:
            found = checkpoints.decode_metadata(read_file(self._fs, path), path)
        except (LogStoreError, OSError):
            return None  # it does not say: its name does
        return None if found == topic.topic_id else found

    def _epochs(self, folder: PartitionFolder) -> Epochs:
        path = f"{folder.path}/{EPOCHS_FILE}"
        try:
            return Epochs(checkpoints.decode_pairs(read_file(self._fs, path), path))
        except FileNotFoundError:
            return Epochs()
        except (LogStoreError, OSError) as error:
            self.report.notes.append(f"epochs of {folder.path} are those of its batches: {error}")
            return Epochs()


def _known_end(known: PartitionState | None, clean: bool) -> int:
    """The offset that the log reached for sure."""
    if known is None:
        return 0
    ends = (known.recovery_point, known.high_watermark, known.log_end_offset if clean else 0)
    return max(ends)


class _PartitionCopy:
    """Batches of one partition on their way; ``reason``: why the offsets due next were not there.
    ``known_end``: the offset that the log reached for sure; ``clean``: and where it ended.
    """

    def __init__(
        self,
        fs: FileSystem,
        topic: str,
        partition: int,
        writer: PartitionWriter,
        report: SalvageReport,
        progress: Callable[[int], None] | None,
        *,
        known_end: int,
        clean: bool,
    ) -> None:
        self.reason = "no segment holds them"
        self.gaps_allowed = False
        self.epochs = Epochs()
        self.producers = SalvagedProducers(writer.next_offset)
        self._fs = fs
        self._known_end = known_end
        self._closed_at = known_end if clean else INT64_MAX
        self._topic = topic
        self._partition = partition
        self._writer = writer
        self._report = report
        self._progress = progress
        self._damaged = False  # bad bytes since the last batch that was copied

    def segment(self, folder: PartitionFolder, base_offset: int, limit: int) -> None:
        """Copy the readable batches of one segment, [base_offset, limit), into one of its own.

        A batch's offset and epoch lie outside its CRC. Between adjacent batches offsets have no gap (unless
        compaction made it), so there the file's order tells a damaged offset from a right one. Where the
        batch behind it goes on from the offset that looks wrong, it is the bytes that have no place here.
        """
        path = segment_path(folder.path, base_offset)
        if self._writer.next_offset < base_offset <= self._known_end and not (
            self._damaged or self.gaps_allowed
        ):
            self._lose_to(base_offset)
        rolled = False
        due: int | None = base_offset
        for span, following in pairwise(chain(self._spans(path, base_offset), (None,))):
            if span is None:
                break
            if self._progress is not None:
                self._progress(span.length if isinstance(span, BadSpan) else span.header.size)
            if isinstance(span, BadSpan):
                found: Span = span
            elif due is not None and self._misplaced(span, following, due, limit, first=not rolled):
                text = f"offset {span.header.base_offset} where {due} was due; it has no place here"
                found = BadSpan(span.position, span.header.size, "offset", text)
            else:
                found = self._checked(span, path, due, limit)
            if isinstance(found, BadSpan):
                self.reason = f"{path} at byte {found.position}: {found.message}"
                self._damaged = True
                due = None
                continue
            due = found.header.next_offset
            self._batch(found, roll=not rolled)
            rolled = True

    def _misplaced(
        self, batch: ScannedBatch, following: Span | None, due: int, limit: int, *, first: bool
    ) -> bool:
        """Whether a batch with another offset than was due is not to be put right: it is a stranger's, or a
        second copy. ``first`` in its file, it has only what follows to vouch for it, or that one bit is off."""
        base = batch.header.base_offset
        if base == due or (self.gaps_allowed and due < base < limit):
            return False
        if isinstance(following, ScannedBatch) and following.header.base_offset == batch.header.next_offset:
            return True
        if not first or (base ^ due).bit_count() == 1:
            return False
        after = due + batch.header.last_offset_delta + 1
        return after != (following.header.base_offset if isinstance(following, ScannedBatch) else limit)

    def _checked(self, batch: ScannedBatch, path: str, due: int | None, limit: int) -> Span:
        """The batch as it is to be written, or why it cannot be."""
        bad = self._unreadable(batch)
        if bad is not None:
            return bad
        header = batch.header
        base = header.base_offset
        if due is not None and base != due and not (self.gaps_allowed and due < base < limit):
            self._report.notes.append(f"{path} at byte {batch.position}: offset {base} put right, to {due}")
            base = due
        limit = min(limit, self._closed_at)
        if not self._writer.next_offset <= base <= limit - 1 - header.last_offset_delta:
            text = f"offset {base} has no place here, between {self._writer.next_offset} and {limit - 1}"
            return BadSpan(batch.position, header.size, "offset", text)
        epoch = self.epochs.epoch_at(base)
        if epoch >= 0 and epoch != header.leader_epoch:
            text = f"epoch {header.leader_epoch} put right, to {epoch}"
            self._report.notes.append(f"{path} at byte {batch.position}: {text}")
        else:
            epoch = header.leader_epoch
        if (base, epoch) == (header.base_offset, header.leader_epoch):
            return batch
        data = stamp(batch.data, base, epoch) + bytes(batch.data[STAMP_SIZE:])
        return ScannedBatch(batch.position, read_header(data), memoryview(data))

    def _spans(self, path: str, base_offset: int) -> Iterator[Span]:
        """A segment that cannot be opened is one bad span: the others are still to be copied."""
        try:
            yield from scan_segment(self._fs, path, base_offset)
        except StorageError as error:
            yield BadSpan(0, 0, "unreadable", error.message)

    def _batch(self, batch: ScannedBatch, *, roll: bool) -> None:
        header, writer = batch.header, self._writer
        if header.base_offset > writer.next_offset and (self._damaged or not self.gaps_allowed):
            self._lose_to(header.base_offset)
        if roll:
            writer.roll()
        writer.append(header, batch.data)
        self.producers.take(writer.segment_base, header, batch.data)
        self._damaged = False
        self._report.batches += 1
        self._report.records += header.records_count
        self._report.bytes += header.size

    def _lose_to(self, offset: int) -> None:
        start = self._writer.next_offset
        self._writer.fill_to(offset)
        self._report.lost.append(LostRange(self._topic, self._partition, start, offset, self.reason))
        self.reason = "no segment holds them"
        self._damaged = False

    def _unreadable(self, batch: ScannedBatch) -> BadSpan | None:
        """Why a batch with a right CRC cannot be read all the same."""
        try:
            if batch.header.is_control:
                marker_of(batch.data, batch.header)
            else:
                decode_batches(batch.data, self._topic, self._partition, check=False)
        except MissingExtraError:
            return None  # readable where the codec is installed
        except LogStoreError as error:
            return BadSpan(batch.position, batch.header.size, "records", error.message)
        return None

    def finish(self) -> None:
        """Cover the end: up to what is known to have been there."""
        if self._known_end > self._writer.next_offset:
            self._lose_to(self._known_end)
        elif self._damaged:
            start = self._writer.next_offset
            self._report.lost.append(LostRange(self._topic, self._partition, start, -1, self.reason))
        if (first := self.producers.first_open_offset) is not None:
            self._report.notes.append(
                f"{self._topic}-{self._partition}: a transaction from offset {first} on has no end in the copy: "
                "read_committed readers stop there"
            )
