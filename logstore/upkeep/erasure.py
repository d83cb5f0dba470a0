"""Erasure: every record of some keys leaves a topic for good, and a search through all its files proves it.

Per partition: the active segment is closed if it holds such a record; the engine rewrites the segments without
them, in the crash-safe way of a cleaning; retired files and cut-off ends go at once; then everything is read
again. Offsets do not change. Works on topics of any cleanup policy.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from logstore.arguments import shown
from logstore.directory.partition_folder import folder_is_mine
from logstore.errors import ErasureIncompleteError, InvalidArgumentError, from_os_error
from logstore.log.cleaning.key_search import KeySearch, search_keys
from logstore.log.owned_log import OwnedLog
from logstore.partition.topic import Topic
from logstore.types import ErasedPartition, ErasureReport
from logstore.upkeep.cleaning_run import CleaningKit
from logstore.upkeep.compactor import Compactor, Steps

logger = logging.getLogger(__name__)

_TRIES = 3


def checked_keys(keys: object) -> frozenset[bytes]:
    """InvalidArgumentError unless these are keys."""
    if isinstance(keys, bytes | str) or not isinstance(keys, Collection):
        raise InvalidArgumentError(f"keys={shown(keys)}", hint="it is a list of bytes")
    for key in keys:
        if not isinstance(key, bytes):
            raise InvalidArgumentError(f"key {shown(key)} is {type(key).__name__}", hint="a key is bytes")
    if not keys:
        raise InvalidArgumentError("there is no key to erase", hint="name one at least")
    return frozenset(keys)


class Eraser:
    """Any thread; one call at a time for a topic."""

    def __init__(self, kit: CleaningKit, compactor: Compactor) -> None:
        self._kit = kit
        self._compactor = compactor

    def erase(self, topic: Topic, keys: frozenset[bytes]) -> Steps[ErasureReport]:
        """Errors: ``TopicLockedError`` with the holder; ``ErasureIncompleteError`` if the proof fails (a
        transaction is open over such a record, a segment is damaged); those of a cleaning. What was done
        before an error stays done, and the call may be repeated. In steps, as a compaction."""
        if topic.entry.internal:
            raise InvalidArgumentError(
                f"{topic.name} is internal: its records are not yours to erase",
                hint="delete its groups instead",
            )
        return self._erase(topic, keys)

    def _erase(self, topic: Topic, keys: frozenset[bytes]) -> Steps[ErasureReport]:
        rows: list[ErasedPartition] = []
        with topic.using(), self._kit.reserved(topic):
            for partition in range(topic.entry.partitions):
                row = yield from self._one(topic, partition, keys)
                if row is not None:
                    rows.append(row)
        return ErasureReport(topic=topic.name, keys=len(keys), partitions=tuple(rows), proven=True)

    def _one(self, topic: Topic, partition: int, keys: frozenset[bytes]) -> Steps[ErasedPartition | None]:
        context = self._kit.context
        folder = context.partition_directory(topic.name, partition)
        if topic.owned_log(partition) is None and not folder_is_mine(
            context.fs, folder, topic.entry.topic_id
        ):
            return None  # nothing was ever appended
        log = topic.log(partition)
        end = log.log_end_offset  # what is appended from here on is newer than the wish
        context.commit([(log, end)])
        end = min(end, log.high_watermark)  # of a replica that follows: what is not committed may yet be cut
        found = search_keys(context.fs, folder, keys, end)
        rewritten = 0
        if found.segments:
            rewritten = yield from self._rewrite(topic, partition, log, keys, found)
        log.tail.clear()
        removed: list[str] = []
        for _ in range(_TRIES):
            removed += self._remove_files(folder, keys)
            proof = search_keys(context.fs, folder, keys, end)
            if not proof.leaving_files:
                break  # else retention came between
        if proof.remains:
            raise ErasureIncompleteError(
                f"erasing {len(keys)} keys from {log.where}: {folder} still has {proof.remains}",
                path=folder,
            )
        logger.info(
            "%s: erasure of %d keys below offset %d removed %d records: %d segments rewritten, %d files removed, "
            "%d bytes searched for proof",
            log.where,
            len(keys),
            end,
            found.records,
            rewritten,
            len(removed),
            proof.scanned_bytes,
        )
        return ErasedPartition(
            partition=partition,
            records_removed=found.records,
            segments_rewritten=rewritten,
            removed_files=tuple(removed),
            scanned_bytes=proof.scanned_bytes,
        )

    def _rewrite(
        self, topic: Topic, partition: int, log: OwnedLog, keys: frozenset[bytes], found: KeySearch
    ) -> Steps[int]:
        """Segments that were rewritten."""
        active = log.segments.active
        if active is not None and active.base_offset in found.segments:
            log.roll_idle()
        segments = log.segments.segments
        last = segments[-1]
        offsets = (segments[0].base_offset, last.next_offset if last.closed else last.base_offset)
        run = self._compactor.begin(topic, partition, offsets, erase=keys)
        result = yield from self._compactor.drive(run)
        return result.segments_before

    def _remove_files(self, folder: str, keys: frozenset[bytes]) -> list[str]:
        """Retired files, and cut-off ends that hold a key or cannot be looked into. Their names."""
        context = self._kit.context
        fs = context.fs
        found = search_keys(fs, folder, keys, 0)  # of the segments none: those were rewritten
        names = [*found.leaving_files, *found.cut_files]
        try:
            for name in names:
                context.pool.forget_file(f"{folder}/{name}")
                try:
                    fs.remove(f"{folder}/{name}")
                except FileNotFoundError:
                    continue  # its delay was just over
            if names:
                fs.sync_dir(folder)
        except OSError as error:
            raise from_os_error(error, "remove files from", folder) from error
        for name in found.cut_files:
            logger.warning("erasure removed %s/%s, which recovery had set aside", folder, name)
        return names
