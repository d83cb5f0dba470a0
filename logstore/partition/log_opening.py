"""Opening a partition's log for writing: its folder, what recovery finds in it, and what the log tells its topic."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from logstore.config import TopicConfig
from logstore.directory.catalogue import TopicEntry
from logstore.directory.partition_folder import ensure_folder, ensure_folders, folder_is_anothers
from logstore.directory.topic_state import PartitionState
from logstore.errors import DamagedStoreError, from_os_error
from logstore.log.owned_log import OwnedLog
from logstore.log.recovery.recovery import Loaded, LoadRules, load
from logstore.log.segments.tail_cache import TailCache
from logstore.partition.context import StoreContext
from logstore.partition.fan_out import fan_out

NEW_ROW: Final = PartitionState(recovery_point=0, log_start_offset=0, high_watermark=0, log_end_offset=0)


def make_folders(context: StoreContext, entry: TopicEntry, partitions: Sequence[int]) -> None:
    """The folders of partitions that hold nothing yet, durably, side by side. Errors as ``ensure_folder``."""
    folders = [context.partition_directory(entry.name, partition) for partition in partitions]
    side_by_side = partial(fan_out, threads=context.recovery_threads)
    ensure_folders(context.fs, context.root, folders, entry.topic_id, side_by_side)


def open_log(
    context: StoreContext,
    entry: TopicEntry,
    config: TopicConfig,
    partition: int,
    row: PartitionState,
    *,
    made: bool,
    known: bool,
    clean: bool,
    same_boot: bool,
    before_roll: Callable[[OwnedLog], None],
    on_poison: Callable[[OwnedLog], None],
) -> OwnedLog:
    """The log of one partition, recovered where it was not closed in order.

    ``row``: what the topic's state says of the partition; ``known``: there is a state at all; ``clean``: the state
    says that the log was closed in order; ``same_boot``: its last owner ran since this boot; ``made``: its folder
    was just seen to. ``UnknownPartitionError``, ``DamagedStoreError``, ``StorageError``.
    """
    entry.live_slot(partition)  # refuses a partition that the topic does not have
    directory = context.partition_directory(entry.name, partition)
    rules = LoadRules(
        recovery_point=(row.log_end_offset if clean else row.recovery_point) if known else None,
        log_start_offset=row.log_start_offset,
        clean=clean,
        same_boot=same_boot,
        interval_bytes=config.index_interval_bytes,
        max_batch_bytes=config.max_message_bytes,
        now_ms=context.clock.wall_ms(),
        no_producers_at=row.no_producers_at,
    )
    try:
        if row.recovery_point == 0:
            if not made:
                ensure_folder(context.fs, context.root, directory, entry.topic_id)
        elif folder_is_anothers(context.fs, directory, entry.topic_id):
            raise DamagedStoreError(f"{directory} holds another topic's records", path=directory)
        loaded = load(context.pool, directory, entry.name, partition, rules)
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
    log = OwnedLog(
        where=f"{entry.name}-{partition}",
        directory=directory,
        pool=context.pool,
        config=config,
        clock=context.clock,
        loaded=loaded,
        tail=TailCache(context.tails, config.tail_cache_bytes),
        publish=partial(context.show, entry.live_slot(partition)),
        before_roll=before_roll,
        on_dirty=context.note_dirty,
        on_poison=on_poison,
        # Spread by name, not by chance: a run stays a function of its seed.
        roll_jitter_ms=zlib.crc32(directory.encode()) % (jitter + 1) if jitter else 0,
    )
    log.cleaner_point = min(row.cleaner_point, loaded.log_end_offset)
    return log
