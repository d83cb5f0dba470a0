"""Which segments of a range a filter on ``timestamp`` leaves: those whose span of times meets the filter's.

The newest time of a segment is in its index. The oldest is not (records may be out of order in time, and a
batch's header says only the first and the newest of its records), so it is found by reading the segment once
and kept: in ``.cache/`` of the store, a file per partition that may be deleted at any time. What is not known
is read; nothing is ever left out on a guess.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow.compute as pc

from logstore import TopicPartition
from logstore.format.arrow import to_table
from logstore.types import SegmentDescription
from spark_connector.connection import Logs
from spark_connector.planner import Range
from spark_connector.positions import Place

logger = logging.getLogger("logstore.spark")

SCAN_BYTES: Final = 1 << 30  # what one planning may read to learn oldest times
_FIRST_BYTES: Final = 256 << 10
_CHUNK_BYTES: Final = 4 << 20
_CACHE: Final = ".cache"


class Span(NamedTuple):
    """Offsets [start, end) and what is known of their times in ms, inclusive. ``low`` None: not known."""

    start: int
    end: int
    low: int | None
    high: int


def needed(piece: Range, spans: Iterable[Span], low: int, high: int) -> list[Range]:
    """The parts of the range that may hold a time in [low, high]; neighbours joined. Pure."""
    left: list[Range] = []
    covered = piece.start
    for span in sorted(spans):
        start, end = max(span.start, covered), min(span.end, piece.end)
        if start >= end:
            continue
        if span.high < low or (span.low is not None and span.low > high):
            left += [piece._replace(start=covered, end=start)]
            covered = end
    left.append(piece._replace(start=covered))
    return [part for part in left if part.size > 0]


class OldestTimes:
    """The oldest time of closed segments of one partition: looked up, or found by reading within a budget."""

    def __init__(self, logs: Logs, place: TopicPartition, topic_id: str) -> None:
        self._logs = Logs(logs.path, "read_uncommitted")
        self._place = place
        self._path = os.path.join(logs.path, _CACHE, f"times-{topic_id}-{place.partition}.json")
        self._known: dict[str, list[int]] = self._load()
        self._changed = False

    def _load(self) -> dict[str, list[int]]:
        try:
            with open(self._path, encoding="utf-8") as file:
                found = json.load(file)
            rows = found["segments"] if found["version"] == 1 else {}
            return {str(base): [int(number) for number in row] for base, row in rows.items() if len(row) == 3}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s is not readable and made anew: %r", self._path, error)
            return {}

    def of(self, segment: SegmentDescription) -> int | None:
        """None if it was not found out yet. A cleaned segment has another size or end than the one before it."""
        row = self._known.get(str(segment.base_offset))
        return row[2] if row is not None and row[:2] == [segment.next_offset, segment.size_bytes] else None

    def find(self, segment: SegmentDescription, high: int) -> tuple[int | None, int]:
        """Read the segment until a time at or before ``high`` shows that it is needed (None), or to its end: then
        the oldest time is kept. Also the bytes read."""
        offset, read, oldest = segment.base_offset, 0, None
        while offset < segment.next_offset:
            result = self._logs.fetch(self._place, Place(offset), _CHUNK_BYTES if read else _FIRST_BYTES)
            if result.error is not None or result.next_offset <= offset:
                return None, read  # retention or a cleaning came between; whoever reads it will tell
            read += len(result.batches)
            table = to_table(
                result.batches,
                *self._place,
                start_offset=offset,
                end_offset=segment.next_offset,
                headers=False,
            )
            if table.num_rows:
                lowest = pc.min(table.column("timestamp").cast("int64")).as_py()
                oldest = lowest if oldest is None else min(oldest, lowest)
                if oldest <= high:
                    return None, read
            offset = result.next_offset
        found = segment.max_timestamp_ms if oldest is None else oldest  # no records: nothing can match
        self._known[str(segment.base_offset)] = [segment.next_offset, segment.size_bytes, found]
        self._changed = True
        return found, read

    def save(self) -> None:
        """Keep what was found, if this process may write there and the directory is a store of ours."""
        if not self._changed or not os.path.exists(os.path.join(self._logs.path, "topics.json")):
            return
        # A cache: not synced, and a torn file is made anew. It holds times and offsets only, no record.
        draft = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(draft, "w", encoding="utf-8") as file:
                json.dump({"version": 1, "segments": self._known}, file)
            os.replace(draft, self._path)
        except OSError as error:
            logger.info("oldest times of %s are not kept: %s", self._place, error)
            with contextlib.suppress(OSError):
                os.unlink(draft)


def narrowed(
    logs: Logs, piece: Range, topic_id: str, low: int, high: int, budget: int = SCAN_BYTES
) -> tuple[list[Range], int]:
    """The parts of the range that records with times in [low, high] ms may be in, and what of ``budget`` is left."""
    place = TopicPartition(piece.topic, piece.partition)
    times = OldestTimes(logs, place, topic_id)
    spans = []
    for segment in logs.segments(place):
        if segment.next_offset <= piece.start or segment.base_offset >= piece.end or not segment.closed:
            continue
        oldest = times.of(segment)
        if oldest is None and budget > 0 and segment.max_timestamp_ms > high:
            oldest, read = times.find(segment, high)
            budget -= read
        spans.append(Span(segment.base_offset, segment.next_offset, oldest, segment.max_timestamp_ms))
    times.save()
    return needed(piece, spans, low, high), budget
