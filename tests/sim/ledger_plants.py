"""Bugs planted into producers, transactions, cleaning, erasure and deletion; importing this adds them to ``PLANTS``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import logstore.directory.deletion as deletion
import logstore.log.cleaning.key_search as key_search
import logstore.log.cleaning.swap as swap_module
import logstore.log.owned_log as owned_log_module
import logstore.log.producers.producer_state as producer_state_module
import logstore.log.recovery.recovery as recovery_module
import logstore.partition.log_opening as log_opening
import logstore.upkeep.cleaning_facts as cleaning_facts
from logstore.directory.named_producers import NamedProducer
from logstore.directory.partition_folder import deletion_note_path
from logstore.format.batch import BatchHeader
from logstore.log.checkpoints import METADATA_FILE, encode_metadata, encode_pairs
from logstore.log.cleaning.cleanable import PartitionFacts
from logstore.log.cleaning.cleaning import Cleaning
from logstore.log.cleaning.compaction import AbortedRanges, Action, Compaction, Decision
from logstore.log.cleaning.key_offsets import KeyOffsets
from logstore.log.cleaning.swap import Swap
from logstore.log.log_offsets import Appended, LogOffsets
from logstore.log.owned_log import OwnedLog
from logstore.log.producers.producer_journal import Pending, ProducerJournal
from logstore.log.producers.producer_state import ProducerEntry, ProducerStates
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.read_only_log import ReadOnlyLog
from logstore.log.segments.segment import Segment
from logstore.log.synced_log import BegunCheckpoint, SyncedLog
from logstore.partition.topic_registry import TopicRegistry
from logstore.seams import fs as fs_module
from logstore.seams.fs import FileSystem
from logstore.seams.memory_fs import MemoryFile
from tests.sim.plants import PLANTS, Patch, plant

__all__ = ["PLANTS"]


# --- the swap of a cleaning --------------------------------------------------------------------------


@plant(
    "swap without a manifest",
    "new segments are renamed into place without a durable note of it",
    "boundaries",
)
def _(patch: Patch) -> None:
    patch.setattr(Swap, "commit", lambda self, fs: fs.sync_dir(self.directory))


@plant(
    "manifest not synced", "the note of a swap is renamed into place, and its name not synced", "boundaries"
)
def _(patch: Patch) -> None:
    def commit(self: Swap, fs: FileSystem) -> None:
        fs.sync_dir(self.directory)
        temporary = self.path + ".tmp"
        if fs_module.exists(fs, temporary):
            fs.remove(temporary)
        pairs = ((len(self.new), len(self.old)), *self.new, *self.old)
        file = fs.open(temporary, "create")
        fs_module.write_all(file, [encode_pairs(pairs)], 0)
        file.sync()
        file.close()
        fs.rename(temporary, self.path)

    patch.setattr(Swap, "commit", commit)


@plant(
    "swap in the wrong order", "the old segments and the note go before the renames are durable", "boundaries"
)
def _(patch: Patch) -> None:
    def finish(self: Swap, fs: FileSystem, retire: Any = None) -> None:
        fs_module.remove_if_there(fs, self.path)
        for base, _next in self.old:
            for suffix in (*swap_module.INDEX_SUFFIXES, swap_module.LOG_SUFFIX):
                fs_module.remove_if_there(fs, self.file(base, suffix))
        fs.sync_dir(self.directory)

    def place(self: Swap, fs: FileSystem, *, again: bool = False) -> OSError | None:
        self.finish(fs)
        return honest(self, fs, again=again)

    honest = Swap.place
    patch.setattr(Swap, "finish", finish)
    patch.setattr(Swap, "place", place)


@plant("cleaned files not synced", "what a cleaning wrote is put in place unsynced", "mixed schedules")
def _(patch: Patch) -> None:
    sync = MemoryFile.sync

    def planted(self: MemoryFile) -> None:
        if not self._path.endswith(".cleaned"):
            sync(self)

    patch.setattr(MemoryFile, "sync", planted)


@plant(
    "committed swap ignored",
    "recovery drops the new segments of a swap that was committed",
    "sweep",
)
def _(patch: Patch) -> None:
    def recover(fs: FileSystem, directory: str, names: Sequence[str]) -> bool:
        for name in names:
            if name.endswith(swap_module.SWAP_SUFFIX):
                fs.remove(f"{directory}/{name}")
        return True

    patch.setattr(swap_module, "recover", recover)


@plant("undo in the wrong order", "a swap taken back removes the new files before its note", "sweep")
def _(patch: Patch) -> None:
    def undo(self: Swap, fs: FileSystem) -> None:
        for base, _size in self.new:
            swap_module.discard(fs, self.directory, base)
        fs.sync_dir(self.directory)
        fs_module.remove_if_there(fs, self.path)

    patch.setattr(Swap, "undo", undo)


# --- what a cleaning keeps ---------------------------------------------------------------------------


@plant("tombstone before its horizon", "tombstones get a horizon that is over already", "mixed schedules")
def _(patch: Patch) -> None:
    patch.setattr(Compaction, "_new_horizon", lambda self: self._rules.now_ms)


@plant(
    "tombstone before its values",
    "a tombstone goes at the first cleaning, whatever is left",
    "mixed schedules",
)
def _(patch: Patch) -> None:
    data = Compaction._data

    def planted(self: Compaction, header: BatchHeader, view: memoryview, keep: Decision) -> Decision:
        honest = data(self, header, view, keep)
        return Decision(Action.DROP) if honest.horizon_ms >= 0 else honest

    patch.setattr(Compaction, "_data", planted)


@plant("key map off by one", "the key map takes a record for one offset later than it is", "mixed schedules")
def _(patch: Patch) -> None:
    newest = KeyOffsets.newest
    patch.setattr(KeyOffsets, "newest", lambda self, keys: [at + (at > 5) for at in newest(self, keys)])
    patch.setattr(KeyOffsets, "live", lambda self, first, last: None)  # so that newest is asked


@plant("last of a batch not mapped", "the key map misses the last record of each batch", "mixed schedules")
def _(patch: Patch) -> None:
    add = KeyOffsets.add

    def planted(self: KeyOffsets, keys: Any, offsets: Any, after: int, nulls: Any = ()) -> Any:
        left = [number for number in nulls if number < len(keys) - 1]
        return add(self, keys[:-1], offsets[:-1], after, left)

    patch.setattr(KeyOffsets, "add", planted)


class _AllStable:
    """A log whose readers may see everything."""

    def __init__(self, log: OwnedLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def bounds(self) -> LogOffsets:
        return self._log.bounds()._replace(last_stable_offset=self._log.high_watermark)


@plant("cleaned past the stable end", "open transactions are cleaned like any data", "mixed schedules")
def _(patch: Patch) -> None:
    init = Cleaning.__init__

    def facts(**fields: Any) -> PartitionFacts:
        return PartitionFacts(**{**fields, "stable_end": 1 << 62})

    def planted(self: Cleaning, log: OwnedLog, *arguments: Any, **settings: Any) -> None:
        init(self, _AllStable(log), *arguments, **settings)  # type: ignore[arg-type]

    patch.setattr(Cleaning, "__init__", planted)
    patch.setattr(cleaning_facts, "PartitionFacts", facts)


@plant(
    "aborted data compacted as data", "aborted records take the place of committed ones", "mixed schedules"
)
def _(patch: Patch) -> None:
    patch.setattr(AbortedRanges, "covers", lambda self, header: False)


# --- transactions ------------------------------------------------------------------------------------


@plant(
    "abort not indexed",
    "an abort marker is written without its row of the transaction index",
    "mixed schedules",
)
def _(patch: Patch) -> None:
    patch.setattr(owned_log_module, "write_aborted", lambda segment, row: None)


@plant("abort rows not synced", "a checkpoint does not sync the transaction index", "mixed schedules")
def _(patch: Patch) -> None:
    sync_indexes = Segment.sync_indexes

    def planted(self: Segment) -> None:
        self._aborted_unsynced = False
        sync_indexes(self)

    patch.setattr(Segment, "sync_indexes", planted)


@plant("stable end ignored", "read_committed reads up to the high watermark", "mixed schedules")
def _(patch: Patch) -> None:
    bounds = SyncedLog.bounds
    patch.setattr(
        SyncedLog, "bounds", lambda self: bounds(self)._replace(last_stable_offset=self.high_watermark)
    )


@plant("torn rows trusted", "a reader after a crash believes the newest transaction index", "mixed schedules")
def _(patch: Patch) -> None:
    def planted(self: ReadOnlyLog, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return self._current().aborted(start_offset, end_offset)

    patch.setattr(ReadOnlyLog, "_aborted", planted)


# --- producers ---------------------------------------------------------------------------------------


@plant("repeats not known", "a batch that is in the log already is appended again", "mixed schedules")
def _(patch: Patch) -> None:
    patch.setattr(ProducerStates, "repeated", lambda self, headers, where: [])
    patch.setattr(ProducerStates, "repeated_one", lambda self, header, where: None)


@plant("gaps let in", "a batch is taken whatever its sequence", "mixed schedules")
def _(patch: Patch) -> None:
    patch.setattr(producer_state_module, "_check_follows", lambda header, epoch, last_sequence, where: None)


@plant(
    "repeat answered unsynced",
    "a repeated batch is acknowledged before its original is synced",
    "mixed schedules",
)
def _(patch: Patch) -> None:
    append = OwnedLog.append

    def planted(self: OwnedLog, *arguments: Any) -> Appended:
        before = self.log_end_offset
        appended = append(self, *arguments)
        return appended if self.log_end_offset > before else appended._replace(next_offset=0)

    patch.setattr(OwnedLog, "append", planted)


@plant(
    "snapshot before its index",
    "a checkpoint's snapshot is durable before the rows that it stands for",
    "boundaries",
)
def _(patch: Patch) -> None:
    def begin_checkpoint(self: SyncedLog) -> BegunCheckpoint | None:
        pending = self.producers.take(self.log_end_offset)
        self.sync()
        self.producers.store(pending, {segment.base_offset for segment in self.segments.segments})
        return honest(self)

    honest = SyncedLog.begin_checkpoint
    patch.setattr(SyncedLog, "begin_checkpoint", begin_checkpoint)


@plant(
    "checkpoint without indexes",
    "a checkpoint moves the recovery point past index rows that are not synced",
    "mixed schedules",
)
def _(patch: Patch) -> None:
    patch.setattr(Segment, "begin_index_sync", lambda self: ())


@plant("snapshot of the past", "a snapshot says a later offset than its state is of", "mixed schedules")
def _(patch: Patch) -> None:
    take = ProducerJournal.take
    last: dict[str, bytes] = {}

    def planted(self: ProducerJournal, offset: int, **given: int) -> Pending | None:
        pending = take(self, offset, **given)
        if pending is None or pending.content is None:
            return pending
        stale = last.get(self._directory, pending.content)
        last[self._directory] = pending.content
        return pending._replace(content=stale)

    patch.setattr(ProducerJournal, "take", planted)


@plant(
    "snapshot without transactions", "a snapshot does not say which transactions are open", "mixed schedules"
)
def _(patch: Patch) -> None:
    take = ProducerJournal.take

    def planted(self: ProducerJournal, offset: int, **given: int) -> Pending | None:
        honest = self.states
        self.states = ProducerStates(
            ProducerEntry(entry.producer_id, entry.epoch, entry.batches, entry.coordinator_epoch)
            for entry in honest
        )
        try:
            return take(self, offset, **given)
        finally:
            self.states = honest

    patch.setattr(ProducerJournal, "take", planted)


@plant("producer ids reused", "a block of ids is taken without a durable note", "mixed schedules")
def _(patch: Patch) -> None:
    patch.setattr(
        TopicRegistry, "take_producer_ids", lambda self, count: int(self.catalogue.next_producer_id)
    )


@plant("epoch of a name not raised", "a named producer opens under its last epoch", "mixed schedules")
def _(patch: Patch) -> None:
    reopened = NamedProducer.reopened
    patch.setattr(NamedProducer, "reopened", lambda self: self if self.epoch >= 0 else reopened(self))


# --- what has to be gone -----------------------------------------------------------------------------


@plant(
    "folder of a deleted topic reused",
    "a new topic takes over the folder of a deleted one",
    "mixed schedules",
)
def _(patch: Patch) -> None:
    def finish(fs: FileSystem, root: str, topic: str, topic_id: str, partitions: int) -> None:
        deletion._remove_state(fs, root, topic, topic_id)
        fs.remove(deletion_note_path(root, topic_id))

    def make(fs: FileSystem, root: str, directory: str, topic_id: str, twin: str | None = None) -> bool:
        new = not fs_module.exists(fs, directory)
        if new:
            fs.mkdir(directory)
        fs_module.replace_file(fs, f"{directory}/{METADATA_FILE}", encode_metadata(topic_id))
        fs.sync_dir(root)
        return new

    patch.setattr(deletion, "finish", finish)
    patch.setattr(log_opening, "ensure_folder", make)
    patch.setattr(log_opening, "make_folder", make)


@plant("erasure leaves cut-off ends", "what recovery set aside is not looked into", "torn tails")
def _(patch: Patch) -> None:
    patch.setattr(key_search, "_cut_file_holds", lambda *arguments: False)


@plant("erasure leaves retired files", "files that wait for their removal stay", "boundaries")
def _(patch: Patch) -> None:
    patch.setattr(key_search, "_LEAVING", key_search.re.compile("never"))


@plant(
    "erasure leaves the active segment",
    "the active segment is not closed, and stays as it is",
    "mixed schedules",
)
def _(patch: Patch) -> None:
    search = key_search.search_keys

    def planted(fs: FileSystem, folder: str, keys: Any, end_offset: int) -> key_search.KeySearch:
        found = search(fs, folder, keys, end_offset)
        if found.segments:
            del found.segments[max(found.segments)]
        return found

    import logstore.upkeep.erasure as erasure

    patch.setattr(erasure, "search_keys", planted)


# --- failing disks -----------------------------------------------------------------------------------


@plant(
    "lost index pages believed",
    "after a failed sync recovery syncs indexes without writing them anew",
    "sweep",
)
def _(patch: Patch) -> None:
    def write_all(file: Any, buffers: Sequence[Any], position: int) -> None:
        if not file._path.endswith("index"):
            fs_module.write_all(file, buffers, position)

    patch.setattr(recovery_module, "write_all", write_all)
