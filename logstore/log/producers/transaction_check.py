"""What a transaction index has to say, found from the batches: for `logstore log verify`.

A reader takes aborted records for committed ones where their row is missing, and nothing else in the log would tell:
so each abort marker whose data is still there must have its row. Rows without data are left by compaction.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.errors import LogStoreError, from_os_error
from logstore.format.batch import BatchHeader
from logstore.log.producers import transaction_index
from logstore.log.producers.producer_replay import marker_of
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.seams.fs import FileSystem
from logstore.types import Buffer

Finding = tuple[str, int, str, str]  # path, position (-1: the whole file), kind, text


class TransactionCheck:
    """``see`` the batches of a partition in order, ``finish`` after each segment."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._open: dict[int, int] = {}  # producer id -> first offset of data whose marker is to come
        self._due: list[AbortedTransaction] = []

    def see(self, header: BatchHeader, data: Buffer) -> None:
        """One sound batch. CorruptBatchError if it is a marker that cannot be read."""
        if not header.is_control:
            if header.is_transactional and header.records_count:
                self._open.setdefault(header.producer_id, header.base_offset)
            return
        marker = marker_of(data, header) if header.records_count else None
        if marker is None:
            return
        first = self._open.pop(marker.producer_id, None)
        if first is not None and not marker.committed:
            self._due.append(AbortedTransaction(marker.producer_id, first, header.last_offset, -1))

    def lose_track(self) -> None:
        """A bad span: a marker may have been in it."""
        self._open.clear()

    def finish(self, base_offset: int) -> Iterator[Finding]:
        """What is wrong with the index of the segment that was seen last."""
        due, self._due = self._due, []
        path = f"{self._directory}/{base_offset:020d}{transaction_index.SUFFIX}"
        try:
            rows = transaction_index.read_rows(self._fs, path, base_offset, whole=True)
        except LogStoreError as error:
            yield path, getattr(error, "position", -1), "transactions", error.message
            return
        except OSError as error:
            yield path, -1, "transactions", from_os_error(error, "read", path).message
            return
        known = {(row.producer_id, row.last_offset): row.first_offset for row in rows}
        for want in due:
            found = known.get((want.producer_id, want.last_offset))
            if found is None or found > want.first_offset:
                text = (
                    f"no row for the transaction of producer {want.producer_id} that was aborted at offset "
                    f"{want.last_offset}: readers take its records from offset {want.first_offset} on for committed"
                )
                yield path, -1, "transactions", text
