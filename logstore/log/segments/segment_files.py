"""The files of segments: made when a log rolls, removed and shortened when replication truncates it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logstore.invariants import invariant
from logstore.log.cleaning.swap import HalfPlacedError
from logstore.log.producers import producer_snapshot, transaction_index
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.growing_table import GrowingTable
from logstore.log.segments.offset_index import IndexRule, OffsetIndex
from logstore.log.segments.segment import LOG_SUFFIX, Segment
from logstore.log.segments.segment_list import SegmentList
from logstore.log.segments.time_index import TimeIndex
from logstore.seams.fs import exists, replace_file


def create_segment(
    pool: FilePool, directory: str, base_offset: int, interval_bytes: int, *, sync: bool = True
) -> Segment:
    """Three empty files, their names durable, ready for appends. Raises ``OSError``. ``sync=False``: the caller makes
    the names durable before it appends.

    Files of that base were left by a crash between their creation and the first append: emptied.
    """
    fs = pool.fs
    segment = Segment(
        pool, directory, base_offset, size=0, next_offset=base_offset, interval_bytes=interval_bytes
    )
    for suffix in (offset_index.SUFFIX, time_index.SUFFIX, LOG_SUFFIX):
        try:
            file = fs.open(segment.path(suffix), "create")
            segment.unsynced_indexes.discard(suffix)  # empty, and durable with its name
        except FileExistsError:
            file = fs.open(segment.path(suffix), "rw")
            file.truncate(0)
        file.close()
    if sync:
        fs.sync_dir(directory)
    segment.activate(
        OffsetIndex(base_offset, GrowingTable(offset_index.ROW)),
        TimeIndex(base_offset, GrowingTable(time_index.ROW)),
        IndexRule(interval_bytes),
        -1,
    )
    return segment


def truncated(pool: FilePool, directory: str, segments: SegmentList, offset: int) -> SegmentList:
    """``segments`` cut at the batch that holds ``offset``; the last one left is ready for appends.

    Whole segments go first, newest first, so that a crash in between leaves a shorter log, never a hole.
    Raises ``OSError``; the files then are a prefix of what they were.
    """
    kept = list(segments.segments)
    while len(kept) > 1 and kept[-1].base_offset >= offset:
        _remove(pool, directory, kept.pop())
    if kept:
        position = kept[-1].locate(offset)
        if position is not None:
            _shorten(pool, kept[-1], position)
        kept[-1].reopen_for_appends()
    return SegmentList(kept)


def put_in_place(pool: FilePool, old: Sequence[Segment], place: Callable[[], None]) -> None:
    """Rename new files over those of ``old``, which no reader can mistake for their own then: it finds its
    segment retired, and takes the new list. The log's lock is held. ``OSError``: nothing has changed."""
    invariant(all(segment.closed for segment in old), "only closed segments are replaced")
    for segment in old:
        segment.retired = True
    try:
        place()
    except HalfPlacedError:
        raise
    except OSError:
        for segment in old:
            segment.retired = False
        raise
    for segment in old:
        for suffix in (LOG_SUFFIX, offset_index.SUFFIX, time_index.SUFFIX):
            pool.forget_file(segment.path(suffix))


def _remove(pool: FilePool, directory: str, segment: Segment) -> None:
    for suffix in (LOG_SUFFIX, offset_index.SUFFIX, time_index.SUFFIX):
        pool.forget_file(segment.path(suffix))
        pool.fs.remove(segment.path(suffix))
    for suffix in (transaction_index.SUFFIX, producer_snapshot.SUFFIX):
        pool.forget_file(segment.path(suffix))
        if exists(pool.fs, segment.path(suffix)):
            pool.fs.remove(segment.path(suffix))
    pool.fs.sync_dir(directory)


def _shorten(pool: FilePool, segment: Segment, position: int) -> None:
    """A closed segment may be mapped by anyone: it is copied short and renamed over, never cut in place."""
    path = segment.path()
    if segment.closed:
        content = bytes(segment.bytes_at(0, position))
        pool.forget_file(path)
        replace_file(pool.fs, path, content)
    else:
        with pool.pinned(path, True) as file:
            file.truncate(position)
            file.sync()
    segment.size = position
