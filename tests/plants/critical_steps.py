"""Kind (a): what goes wrong when another thread or process acts inside a critical step."""

from __future__ import annotations

from typing import Any

from logstore.directory import deletion
from logstore.groups.offsets import OffsetStore
from logstore.log.owned_log import OwnedLog
from logstore.log.synced_log import SyncedLog
from logstore.ownership.locks import MemoryLocks
from logstore.partition import local_partition, log_opening
from logstore.partition.local_append import LocalAppend
from logstore.seams.fs import exists
from tests.plants.hunts import interleaved
from tests.plants.plant import Patch, plant


@plant(
    "end taken after the sync",
    "a sync counts as durable what was appended while it ran",
    interleaved("append", "append", "same", range(4, 5)),
    1,
)
def _(patch: Patch) -> None:
    synced_up_to = SyncedLog._synced_up_to
    patch.setattr(
        SyncedLog, "_synced_up_to", lambda self, target: synced_up_to(self, max(target, self.log_end_offset))
    )


@plant(
    "append acknowledged during another's sync",
    "an append that finds a sync under way takes it for its own",
    interleaved("append", "append", "same", range(2, 3)),
    1,
)
def _(patch: Patch) -> None:
    sync = SyncedLog.sync

    def planted(self: SyncedLog) -> None:
        if not self._sync_lock.locked():
            sync(self)

    patch.setattr(SyncedLog, "sync", planted)


@plant(
    "decision not synced",
    "markers are written while the decision is in the page cache alone",
    interleaved("commit_transaction", "look", "same", range(12, 19)),
    7,
)
def _(patch: Patch) -> None:
    sync = OwnedLog.sync

    def planted(self: OwnedLog) -> None:
        if not self.where.startswith("__transaction_state"):
            sync(self)
            return
        with self._lock:
            if self.dirty:
                self._synced_up_to(self.log_end_offset)

    patch.setattr(OwnedLog, "sync", planted)


@plant(
    "marker not waited for",
    "a transaction counts as complete while its markers are in the page cache alone",
    interleaved("commit_transaction", "look", "same", range(12, 21)),
    9,
)
def _(patch: Patch) -> None:
    def planted(context: Any, topic: Any, log: Any, appended: Any, time_ms: int, *_: bool) -> LocalAppend:
        return LocalAppend(context, topic, log, appended, time_ms, False, True)

    patch.setattr(local_partition, "LocalAppend", planted)


@plant(
    "topic written without its lock",
    "a process appends to a topic that another one owns",
    interleaved("append", "append", "other", range(1, 5), "before"),
    4,
)
def _(patch: Patch) -> None:
    _without_lock(patch, "topic ")


@plant(
    "internal topic written without its lock",
    "a process appends to an internal topic while another one does",
    interleaved("commit_offsets", "commit_offsets", "other", range(1, 5), "before"),
    4,
)
def _(patch: Patch) -> None:
    _without_lock(patch, "internal topic ")


def _without_lock(patch: Patch, whose: str) -> None:
    """Whoever comes takes the lock, and whoever has it by now gives it back."""
    acquire_in_turn, release = MemoryLocks.acquire_in_turn, MemoryLocks.release

    def acquire(self: MemoryLocks, slot: int, timeout_s: float, what: str, *more: Any) -> None:
        if what.startswith(whose):
            self._table.taken.pop(slot, None)
        acquire_in_turn(self, slot, timeout_s, what, *more)

    def give(self: MemoryLocks, slot: int) -> None:
        if self.held(slot):
            release(self, slot)

    patch.setattr(MemoryLocks, "acquire_in_turn", acquire)
    patch.setattr(MemoryLocks, "release", give)


@plant(
    "offsets forgotten by name",
    "a deletion forgets the offsets of whatever topic has the name by now",
    interleaved("delete", "remake", "same", range(14, 28)),
    14,
)
def _(patch: Patch) -> None:
    lost = OffsetStore.lost

    def planted(self: OffsetStore, group: str, topic_ids: Any) -> Any:
        found = lost(self, group, topic_ids)
        return found or self.places(group)

    patch.setattr(OffsetStore, "lost", planted)


@plant(
    "offsets of a deleted topic shown",
    "committed offsets are looked up by the topic's name alone",
    interleaved("delete", "look", "same", range(12, 26)),
    14,
)
def _(patch: Patch) -> None:
    committed = OffsetStore.committed
    patch.setattr(OffsetStore, "committed", lambda self, group, topic_ids=None: committed(self, group, None))


@plant(
    "deleted without a note",
    "a deletion leaves no note by which another process finishes it",
    interleaved("delete", "look", "same", range(12, 27)),
    15,
)
def _(patch: Patch) -> None:
    patch.setattr(deletion, "announce", lambda fs, root, entry: None)


@plant(
    "names not freed",
    "a topic is made while files of a deleted one have its names",
    interleaved("delete", "remake", "other", range(12, 20)),
    8,
)
def _(patch: Patch) -> None:
    patch.setattr(deletion, "free_names", lambda *arguments: None)
    patch.setattr(log_opening, "ensure_folder", _make_any_folder)
    patch.setattr(log_opening, "make_folder", _make_any_folder)


def _make_any_folder(fs: Any, root: str, directory: str, topic_id: str, twin: str | None = None) -> bool:
    if exists(fs, directory):
        return False
    fs.mkdir(directory)
    fs.sync_dir(root)
    return True


@plant(
    "condition checked against the visible end",
    "a conditional append passes although an append is being synced",
    interleaved("append", "append_expected", "same", range(1, 5), "before"),
    4,
)
def _(patch: Patch) -> None:
    append = OwnedLog.append

    def planted(self: OwnedLog, batches: Any, expected_offset: int | None = None, *more: Any) -> Any:
        if expected_offset == self.high_watermark:
            expected_offset = None
        return append(self, batches, expected_offset, *more)

    patch.setattr(OwnedLog, "append", planted)


@plant(
    "open transactions shown to others",
    "what `.live` says is stable is all that is durable",
    interleaved("abort_transaction", "look", "other", range(6, 14)),
    8,
)
def _(patch: Patch) -> None:
    bounds, shown = SyncedLog.bounds, SyncedLog.shown

    def planted(self: SyncedLog) -> Any:
        found = bounds(self)
        return found._replace(last_stable_offset=found.high_watermark)

    def planted_shown(self: SyncedLog) -> Any:
        start, high_watermark, _, *more = shown(self)
        return start, high_watermark, high_watermark, *more

    patch.setattr(SyncedLog, "bounds", planted)
    patch.setattr(SyncedLog, "shown", planted_shown)
