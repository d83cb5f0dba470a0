"""``SegmentTail``: what an append touches of the segment that it goes to."""

from __future__ import annotations

from logstore.errors import InvariantError
from logstore.log.segments import time_index
from logstore.log.segments.offset_index import IndexRule, OffsetIndex
from logstore.log.segments.time_index import TimeIndex
from logstore.native import compiled


@compiled("log.segment_tail")
class SegmentTail:
    """``size``: valid bytes; ``next_offset``: first offset past them (for a closed one: the next base)."""

    def __init__(self, base_offset: int, size: int, next_offset: int) -> None:
        self.base_offset = base_offset
        self.size = size
        self.next_offset = next_offset
        self.closed = True
        self.first_timestamp_ms = -1
        self.index_bytes = 0  # what the larger index may take; 0 for a segment that is not active
        self.rule: IndexRule | None = None
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._log_path = ""  # of its file; every durable append asks for it

    def note_appended(self, position: int, size: int, last_offset: int, max_timestamp_ms: int) -> bool:
        """Count a batch that is in the file: index rows, then what readers may see. True if there are new rows."""
        rule = self.rule
        if rule is None or self.closed:
            raise InvariantError("invariant broken: only the active segment grows")
        entered = rule.feed(last_offset, size, max_timestamp_ms)
        if entered:
            self._offsets.append(last_offset, position)  # type: ignore[union-attr]
            self.index_bytes += time_index.ROW.size  # the time index has the larger rows, and no more of them
            self._times.maybe_append(rule.max_timestamp_ms, rule.offset_of_max)  # type: ignore[union-attr]
        if self.first_timestamp_ms < 0:
            self.first_timestamp_ms = max_timestamp_ms
        self.next_offset = last_offset + 1
        self.size = position + size
        return entered
