"""A log's producers in the process that writes it: their state beside the appends, and its snapshots on disk.

The log's lock guards the state; ``first_unstable`` is read without it. A snapshot is written at every roll and
checkpoint at which some producer has state, always of an offset up to which the log is synced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from logstore.errors import TransactionStateError, from_os_error
from logstore.format.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from logstore.log.append_validation import CheckedBatch
from logstore.log.log_offsets import Appended
from logstore.log.producers.producer_recovery import RecoveredProducers
from logstore.log.producers.producer_replay import marker_of
from logstore.log.producers.producer_snapshot import SUFFIX, encode_snapshot
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment import Segment, file_name
from logstore.seams.fs import replace_file
from logstore.types import Buffer

_MANY_BYTES: Final = 1 << 62


class Pending(NamedTuple):
    """A snapshot of ``offset``, taken and not on disk yet; ``content`` None: no producer has state there."""

    offset: int
    content: bytes | None


class ProducerJournal:
    def __init__(
        self,
        pool: FilePool,
        directory: str,
        where: str,
        loaded: RecoveredProducers,
        now_ms: Callable[[], int],
        high_watermark: int,
    ) -> None:
        self._pool = pool
        self._directory = directory
        self._where = where
        self._now_ms = now_ms
        self._expired = False  # since the last snapshot, which says more than there is
        # Bytes of producers' batches that no snapshot tells of; how many before this process began is not known.
        self._untold_bytes = _MANY_BYTES if len(loaded.states) else 0
        self.states = loaded.states
        self.no_producers_at = loaded.no_producers_at
        self._snapshots = set(loaded.snapshots)
        self._files = (
            threading.Lock()
        )  # a checkpoint's snapshot is written beside appends, and so beside rolls
        self.first_unstable: int | None = self.states.first_unstable(high_watermark)

    def replace(self, loaded: RecoveredProducers, high_watermark: int) -> None:
        """The log was cut, or filled anew: take what is true of it now."""
        self.states = loaded.states
        self._untold_bytes = _MANY_BYTES
        self.no_producers_at = loaded.no_producers_at
        self._snapshots = set(loaded.snapshots)
        self.first_unstable = self.states.first_unstable(high_watermark)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer (read it, do not keep it); None: nothing."""
        return self.states.entry(producer_id)

    def knows_epoch(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer was here under this epoch or a newer one."""
        entry = self.states.entry(producer_id)
        return entry is not None and entry.epoch >= epoch

    def check_open(self, producer_id: int, start_offset: int) -> None:
        """``TransactionStateError`` unless the producer's open transaction begins there."""
        if self.states.open_transactions().get(producer_id) != start_offset:
            raise TransactionStateError(
                f"{self._where}: no transaction of producer {producer_id} is open since offset {start_offset}",
                hint="look again: logstore transaction find-hanging",
            )

    # --- beside appends, under the log's lock ---

    def repeated(self, batches: Sequence[CheckedBatch]) -> tuple[int, Appended] | None:
        """How many of the batches, from the first on, are stored already, and where; None: none is.

        Errors: see ``ProducerStates.repeated``; nothing may be appended then.
        """
        found = self.states.repeated([batch.header for batch in batches], self._where)
        if not found:
            return None
        return len(found), Appended(found[0].base_offset, found[-1].last_offset + 1)

    def repeated_one(self, header: BatchHeader) -> Appended | None:
        """``repeated`` for a producer's batch that comes alone: where it is stored already."""
        found = self.states.repeated_one(header, self._where)
        return None if found is None else Appended(found.base_offset, found.last_offset + 1)

    def aborted_by(self, batch: CheckedBatch, offset: int) -> AbortedTransaction | None:
        """The row that a control batch, next at ``offset``, adds to the transaction index."""
        marker = marker_of(batch.data, batch.header)
        return None if marker is None else self.states.aborted_by(marker, offset)

    def note(self, header: BatchHeader, data: Buffer, offset: int) -> None:
        """A producer's batch is in the log at ``offset``."""
        self._untold_bytes += header.size
        attributes = header.attributes
        if not attributes & CONTROL_BIT:
            self.states.note(header, offset, self._now_ms())
            if attributes & TRANSACTIONAL_BIT and self.first_unstable is None:
                self.first_unstable = offset
            return
        marker = marker_of(data, header)
        if marker is not None:
            self.states.note_marker(marker, offset, self._now_ms())

    def check_marker(self, marker: Marker) -> None:
        self.states.check_marker(marker, self._where)

    def settle(self, high_watermark: int) -> None:
        """Readers may see up to ``high_watermark`` now: transactions that end below it are stable."""
        if self.first_unstable is not None:
            self.first_unstable = self.states.first_unstable(high_watermark)

    # --- snapshots ---

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers as ``ProducerStates.expire``; how many. Under the log's lock."""
        gone = self.states.expire(now_ms, expiration_ms)
        self._expired = self._expired or gone > 0
        return gone

    def take(self, offset: int, *, few_bytes: int = 0) -> Pending | None:
        """The state now, at the log's end ``offset``, for ``store``; None: it is on disk, or there are fewer than
        ``few_bytes`` of batches behind the newest snapshot, which are as well read again when the log is opened after a
        crash. Under the log's lock."""
        if not len(self.states):
            self._expired = False
            return Pending(offset, None)
        if self.is_told(offset, few_bytes):
            return None
        self._expired, self._untold_bytes = False, 0
        return Pending(offset, encode_snapshot(self.states))

    def is_told(self, offset: int, few_bytes: int) -> bool:
        """Whether ``take`` gives None, or nothing that needs a snapshot."""
        told = offset in self._snapshots or self._untold_bytes < few_bytes or not len(self.states)
        return told and not self._expired

    def store(self, pending: Pending | None, bases: Iterable[int]) -> None:
        """Make it durable; the log is synced that far. Snapshots that are neither the newest nor at the base
        of a segment go. Raises the named error of the disk's."""
        if pending is None:
            return
        with self._files:
            if pending.content is None:
                self.no_producers_at = max(self.no_producers_at, pending.offset)
                if not self._snapshots:
                    return
            try:
                if pending.content is not None:
                    replace_file(self._pool.fs, self._path(pending.offset), pending.content)
                    self._snapshots.add(pending.offset)
                keep = {*bases, max(self._snapshots)}
                if pending.content is None:
                    keep.discard(pending.offset)  # it tells of producers that have expired since
                self._drop_old(keep)
            except OSError as error:
                raise from_os_error(error, "write a producer snapshot of", self._directory) from error

    def _drop_old(self, keep: set[int]) -> None:
        for offset in sorted(self._snapshots - keep):
            try:
                self._pool.fs.remove(self._path(offset))
            except FileNotFoundError:
                pass  # it went with its segment
            self._snapshots.discard(offset)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, SUFFIX)}"


def write_aborted(segment: Segment, row: AbortedTransaction | None) -> None:
    """Before its marker: no reader may meet the marker and not the row."""
    if row is not None:
        try:
            segment.append_aborted(row)
        except OSError as error:
            raise from_os_error(error, "write the transaction index of", segment.path()) from error
