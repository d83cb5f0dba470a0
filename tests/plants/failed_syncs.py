"""Kind (g): a sync fails at one file, and the process goes on as if it had not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.errors import OutcomeUnknownError
from logstore.log.recovery.recovery import _Recovery
from logstore.log.synced_log import SyncedLog
from logstore.partition.coordinator_log import CoordinatorLog
from logstore.partition.topic import Topic
from logstore.seams.memory_fs import MemoryFile, MemoryFileSystem
from tests.interleave import failed_sync
from tests.plants.plant import Patch, Run, Runs, plant


def failing(action: str, *parts: str) -> Runs:
    """Each sync of the action fails in turn, of paths with one of ``parts`` in them."""

    def runs() -> Iterator[Run]:
        for failure in failed_sync.failures(action):
            if any(part in failure.path for part in parts):
                yield Run(str(failure), partial(failed_sync.run, failure))

    return runs


def _without_poison(patch: Patch, of: str) -> None:
    poison = SyncedLog._poison

    def planted(self: SyncedLog, failure: Any) -> None:
        if not self.where.startswith(of):
            poison(self, failure)

    patch.setattr(SyncedLog, "_poison", planted)


@plant("failed sync of a topic forgotten", "the next append counts as durable", failing("append", "plain"), 2)
def _(patch: Patch) -> None:
    _without_poison(patch, "plain")


@plant(
    "failed sync of offsets counted as done",
    "a commit whose sync failed counts as durable",
    failing("commit_offsets", "__consumer_offsets"),
    2,
)
def _(patch: Patch) -> None:
    _counted_as_done(patch, "__consumer_offsets")


def _counted_as_done(patch: Patch, of: str) -> None:
    sync = SyncedLog.sync

    def planted(self: SyncedLog) -> None:
        try:
            sync(self)
        except OutcomeUnknownError:
            if not self.where.startswith(of):
                raise
            self._failure = None
            with self._lock:
                self._synced_up_to(self.log_end_offset)

    patch.setattr(SyncedLog, "sync", planted)


@plant(
    "commit acknowledged all the same",
    "a commit whose sync failed is told as done",
    failing("commit_offsets", "__consumer_offsets"),
    2,
)
def _(patch: Patch) -> None:
    def planted(self: CoordinatorRuntime[Any], group: Iterable[Any], why: BaseException) -> None:
        del group, why
        self._followed.start_over()

    patch.setattr(CoordinatorRuntime, "_doubt", planted)
    lead = CoordinatorRuntime._lead

    def led(self: CoordinatorRuntime[Any], mine: Any, patience_s: float) -> None:
        lead(self, mine, patience_s)
        if mine.wrote:
            mine.error = None

    patch.setattr(CoordinatorRuntime, "_lead", led)


@plant(
    "failure of offsets not told",
    "the next process believes the page cache of an internal topic",
    failing("commit_offsets", "__consumer_offsets"),
    2,
)
def _(patch: Patch) -> None:
    patch.setattr(CoordinatorLog, "_note_poisoned", lambda self, log: None)
    patch.setattr(_Recovery, "_dirty_again", lambda self, segment, at, length: segment.bytes_at(at, length))


@plant("failure of a topic not told", "the next owner believes the page cache", failing("append", "plain"), 2)
def _(patch: Patch) -> None:
    patch.setattr(Topic, "_note_poisoned", lambda self: None)
    patch.setattr(_Recovery, "_dirty_again", lambda self, segment, at, length: segment.bytes_at(at, length))


@plant(
    "failed directory sync ignored", "a name that may be lost counts as durable", failing("create", "/"), 6
)
def _(patch: Patch) -> None:
    sync_dir = MemoryFileSystem.sync_dir

    def planted(self: MemoryFileSystem, path: str) -> None:
        try:
            sync_dir(self, path)
        except OSError:
            return

    patch.setattr(MemoryFileSystem, "sync_dir", planted)


@plant(
    "failed sync of the catalogue ignored",
    "a topic that may be lost counts as made",
    failing("create", "topics.json"),
    2,
)
def _(patch: Patch) -> None:
    _deaf(patch, "topics.json.tmp")


@plant(
    "failed sync of a state ignored",
    "a log start that may be lost counts as durable",
    failing("trim", ".state"),
    2,
)
def _(patch: Patch) -> None:
    _deaf(patch, ".json.tmp")


@plant(
    "failed sync of cleaned files ignored",
    "they replace those that were durable",
    failing("compact", ".log.cleaned"),
    2,
)
def _(patch: Patch) -> None:
    _deaf(patch, ".log.cleaned")


def _deaf(patch: Patch, suffix: str) -> None:
    sync = MemoryFile.sync

    def planted(self: MemoryFile) -> None:
        try:
            sync(self)
        except OSError:
            if not self._path.endswith(suffix):
                raise

    patch.setattr(MemoryFile, "sync", planted)
