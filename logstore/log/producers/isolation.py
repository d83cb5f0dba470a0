"""``read_committed``: leave the batches of aborted transactions out of what a reader gets."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from logstore.format.batch import HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL_BIT, BatchHeader, iter_headers
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.native import compiled
from logstore.types import Buffer

_MOST_LOOKED_AT: Final = 512
_LENGTH = Struct(">i")
_LENGTH_AT, _LOW_ATTRIBUTES_AT = 8, 22


@compiled("format.batches")
def may_be_transactional(buffer: Buffer) -> bool:
    """Whether there may be a batch of a transaction among the whole batches in ``buffer``. Many of them are not all
    looked at, and bytes that are no batches may be anything: True."""
    at, size = 0, len(buffer)
    for _ in range(_MOST_LOOKED_AT):
        if at == size:
            return False
        if at + HEADER_SIZE > size or buffer[at + _LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT:
            return True
        length = _LENGTH.unpack_from(buffer, at + _LENGTH_AT)[0]
        if length < HEADER_SIZE - LOG_OVERHEAD:
            return True
        at += length + LOG_OVERHEAD
    return at != size


def is_aborted(header: BatchHeader, aborted: Sequence[AbortedTransaction]) -> bool:
    """Whether the data batch belongs to one of the transactions."""
    if not header.is_transactional or header.is_control:
        return False
    return any(
        row.producer_id == header.producer_id and row.first_offset <= header.base_offset <= row.last_offset
        for row in aborted
    )


def without_aborted(data: Buffer, aborted: Sequence[AbortedTransaction]) -> Buffer:
    """The whole batches in ``data`` that do not belong to one of ``aborted``: copied in runs, or ``data``
    itself when all do stay."""
    if not aborted:
        return data
    view = memoryview(data)
    kept: list[memoryview] = []
    run = 0
    for position, header in iter_headers(view):
        if is_aborted(header, aborted):
            if position > run:
                kept.append(view[run:position])
            run = position + header.size
    if run == 0:
        return data
    if run < len(view):
        kept.append(view[run:])
    return b"".join(kept)
