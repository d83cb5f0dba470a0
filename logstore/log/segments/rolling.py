"""When the active segment is full: Kafka's conditions, purely."""

from __future__ import annotations

from logstore.config import TopicConfig
from logstore.log.append_validation import CheckedBatch
from logstore.log.segments.segment import Segment
from logstore.log.segments.time_index import ROW_BYTES as LARGEST_ROW

_INT32_MAX = 2**31 - 1


def must_roll(
    config: TopicConfig,
    segment: Segment,
    batch: CheckedBatch,
    size: int,
    offset: int,
    first_ms: int,
    jitter_ms: int,
) -> bool:
    """Whether ``batch``, next at ``offset``, goes into a new segment. ``size``: bytes that the segment has or
    will have before it; ``first_ms``: timestamp of its first batch. An empty segment never rolls (its
    successor would get the same name)."""
    if size == 0:
        return False
    header = batch.header
    return (
        size + len(batch.data) > config.segment_bytes
        or header.max_timestamp - first_ms > config.segment_ms - jitter_ms
        or segment.index_bytes + LARGEST_ROW > config.segment_index_bytes
        or offset + header.last_offset_delta - segment.base_offset > _INT32_MAX
    )
