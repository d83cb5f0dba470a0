"""A consistent copy of a store beside its live writers.

Each partition is copied up to its last stable offset, read once at its start. Internal topics come first: a
committed position in the copy then never lies past the end of its partition. A segment that lies wholly below
the durable recovery point never changes again, so it is hard-linked where the file system can, and copied
elsewhere; newer ones are copied batch by batch, checked, with their indexes made anew. The last segment is
always a copy of its own, so that appending to the restored store cannot touch the original.

The catalogue is written last: a copy that was interrupted is no store, and is not mistaken for one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from logstore.arguments import truth
from logstore.config import parse_topic_config
from logstore.directory import topic_state
from logstore.directory.catalogue import Catalogue, CatalogueFile, TopicEntry
from logstore.directory.layout import make_root
from logstore.directory.topic_state import PartitionState, TopicState
from logstore.errors import (
    DamagedStoreError,
    LogStoreError,
    SegmentVanishedError,
    StorageError,
    from_os_error,
)
from logstore.log import checkpoints
from logstore.log.cleaning.cleaner_mark import copy_mark
from logstore.log.epochs import FILE_NAME as EPOCHS_FILE
from logstore.log.epochs import Epochs
from logstore.log.inspection.inspect import (
    LOG_SUFFIX,
    BadSpan,
    scan_segment,
    segment_base_offsets,
    segment_path,
)
from logstore.log.producers import transaction_index
from logstore.log.recovery.salvage import require_new, require_outside
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.segment_writer import SegmentWriter, write_texts
from logstore.seams.clock import Clock
from logstore.seams.fs import FileIdentity, FileSystem, read_file, write_all

_COPY_BYTES = 1 << 20
_TRIES = 5  # a partition is copied anew when its segments were replaced meanwhile
_SUFFIXES = (LOG_SUFFIX, offset_index.SUFFIX, time_index.SUFFIX, transaction_index.SUFFIX)
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK)


class PartitionEnds(Protocol):
    """What the copy asks of a partition: the first offset it has, and where stable records end."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...


@dataclass(slots=True)
class BackupReport:
    """Counts of one backup. ``records`` counts offsets; linked bytes take no room until the original goes."""

    topics: int = 0
    partitions: int = 0
    records: int = 0
    copied_bytes: int = 0
    linked_bytes: int = 0
    skipped_topics: tuple[str, ...] = ()  # deleted while the copy ran


def backup(
    fs: FileSystem,
    root: str,
    target: str,
    clock: Clock,
    partition_of: Callable[[str, int], PartitionEnds],
    *,
    link: bool = True,
    progress: Callable[[int], None] | None = None,
) -> BackupReport:
    """Copy the store at ``root`` to the new directory ``target``; it opens there as a cleanly closed store.

    ``partition_of``: ``store.partition`` of a store open on ``root``, read-only is enough. ``link=False``
    copies every byte. ``progress`` is called with bytes copied or linked. Errors: ForeignDirectoryError (the
    target is not empty), InvalidArgumentError (it lies inside the store), DamagedStoreError (a batch to be
    copied is bad: salvage first), StorageError, DiskFullError.
    """
    truth(link, "link")
    require_outside(target, root)
    require_new(fs, target)
    return _Backup(fs, root, target, clock, partition_of, link, progress).run()


class _Backup:
    """One run; its report grows with it."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        target: str,
        clock: Clock,
        partition_of: Callable[[str, int], PartitionEnds],
        link: bool,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._fs = fs
        self._root = root
        self._target = target
        self._clock = clock
        self._partition_of = partition_of
        self._link = link
        self._progress = progress
        self.report = BackupReport()

    def run(self) -> BackupReport:
        make_root(self._fs, self._target)
        topic_state.make_directory(self._fs, self._target)
        catalogue = self._catalogue()
        for entry in sorted(catalogue.topics.values(), key=lambda entry: (not entry.internal, entry.name)):
            try:
                self._copy_topic(entry)
            except LogStoreError:
                if entry.name in self._catalogue().topics:
                    raise
                self._drop(entry)
                catalogue = catalogue.without_topic(entry.name)
        self._fs.sync_dir(self._target)
        file = CatalogueFile(self._fs, self._target)
        try:
            file.save(catalogue)
        finally:
            file.close()
        return self.report

    def _catalogue(self) -> Catalogue:
        file = CatalogueFile(self._fs, self._root)
        try:
            return file.load()
        finally:
            file.close()

    def _drop(self, entry: TopicEntry) -> None:
        """Take back what was copied of a topic that was deleted meanwhile."""
        self.report.skipped_topics += (entry.name,)
        for partition in range(entry.partitions):
            folder = f"{self._target}/{entry.name}-{partition}"
            try:
                for name in self._fs.listdir(folder):
                    self._fs.remove(f"{folder}/{name}")
                self._fs.rmdir(folder)
            except FileNotFoundError:
                continue  # the copy had not come to this partition

    def _copy_topic(self, entry: TopicEntry) -> None:
        interval_bytes = parse_topic_config(entry.config).index_interval_bytes
        saved = topic_state.load(self._fs, self._root, entry.name)
        if saved is not None and saved.topic_id != entry.topic_id:
            saved = None
        rows: dict[int, PartitionState] = {}
        for partition in range(entry.partitions):
            known = saved.partitions.get(partition) if saved is not None else None
            durable = known.recovery_point if known is not None else 0
            row = rows[partition] = self._copy_partition(entry, partition, interval_bytes, durable)
            cleaned_to = known.cleaner_point if known is not None else 0
            source, target = (f"{root}/{entry.name}-{partition}" for root in (self._root, self._target))
            copy_mark(self._fs, source, target, cleaned_to=cleaned_to, end=row.log_end_offset)
        self.report.topics += 1
        self.report.partitions += entry.partitions
        state = TopicState(entry.topic_id, self._clock.boot_id(), True, rows)
        topic_state.save(self._fs, self._target, entry.name, state)

    def _copy_partition(
        self, entry: TopicEntry, partition: int, interval_bytes: int, durable: int
    ) -> PartitionState:
        ends = self._partition_of(entry.name, partition)
        start, end = ends.log_start_offset, ends.last_stable_offset
        folder = f"{self._root}/{entry.name}-{partition}"
        target = f"{self._target}/{entry.name}-{partition}"
        try:
            self._fs.mkdir(target)
        except OSError as error:
            raise from_os_error(error, "create", target) from error
        for _ in range(_TRIES):
            before = self._files(folder)
            self._copy_segments(folder, target, sorted(before), start, end, durable, interval_bytes)
            after = self._files(folder)
            if all(after.get(base, found) == found for base, found in before.items()):
                break
            self._empty(target)  # a cleaning put other segments there meanwhile: old and new must not mix
        else:
            raise StorageError(
                f"{folder} was cleaned each of {_TRIES} times that it was copied",
                hint="back up again when less is being compacted",
            )
        write_texts(self._fs, target, entry.topic_id, self._epochs(folder, end))
        self.report.records += end - start
        return PartitionState(end, start, end, end)

    def _files(self, folder: str) -> dict[int, FileIdentity]:
        """Which file each segment is. The times of those that grow change, so only the inode counts."""
        found = {}
        for base in self._bases(folder):
            path = segment_path(folder, base)
            try:
                found[base] = self._fs.stat(path).identity._replace(mtime_ns=-1)
            except FileNotFoundError:
                continue  # retention took it, or it is missed when it is to be copied
            except OSError as error:
                raise from_os_error(error, "look at", path) from error
        return found

    def _empty(self, target: str) -> None:
        try:
            for name in self._fs.listdir(target):
                self._fs.remove(f"{target}/{name}")
        except OSError as error:
            raise from_os_error(error, "empty", target) from error

    def _copy_segments(
        self,
        folder: str,
        target: str,
        bases: list[int],
        start: int,
        end: int,
        durable: int,
        interval_bytes: int,
    ) -> None:
        for number, base in enumerate(bases):
            following = bases[number + 1] if number + 1 < len(bases) else None
            if following is not None and following <= start:
                continue  # below the log start: on its way out
            if following is not None and following <= end:
                self._copy_closed(folder, target, base, linked=following < durable)
            else:
                self._copy_tail(folder, target, base, end, interval_bytes)
                break
        else:
            SegmentWriter(self._fs, target, end, interval_bytes).finish()

    def _bases(self, folder: str) -> list[int]:
        try:
            return segment_base_offsets(self._fs, folder)
        except LogStoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []  # a partition that nobody appended to has no folder yet
            raise

    def _copy_closed(self, folder: str, target: str, base: int, *, linked: bool) -> None:
        for suffix in _SUFFIXES:
            source_path, target_path = segment_path(folder, base, suffix), segment_path(target, base, suffix)
            try:
                if not (linked and self._link and self._linked(source_path, target_path)):
                    self._copy_file(source_path, target_path)
            except FileNotFoundError as error:
                if suffix != LOG_SUFFIX:
                    continue  # an index that is missing is rebuilt when the copy is opened
                raise SegmentVanishedError(f"{source_path} was removed while it was copied") from error
            except OSError as error:
                raise from_os_error(error, f"copy {source_path} to", target_path) from error

    def _linked(self, source_path: str, target_path: str) -> bool:
        """Hard-link the file; False where that cannot be done. ``OSError`` otherwise."""
        try:
            self._fs.link(source_path, target_path)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        size = self._fs.stat(target_path).size
        self.report.linked_bytes += size
        self._advance(size)
        return True

    def _copy_file(self, source_path: str, target_path: str) -> None:
        source = self._fs.open(source_path, "r")
        try:
            target = self._fs.open(target_path, "create")
            try:
                for position, part in _parts(source.pread):
                    write_all(target, [part], position)
                    self.report.copied_bytes += len(part)
                    self._advance(len(part))
                target.sync()
            finally:
                target.close()
        finally:
            source.close()

    def _copy_tail(self, folder: str, target: str, base: int, end: int, interval_bytes: int) -> None:
        """Copy the batches of a segment that still changes, or that ends past ``end``, below ``end``."""
        path = segment_path(folder, base)
        writer = SegmentWriter(self._fs, target, base, interval_bytes)
        try:
            for span in scan_segment(self._fs, path, base):
                if writer.next_offset >= end:
                    break
                if isinstance(span, BadSpan):
                    text = f"{path} at byte {span.position}, below offset {end}: {span.message}"
                    raise DamagedStoreError(text, path=path, position=span.position)
                writer.append(span.header, span.data)
                self.report.copied_bytes += span.header.size
                self._advance(span.header.size)
            writer.finish()
        except OSError as error:
            raise from_os_error(error, "write to", target) from error
        finally:
            writer.abandon()
        if writer.next_offset < end:
            text = f"{path} ends at offset {writer.next_offset}, its log at {end}"
            raise DamagedStoreError(text, path=path, position=writer.size)

    def _epochs(self, folder: str, end: int) -> Epochs:
        path = f"{folder}/{EPOCHS_FILE}"
        try:
            table = Epochs(checkpoints.decode_pairs(read_file(self._fs, path), path))
        except FileNotFoundError:
            return Epochs()
        latest = table.latest
        table.truncate(end)
        table.assign(latest, end)  # an epoch without records in the copy must not be given again
        return table

    def _advance(self, count: int) -> None:
        if self._progress is not None:
            self._progress(count)


def _parts(pread: Callable[[int, int], bytes]) -> Iterator[tuple[int, bytes]]:
    position = 0
    while part := pread(_COPY_BYTES, position):
        yield position, part
        position += len(part)
