"""A partition's records from the newest to the oldest, over the data plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logstore.api.data_plane import DataPlane
from logstore.api.records import FetchRequest
from logstore.format.batch import decode_batches
from logstore.types import Record, TopicPartition

_FETCH_BYTES: Final = 1 << 20


def newest_first(plane: DataPlane, place: TopicPartition, start: int, end: int) -> Iterator[Record]:
    """Committed records with offsets in [start, end), as far as retention has left them.
    ``OffsetOutOfRangeError`` where it comes in between."""
    offset = end
    while offset > start:
        (result,) = plane.fetch(
            [FetchRequest(*place, offset, -1, _FETCH_BYTES, reverse=True)],
            isolation="read_committed",
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            max_wait_s=0,
        )
        if result.error is not None:
            raise result.error
        yield from reversed(decode_batches(result.batches, *place, start_offset=start, end_offset=offset))
        if result.next_offset >= offset:
            return
        offset = result.next_offset
