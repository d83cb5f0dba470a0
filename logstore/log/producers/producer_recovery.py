"""Find out, when a log is opened, what its producers had done: newest sound snapshot, then the batches behind it.

The rows of the transaction indexes that reach past the durable recovery point are made anew on the way.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from logstore.errors import CorruptBatchError
from logstore.log.producers import transaction_index
from logstore.log.producers.producer_replay import ProducerReplay
from logstore.log.producers.producer_snapshot import SUFFIX, decode_snapshot
from logstore.log.producers.producer_state import ProducerStates
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment import Segment, file_name
from logstore.seams.fs import FileSystem, exists, read_file, replace_file

logger = logging.getLogger(__name__)


class RecoveredProducers(NamedTuple):
    """``snapshots``: offsets of the snapshot files there are; ``no_producers_at``: see ``PartitionState``."""

    states: ProducerStates
    no_producers_at: int
    snapshots: frozenset[int]


def newest_snapshot(
    fs: FileSystem, directory: str, offsets: Iterable[int]
) -> tuple[ProducerStates, int] | None:
    """The newest of the snapshots that is whole, and its offset."""
    for offset in sorted(offsets, reverse=True):
        path = f"{directory}/{file_name(offset, SUFFIX)}"
        try:
            return ProducerStates(decode_snapshot(read_file(fs, path), path)), offset
        except FileNotFoundError:
            continue  # a checkpoint of its writer removed it since the listing
        except CorruptBatchError as error:
            logger.warning("a producer snapshot is left aside: %s", error)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            logger.warning("a producer snapshot is left aside: %s", error)
    return None


def replay_from(
    fs: FileSystem, directory: str, snapshots: Iterable[int], no_producers_at: int, end: int, seen_ms: int
) -> ProducerReplay:
    """Where a replay up to ``end`` has to begin, with what is known there. ``seen_ms``: as ``ProducerReplay``."""
    found = newest_snapshot(fs, directory, (offset for offset in snapshots if offset <= end))
    if found is not None and (found[1] >= no_producers_at or no_producers_at > end):
        return ProducerReplay(*found, seen_ms)
    return ProducerReplay(ProducerStates(), no_producers_at if no_producers_at <= end else 0, seen_ms)


def recover_producers(
    pool: FilePool,
    directory: str,
    segments: Sequence[Segment],
    snapshots: Iterable[int],
    replay: ProducerReplay,
    *,
    no_producers_at: int,
    next_offset: int,
    point: int,
    clean: bool = False,
) -> RecoveredProducers:
    """For the log's writer, once ``replay`` has met all batches: snapshots past ``next_offset`` go, and the
    transaction indexes of segments that reach ``point`` or further are put right, durably (``clean``: whose
    bytes are right are left in place, since others may have them open). OSError, CorruptBatchError."""
    fs = pool.fs
    kept = set()
    for offset in snapshots:
        if offset > next_offset:
            fs.remove(f"{directory}/{file_name(offset, SUFFIX)}")
        else:
            kept.add(offset)
    for segment in segments:
        if segment.next_offset >= point:
            _put_right(pool, segment, replay, clean)
    nothing = len(replay.states) == 0
    if nothing:
        no_producers_at = next_offset
    elif no_producers_at > next_offset:
        no_producers_at = 0  # it was true of records that are gone
    return RecoveredProducers(replay.states, no_producers_at, frozenset(kept))


def _put_right(pool: FilePool, segment: Segment, replay: ProducerReplay, clean: bool) -> None:
    """The rows of markers before the replay's start are durable; those behind it are as the replay met them."""
    path = segment.path(transaction_index.SUFFIX)
    there = exists(pool.fs, path)
    met = replay.aborted.get(segment.base_offset, [])
    if not there and not met:
        return
    data = read_file(pool.fs, path) if there else b""
    durable, start = [], replay.start
    if start > segment.base_offset:
        durable = transaction_index.decode_rows(data, path, segment.base_offset, start)
    due = transaction_index.encode_rows([*durable, *met])
    if due == data and (clean or not met):
        return  # else the same bytes may be in the page cache alone
    pool.forget_file(path)
    replace_file(pool.fs, path, due)
