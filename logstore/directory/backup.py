"""A copy of a store as it was at one moment, beside its live writers.

All partitions come up to their ends at the cut (``backup_cut.py``), so what depends on each other is in the copy
together: the records of a transaction, committed offsets and the output that belongs to them, a producer's epoch and
its records. Transactions that were decided are whole in the copy, with all their markers; those that were not are
aborted there (``backup_transactions.py``). The copy opens as a store that was closed in order, and every producer's
name and transactional id may be used there at once.

The catalogue is written last: a copy that was interrupted is no store, and is not mistaken for one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from logstore.config import parse_topic_config
from logstore.directory import topic_state
from logstore.directory.backup_cut import PartitionCut, StoreCut, is_cleaned
from logstore.directory.backup_partition import PartitionCopy
from logstore.directory.backup_transactions import TransactionEndings
from logstore.directory.catalogue import Catalogue, CatalogueFile, TopicEntry
from logstore.directory.layout import make_root
from logstore.directory.partition_folder import folder_is_anothers
from logstore.directory.topic_state import PartitionState, TopicState
from logstore.errors import LogStoreError, UnknownTopicError, from_os_error
from logstore.log.cleaning.cleaner_mark import copy_mark
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem
from logstore.transactions.transaction_records import TOPIC as TRANSACTIONS_TOPIC
from logstore.types import TopicPartition

LogStart = Callable[[str, int], int]


@dataclass(slots=True)
class BackupReport:
    """Counts of one backup. ``records`` counts offsets; linked bytes take no room until the original goes;
    ``finished_transactions`` were decided and not marked everywhere, ``aborted_transactions`` not decided."""

    topics: int = 0
    partitions: int = 0
    records: int = 0
    copied_bytes: int = 0
    linked_bytes: int = 0
    finished_transactions: int = 0
    aborted_transactions: int = 0
    skipped_topics: tuple[str, ...] = ()  # deleted while the copy ran


def copy_store(
    fs: FileSystem,
    root: str,
    target: str,
    clock: Clock,
    cut: StoreCut,
    *,
    log_start: LogStart,
    topics: Collection[str] | None = None,
    link: bool = True,
    progress: Callable[[int], None] | None = None,
) -> BackupReport:
    """Copy the store at ``root``, as it was at ``cut``, to the new directory ``target``.

    ``log_start(topic, partition)``: the first offset that the source has by now. ``topics``: only these and the
    internal ones. ``link=False`` copies every byte. ``progress`` is called with bytes copied or linked. Errors:
    UnknownTopicError (one of ``topics``), DamagedStoreError (a batch to be copied is bad: salvage first),
    SegmentVanishedError, StorageError, DiskFullError.
    """
    catalogue = _chosen(cut.catalogue, topics)
    copy = _StoreCopy(fs, root, target, clock, cut, log_start, link, progress)
    try:
        return copy.run(catalogue)
    except OSError as error:
        raise from_os_error(error, "write the copy", error.filename or target) from error


def _chosen(catalogue: Catalogue, topics: Collection[str] | None) -> Catalogue:
    if topics is None:
        return catalogue
    for name in topics:
        catalogue.topic(name)
    for name, entry in list(catalogue.topics.items()):
        if not entry.internal and name not in topics:
            catalogue = catalogue.without_topic(name)
    return catalogue


class _StoreCopy:
    """One run; its report grows with it."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        target: str,
        clock: Clock,
        cut: StoreCut,
        log_start: LogStart,
        link: bool,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._fs = fs
        self._root = root
        self._target = target
        self._clock = clock
        self._cut = cut
        self._log_start = log_start
        self._link = link
        self._progress = progress
        self._endings = TransactionEndings()
        self.report = BackupReport()

    def run(self, catalogue: Catalogue) -> BackupReport:
        make_root(self._fs, self._target)
        topic_state.make_directory(self._fs, self._target)
        # The coordinator's log comes first: it says which markers the others need.
        for entry in sorted(catalogue.topics.values(), key=lambda entry: entry.name != TRANSACTIONS_TOPIC):
            try:
                self._copy_topic(entry)
            except LogStoreError:
                if self._is_there(entry):
                    raise
                self._drop(entry)
                catalogue = catalogue.without_topic(entry.name)
        self.report.finished_transactions += self._endings.finished
        self.report.aborted_transactions += self._endings.aborted
        self._fs.sync_dir(self._target)
        file = CatalogueFile(self._fs, self._target)
        try:
            file.save(catalogue)
        finally:
            file.close()
        return self.report

    def _is_there(self, entry: TopicEntry) -> bool:
        """Whether the source still has the topic."""
        file = CatalogueFile(self._fs, self._root)
        try:
            found = file.load().topics.get(entry.name)
        finally:
            file.close()
        return found is not None and found.topic_id == entry.topic_id

    def _drop(self, entry: TopicEntry) -> None:
        """Take back what was copied of a topic that was deleted meanwhile."""
        self.report.skipped_topics += (entry.name,)
        topic_state.remove(self._fs, self._target, entry.name)
        for partition in range(entry.partitions):
            folder = f"{self._target}/{entry.name}-{partition}"
            try:
                for name in self._fs.listdir(folder):
                    self._fs.remove(f"{folder}/{name}")
                self._fs.rmdir(folder)
            except FileNotFoundError:
                continue  # the copy had not come to this partition
            except OSError as error:
                raise from_os_error(error, "remove", folder) from error

    def _copy_topic(self, entry: TopicEntry) -> None:
        saved = topic_state.load(self._fs, self._root, entry.name)
        if saved is not None and saved.topic_id != entry.topic_id:
            saved = None
        rows: dict[int, PartitionState] = {}
        records = 0
        for partition in range(entry.partitions):
            known = saved.partitions.get(partition) if saved is not None else None
            cut = self._cut.partitions[TopicPartition(entry.name, partition)]
            row = rows[partition] = self._copy_partition(entry, partition, cut, known)
            records += cut.end - min(row.log_start_offset, cut.end)
        if not self._is_there(entry):  # else folders of a later topic may have been taken for this one's
            raise UnknownTopicError(f"topic {entry.name!r} was deleted while it was copied")
        self.report.topics += 1
        self.report.partitions += entry.partitions
        self.report.records += records
        state = TopicState(entry.topic_id, self._clock.boot_id(), True, rows)
        topic_state.save(self._fs, self._target, entry.name, state)

    def _copy_partition(
        self, entry: TopicEntry, partition: int, cut: PartitionCut, known: PartitionState | None
    ) -> PartitionState:
        place = f"{entry.name}-{partition}"
        source, target = f"{self._root}/{place}", f"{self._target}/{place}"
        if folder_is_anothers(self._fs, source, entry.topic_id):
            raise UnknownTopicError(f"{source} belongs to another topic than {entry.name!r}")
        coordinator = entry.name == TRANSACTIONS_TOPIC
        now_ms = self._clock.wall_ms()
        held = self._cut.segments.get(TopicPartition(entry.name, partition))
        copied = PartitionCopy(
            self._fs,
            source,
            target,
            topic_id=entry.topic_id,
            cut=cut,
            known=known,
            interval_bytes=parse_topic_config(entry.config).index_interval_bytes,
            now_ms=now_ms,
            link=self._link,
            log_start=partial(self._log_start, entry.name, partition),
            held=held if held is not None or not is_cleaned(entry) else (),
            markers=self._endings.markers(entry.name, partition),
            on_batch=self._endings.take if coordinator else None,
            changes=partial(self._endings.decide, now_ms) if coordinator else None,
            progress=self._progress,
        ).run()
        self.report.copied_bytes += copied.copied_bytes
        self.report.linked_bytes += copied.linked_bytes
        self.report.aborted_transactions += copied.aborted
        cleaned_to = known.cleaner_point if known is not None else 0
        copy_mark(self._fs, source, target, cleaned_to=cleaned_to, end=cut.end)
        return copied.state
