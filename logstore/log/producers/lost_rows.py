"""Rows of transaction indexes that got lost are found again from the log's own markers.

``row_counts.py`` tells that rows are missing. With what the nearest producer snapshot knows the markers tell the same
rows again; readers get them at once, and the log's next writer puts them back into the file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from logstore.errors import CorruptBatchError
from logstore.log.producers.producer_recovery import replay_from
from logstore.log.producers.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from logstore.log.producers.row_counts import note_counts, read_counts
from logstore.log.producers.transaction_index import ROW, SUFFIX, AbortedTransaction, encode_rows
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.listing import Listing
from logstore.log.segments.segment import Segment
from logstore.seams.fs import replace_file

logger = logging.getLogger(__name__)


def rows_of_all(segments: Sequence[Segment]) -> list[AbortedTransaction]:
    """The rows of neighbouring segments in order, those that are lost among them. OSError; CorruptBatchError."""
    if not segments:
        return []
    counts = read_counts(segments[0].fs, segments[0].directory)
    return [row for number in range(len(segments)) for row in rows_of(segments, number, counts)]


def rows_of(segments: Sequence[Segment], number: int, counts: Mapping[int, int]) -> list[AbortedTransaction]:
    """The rows of ``segments[number]``. Errors as ``rows_of_all``."""
    segment = segments[number]
    due = counts.get(segment.base_offset, 0)
    try:
        rows = segment.aborted()
        if len(rows) >= due or segment.rule is not None:
            return rows  # of the segment that this process appends to, memory has them all
        why = f"{len(rows)} of at least {due} rows are there"
    except CorruptBatchError as error:
        why = error.message
    found = rows_from_markers(segments[: number + 1])
    _warn(segment.path(SUFFIX), why, found)
    segment.believe_aborted(found)
    return found


def put_back(pool: FilePool, directory: str, segments: Sequence[Segment]) -> int:
    """For the log's writer, before it appends: indexes that lack rows are written anew, durably, and the counts are
    put right; how many were written. OSError, CorruptBatchError."""
    fs = pool.fs
    counts = read_counts(fs, directory)
    found: dict[int, int] = {}
    written = 0
    for number, segment in enumerate(segments):
        path = segment.path(SUFFIX)
        try:
            size = fs.stat(path).size
        except FileNotFoundError:
            size = 0
        if segment.base_offset in counts or size:
            due = counts.get(segment.base_offset, 0)
            found[segment.base_offset] = size // ROW.size
            if found[segment.base_offset] < due or size % ROW.size:
                rows = rows_from_markers(segments[: number + 1])
                _warn(path, f"{size} bytes where {due * ROW.size} are due", rows)
                pool.forget_file(path)
                replace_file(fs, path, encode_rows(rows))
                segment.believe_aborted(rows)
                found[segment.base_offset] = len(rows)
                written += 1
    note_counts(fs, directory, found, gone=counts)
    return written


def _warn(path: str, why: str, found: Sequence[AbortedTransaction]) -> None:
    logger.warning(
        "%s is damaged or gone (%s): %d aborted transactions were found again in the log",
        path,
        why,
        len(found),
    )


def rows_from_markers(segments: Sequence[Segment]) -> list[AbortedTransaction]:
    """What the markers in the last of ``segments`` tell; those before it are read as far as no producer snapshot
    speaks for them. OSError, CorruptBatchError."""
    last = segments[-1]
    fs = last.fs
    listing = Listing.of(fs.listdir(last.directory), last.directory)
    snapshots = [at for at, suffix in listing.indexes if suffix == SNAPSHOT_SUFFIX and at <= last.base_offset]
    replay = replay_from(fs, last.directory, snapshots, 0, last.base_offset, -1)
    replay.advance(segments, last.next_offset)
    return replay.aborted.get(last.base_offset, [])
