"""Producer state from the batches themselves: what a snapshot does not cover is read again, headers alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from logstore.errors import CorruptBatchError
from logstore.format.batch import BatchHeader
from logstore.format.control import decode_control_batch, decode_marker
from logstore.log.producers.producer_state import Marker, ProducerStates
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.recovery.scan import SegmentScan
from logstore.log.segments.segment import Segment
from logstore.types import Buffer

logger = logging.getLogger(__name__)


def marker_of(data: Buffer, header: BatchHeader) -> Marker | None:
    """What a control batch says of its producer's transaction; None if it says something else."""
    record = decode_control_batch(data, 0, header)
    if not record.is_marker:
        return None
    return Marker(
        header.producer_id,
        header.producer_epoch,
        decode_marker(record.value),
        record.type == 1,
        header.max_timestamp,
    )


class ProducerReplay:
    """``states`` holds what is known before ``next_offset``; both move on with ``advance``.

    ``seen_ms``: taken as the wall time of the appends that are met, -1 for the batches' own. ``aborted``: rows of the
    transaction index that were met, by base offset of the segment with the marker.
    """

    def __init__(self, states: ProducerStates, next_offset: int, seen_ms: int = -1) -> None:
        self.states = states
        self.start = self.next_offset = next_offset
        self.aborted: dict[int, list[AbortedTransaction]] = {}
        self._seen_ms = seen_ms

    def advance(self, segments: Sequence[Segment], end_offset: int) -> None:
        """Take in all batches from ``next_offset`` up to ``end_offset``. OSError, CorruptBatchError."""
        if self.next_offset >= end_offset:
            return
        for number, segment in enumerate(segments):
            last = number == len(segments) - 1
            if not last and segments[number + 1].base_offset <= self.next_offset:
                continue
            if segment.base_offset >= end_offset:
                break
            self._read(segment, end_offset)
        self.next_offset = max(self.next_offset, end_offset)

    def _read(self, segment: Segment, end_offset: int) -> None:
        start: int | None = 0
        if self.next_offset > segment.base_offset:
            try:
                start = segment.locate(self.next_offset)
            except CorruptBatchError as error:
                # An index that is gone or torn cannot be made anew from a log whose end is torn, too.
                logger.debug("no help from the index: %s", error)
        if start is None:
            return
        scan = SegmentScan(
            segment.bytes_at, start=start, end=segment.size, next_offset=segment.base_offset, check=False
        )
        for position, header, data in scan:
            if header.base_offset >= end_offset:
                return
            if header.producer_id >= 0 and header.last_offset >= self.next_offset:
                try:
                    self.take(segment.base_offset, header, data)
                except CorruptBatchError as error:
                    path = segment.path()
                    raise CorruptBatchError(
                        f"{path} at byte {position}: {error.message}", path=path, position=position
                    ) from error
            self.next_offset = max(self.next_offset, header.next_offset)

    def take(self, segment_base: int, header: BatchHeader, data: Buffer) -> None:
        """A producer's batch, next in the log. CorruptBatchError for a marker that is none."""
        if not header.is_control:
            self.states.note(header, header.base_offset, self._seen_ms)
            return
        if header.records_count == 0:
            return  # compaction took the marker
        marker = marker_of(data, header)
        if marker is None:
            return
        row = self.states.aborted_by(marker, header.base_offset)
        if row is not None:
            self.aborted.setdefault(segment_base, []).append(row)
        self.states.note_marker(marker, header.base_offset, self._seen_ms)
