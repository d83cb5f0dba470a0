"""``read_committed``: leave the batches of aborted transactions out of what a reader gets."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.format.batch import BatchHeader, iter_headers
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.types import Buffer


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
