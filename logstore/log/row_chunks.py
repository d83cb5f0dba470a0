"""Cut rows into runs that fit one batch each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logstore.errors import InvalidRecordError, RecordTooLargeError
from logstore.format.batch import HEADER_SIZE
from logstore.types import Row

RECORD_OVERHEAD = 40  # no record's lengths, deltas and attributes take more (five varints and a varlong)
_ROWS_A_BATCH = 10_000


def row_size_bound(row: Row) -> int:
    """At least the bytes that the row takes in a batch."""
    size = RECORD_OVERHEAD + len(row[0] or b"") + len(row[1] or b"")
    headers = row[2] if len(row) > 2 else None
    if headers:
        size += sum(10 + 4 * len(name) + len(value or b"") for name, value in headers)
    return size


def row_chunks(rows: Sequence[Row], limit_bytes: int, where: str) -> Iterator[Sequence[Row]]:
    """Runs of ``rows`` whose batches stay within ``limit_bytes``. ``RecordTooLargeError`` names the row."""
    if not rows:
        raise InvalidRecordError(f"append to {where}: no rows", hint="pass at least one (key, value) row")
    start, size = 0, HEADER_SIZE
    for number, row in enumerate(rows):
        try:
            more = row_size_bound(row)
        except (TypeError, ValueError, LookupError):
            more = 0  # the encoder names what is wrong with it
        if HEADER_SIZE + more > limit_bytes:
            raise RecordTooLargeError(
                f"append to {where}: row {number} takes up to {more} bytes; a batch may have {limit_bytes}"
            )
        if number > start and (size + more > limit_bytes or number - start >= _ROWS_A_BATCH):
            yield rows[start:number]
            start, size = number, HEADER_SIZE
        size += more
    yield rows[start:]
