"""``RowBuffer``: the rows of a batch to be, and the batch that they make."""

from __future__ import annotations

from typing import Any

from logstore.format.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    encode_with_header,
)
from logstore.native import compiled


@compiled("format.row_buffer")
class RowBuffer(list[Any]):
    """Rows (key, value[, headers[, timestamp_ms]]) that were checked, in order. The compiled twin encodes plain ones as
    they come, and gives back equal rows where one is asked for."""

    __slots__ = ()

    def part(self, start: int, end: int) -> RowBuffer:
        """A buffer of its own with the rows [start, end)."""
        return RowBuffer(self[start:end])

    def encode(
        self,
        now_ms: int,
        codec: str = "none",
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> tuple[bytes, BatchHeader]:
        """The batch of the rows, and its header: see ``encode_with_header``."""
        return encode_with_header(
            self,
            now_ms,
            codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
