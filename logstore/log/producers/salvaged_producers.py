"""What the batches of a salvaged partition say of producers: aborted transactions, and ids that are taken.

A copy without its transaction indexes would show aborted records as committed, and an id that is handed out a second
time would have new batches taken for old ones.
"""

from __future__ import annotations

from typing import Final

from logstore.errors import from_os_error
from logstore.format.batch import BatchHeader
from logstore.log.producers.producer_replay import ProducerReplay
from logstore.log.producers.producer_state import FIRST_NAMED_ID, ProducerStates
from logstore.log.producers.row_counts import note_counts
from logstore.log.producers.transaction_index import SUFFIX, encode_rows
from logstore.seams.fs import FileSystem, replace_file
from logstore.types import Buffer

_LARGEST: Final = FIRST_NAMED_ID // 2  # an id past that was made up by whoever appended the batch


class SalvagedProducers:
    """``take`` every batch that was copied, in order, then ``write``. ``next_id``: above each id that a store may
    have handed out; 0 if there is none."""

    def __init__(self, start_offset: int) -> None:
        self.next_id = 0
        self._replay = ProducerReplay(ProducerStates(), start_offset)

    def take(self, segment_base: int, header: BatchHeader, data: Buffer) -> None:
        """``segment_base``: of the new segment that holds it."""
        if header.producer_id < 0:
            return
        self._replay.take(segment_base, header, data)
        number = header.producer_id % FIRST_NAMED_ID
        if number < _LARGEST:
            self.next_id = max(self.next_id, number + 1)

    @property
    def first_open_offset(self) -> int | None:
        """Where a transaction begins whose end was not copied."""
        return min(self._replay.states.open_transactions().values(), default=None)

    def write(self, fs: FileSystem, folder: str) -> None:
        """The transaction indexes, durable but for their names. StorageError, DiskFullError."""
        for base, rows in self._replay.aborted.items():
            path = f"{folder}/{base:020d}{SUFFIX}"
            try:
                replace_file(fs, path, encode_rows(rows))
                note_counts(fs, folder, {base: len(rows)})
            except OSError as error:
                raise from_os_error(error, "write", path) from error
