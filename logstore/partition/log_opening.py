"""Opening a partition's log for writing: its folder, what recovery finds in it, and what the log tells its topic."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, Literal, TypeAlias

from logstore.config import TopicConfig
from logstore.directory.catalogue import TopicEntry
from logstore.directory.partition_folder import ensure_folder, folder_is_anothers, make_folder, sync_folders
from logstore.directory.topic_state import PartitionState
from logstore.errors import DamagedStoreError, from_os_error
from logstore.log.commit_policy import by_commit_index, by_visibility
from logstore.log.owned_log import OwnedLog
from logstore.log.recovery.recovery import Loaded, LoadRules, load, load_new
from logstore.log.replica_log import ReplicaLog
from logstore.log.segments.tail_cache import TailCache
from logstore.partition.context import SlotPublisher, StoreContext
from logstore.partition.fan_out import MANY, fan_out

logger = logging.getLogger(__name__)

Folder: TypeAlias = Literal["unseen", "seen", "new"]  # what was done about a folder that may not be there
NEW_ROW: Final = PartitionState(recovery_point=0, log_start_offset=0, high_watermark=0, log_end_offset=0)


@contextmanager
def repaired_by_others(context: StoreContext, directory: str) -> Iterator[None]:
    """Damage of a replica is no reason to keep its topic shut: the others fill it anew."""
    try:
        yield
    except DamagedStoreError as error:
        if not context.replicated:
            raise
        logger.error("%s is to be repaired: %s", directory, error)


def twin_folder(log: OwnedLog | None) -> str | None:
    """The log's folder if a new partition may share its small files: while its epochs are those it began with."""
    shared = log is not None and not log.poisoned and log.epochs.entries == ((log.first_epoch, 0),)
    return log.directory if log is not None and shared else None


def see_to_folder(
    context: StoreContext, entry: TopicEntry, partition: int, row: PartitionState, twin: str | None
) -> Folder:
    """Make the folder of a partition that may have none yet: see ``make_folder``. ``UnknownPartitionError``."""
    entry.live_slot(partition)  # refuses a partition that the topic does not have
    if row.recovery_point > 0:
        return "unseen"
    directory = context.partition_directory(entry.name, partition)
    new = make_folder(context.fs, context.root, directory, entry.topic_id, twin)
    return "new" if new else "seen"


def make_durable(context: StoreContext, logs: Collection[OwnedLog]) -> None:
    """The names in the logs' folders, and those of the folders: before their first records. ``StorageError``."""
    if not logs:
        return
    side_by_side = partial(fan_out, threads=context.recovery_threads if len(logs) >= MANY else 1)
    sync_folders(context.fs, context.root, [log.directory for log in logs], side_by_side)


def open_log(
    context: StoreContext,
    entry: TopicEntry,
    config: TopicConfig,
    partition: int,
    row: PartitionState,
    *,
    folder: Folder,
    known: bool,
    clean: bool,
    same_boot: bool,
    before_roll: Callable[[OwnedLog], None],
    on_poison: Callable[[OwnedLog], None],
) -> OwnedLog:
    """The log of one partition, recovered where it was not closed in order.

    ``row``: what the topic's state says of the partition; ``known``: there is a state at all; ``clean``: the state
    says that the log was closed in order; ``same_boot``: its last owner ran since this boot; ``folder``: what was
    just done about it. What the row says of its own stop goes first. ``UnknownPartitionError``, ``DamagedStoreError``,
    ``StorageError``.
    """
    entry.live_slot(partition)  # refuses a partition that the topic does not have
    directory = context.partition_directory(entry.name, partition)
    clean, same_boot = clean and row.clean is not False, same_boot and row.boot_id != ""
    rules = LoadRules(
        recovery_point=(row.log_end_offset if clean else row.recovery_point) if known else None,
        log_start_offset=row.log_start_offset,
        clean=clean,
        same_boot=same_boot,
        interval_bytes=config.index_interval_bytes,
        max_batch_bytes=config.max_message_bytes,
        now_ms=context.clock.wall_ms(),
        no_producers_at=row.no_producers_at,
        high_watermark=row.high_watermark if context.replicated else None,
        epochs="keep" if context.replicated else "step",
    )
    try:
        if row.recovery_point == 0:
            if folder == "unseen":
                ensure_folder(context.fs, context.root, directory, entry.topic_id)
        elif folder_is_anothers(context.fs, directory, entry.topic_id):
            raise DamagedStoreError(f"{directory} holds another topic's records", path=directory)
        loaded = (
            load_new(entry.name, partition)
            if folder == "new" and row == NEW_ROW
            else load(context.pool, directory, entry.name, partition, rules)
        )
    except OSError as error:
        raise from_os_error(error, "open", directory) from error
    if not clean and loaded.log_end_offset > 0:
        context.note_recovered(loaded.report)
    return _made(context, entry, config, partition, row, loaded, before_roll, on_poison)


def _made(
    context: StoreContext,
    entry: TopicEntry,
    config: TopicConfig,
    partition: int,
    row: PartitionState,
    loaded: Loaded,
    before_roll: Callable[[OwnedLog], None],
    on_poison: Callable[[OwnedLog], None],
) -> OwnedLog:
    directory = context.partition_directory(entry.name, partition)
    jitter = config.segment_jitter_ms
    make = ReplicaLog if context.replicated else OwnedLog
    log = make(
        where=f"{entry.name}-{partition}",
        directory=directory,
        pool=context.pool,
        config=config,
        clock=context.clock,
        loaded=loaded,
        tail=TailCache(context.tails, config.tail_cache_bytes),
        publish=SlotPublisher(context, entry.live_slot(partition)),
        before_roll=before_roll,
        on_dirty=context.note_dirty,
        on_poison=on_poison,
        # Spread by name, not by chance: a run stays a function of its seed.
        roll_jitter_ms=zlib.crc32(directory.encode()) % (jitter + 1) if jitter else 0,
        commits=by_commit_index if context.replicated else by_visibility,
    )
    log.cleaner_point = min(row.cleaner_point, loaded.log_end_offset)
    return log
