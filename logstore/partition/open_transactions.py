"""The first transaction that a partition's log holds open, as its records say."""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.errors import from_os_error
from logstore.format.batch import read_header
from logstore.partition.partition import LogReader

_READ_BYTES: Final = 1  # one batch is enough


class OpenTransaction(NamedTuple):
    """``start_offset``: where readers of committed records wait."""

    start_offset: int
    producer_id: int
    epoch: int


def first_open(reader: LogReader) -> OpenTransaction | None:
    """None: no transaction is open, or the batch there is of none (any more)."""
    bounds = reader.bounds()
    start = bounds.last_stable_offset
    if start >= bounds.high_watermark:
        return None
    try:
        chunk = reader.read(start, _READ_BYTES, start + 1)
    except OSError as error:
        raise from_os_error(error, "read", reader.where) from error
    header = None if chunk is None else read_header(chunk.data)
    if header is None or not header.is_transactional:
        return None
    return OpenTransaction(start, header.producer_id, header.producer_epoch)
