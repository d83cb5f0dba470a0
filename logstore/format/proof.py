"""The proof of a batch that came from elsewhere: that its records are what its header says.

A checksum only tells that the bytes are those which somebody encoded. A reader that meets a record which ends past
the batch, or two of one offset, would fail for good, and a time index would lie about a record that is newer than
its batch claims. So each record of a new batch is looked at once, on its way in: lengths, offset deltas (one record
for each offset), timestamps against the header's largest, headers. Batches that this process has just encoded need
no proof; they are told by the ``BatchHeader`` that travels with them (``encode_with_header`` gave it).
"""

from __future__ import annotations

from logstore.errors import CorruptBatchError, DecompressionBombError, LogStoreError
from logstore.format.batch import BatchHeader, section_view
from logstore.format.compression import MAX_DECOMPRESSED_BYTES
from logstore.format.record import newest_record
from logstore.types import Buffer


def prove_batch(
    buffer: Buffer, position: int, header: BatchHeader, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> None:
    """Raise unless the batch at ``position``, whose checksum is right, holds the records of its header; control
    batches and such as cannot be new (another count than offsets) are left to other checks.

    ``CorruptBatchError`` (with ``position``) says which record and why; ``DecompressionBombError`` past
    ``max_bytes`` of records; ``UnsupportedCodecError``, ``MissingExtraError``.
    """
    if header.is_control or not 1 <= header.records_count == header.last_offset_delta + 1:
        return
    try:
        section = section_view(buffer, position, header, max_bytes)
        newest = _newest(section, header)
    except (CorruptBatchError, DecompressionBombError) as error:
        raise _at(position, error) from error
    if newest != header.max_timestamp and not header.is_log_append_time:
        raise _at(
            position,
            CorruptBatchError(
                f"the header says {header.max_timestamp} for the largest timestamp, the records' largest is {newest}"
            ),
        )


def _newest(section: Buffer, header: BatchHeader) -> int:
    """The largest timestamp of the records, in ms."""
    count = header.records_count
    last_delta, newest_ms = newest_record(section, count, header.base_timestamp)
    # Growing offsets that are as many as there are numbers up to the last: none is left out.
    if last_delta != header.last_offset_delta:
        raise CorruptBatchError(
            f"the last of {count} records has offset delta {last_delta}, the header says {header.last_offset_delta}"
        )
    return newest_ms


def _at(position: int, error: LogStoreError) -> LogStoreError:
    message = f"the batch at byte {position} does not hold what its header says: {error.message}"
    if isinstance(error, CorruptBatchError):
        return CorruptBatchError(message, hint=error.advice, position=position)
    return type(error)(message, hint=error.advice)
