"""`%020d.txnindex`: the transactions whose abort marker lies in a segment, so that readers can leave them out.

    version i16 = 0 | producerId i64 | firstOffset i64 | lastOffset i64 | lastStableOffset i64

``firstOffset`` may lie in an earlier segment; ``lastOffset`` is the marker's; ``lastStableOffset`` is what it
was when the transaction had ended (Kafka's TransactionIndex, KIP-98). Rows are in the order of their markers.
A segment without aborted transactions has no such file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from logstore.errors import CorruptBatchError
from logstore.seams.fs import FileSystem, read_file

SUFFIX = ".txnindex"
ROW = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """Data batches of ``producer_id`` with offsets in [first_offset, last_offset] do not count."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_rows(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join([ROW.pack(VERSION, *transaction) for transaction in transactions])


def decode_rows(
    data: bytes, path: str, base_offset: int, before: int | None = None
) -> list[AbortedTransaction]:
    """The rows of a file of the segment at ``base_offset``; a last row that is not all there yet is left out
    (its writer is about to finish it). CorruptBatchError names the row that cannot be one.

    ``before``: only the rows of markers before that offset, which are durable; what follows them may be
    anything after a power loss, and ends the list.
    """
    rows: list[AbortedTransaction] = []
    newest = base_offset - 1
    for number, (version, *fields) in enumerate(ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size])):
        row = AbortedTransaction(*fields)
        if before is not None and (version != VERSION or not newest < row.last_offset < before):
            break
        if (
            version != VERSION
            or row.producer_id < 0
            or not 0 <= row.first_offset <= row.last_offset
            or row.last_offset <= newest
        ):
            position = number * ROW.size
            raise CorruptBatchError(
                f"{path} at byte {position}: version {version}, {row} is no row of a transaction index",
                path=path,
                position=position,
            )
        newest = row.last_offset
        rows.append(row)
    return rows


def read_rows(
    fs: FileSystem, path: str, base_offset: int, before: int | None = None, *, whole: bool = False
) -> list[AbortedTransaction]:
    """The rows in the file at ``path``; none if there is no file. ``whole``: nobody appends to it any more, so
    its last row has to be all there. CorruptBatchError, OSError."""
    try:
        data = read_file(fs, path)
    except FileNotFoundError:
        return []
    if whole and len(data) % ROW.size:
        raise CorruptBatchError(
            f"{path}: {len(data)} bytes are no whole number of rows of a transaction index ({ROW.size} each)",
            path=path,
            position=len(data) - len(data) % ROW.size,
        )
    return decode_rows(data, path, base_offset, before)
