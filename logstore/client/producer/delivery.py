"""``Delivery`` and ``DeliveryGroup``: what became of records that were sent.

A delivery is two slots, a view on its batch: no lock and no future per record. Asking for the result of a
record whose batch is still open sends that batch now.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from logstore.arguments import function_or_none, seconds_or_none
from logstore.client.producer.outcomes import (
    awaited,
    call_back,
    described,
    error_of,
    metadata_of,
    next_outcome,
    raisable,
)
from logstore.client.producer.pending import PartitionQueue, PendingBatch
from logstore.errors import DeliveryTimeoutError, LogStoreError
from logstore.native import compiled
from logstore.types import OffsetRange, RecordMetadata


@compiled("client.sending")
class Delivery:
    """One record's outcome. May be shared by threads."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PendingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether there is an outcome, good or bad. Never waits."""
        batch = self._batch
        return batch.done if batch.parts is None else batch.locate(self._index)[0].done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is; sends its batch now if that is still open.

        Raises the record's error if it failed, and DeliveryTimeoutError if there is no outcome within
        ``timeout_s`` (the record stays on its way). Without a timeout the producer's
        ``delivery_timeout_ms`` bounds the wait.
        """
        return metadata_of(self._batch, self._index, timeout_s)

    def exception(self, timeout_s: float | None = None) -> LogStoreError | None:
        """The record's error, None if it is in. Waits like ``result``."""
        return error_of(self._batch, self._index, timeout_s)

    def add_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Have ``callback(delivery)`` called once there is an outcome: now if there is one, else by the
        thread that brings it. It should be quick; what it raises is logged. A callback counts as having
        been told of an error."""
        function_or_none(callback, "callback")
        call_back(self._batch, self._index, partial(callback, self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """``await delivery`` in a coroutine of asyncio: as ``result``, without holding up the event loop.

        A task that is cancelled meanwhile gives up waiting and nothing else: the record stays on its way, the
        delivery may be awaited or asked again.
        """
        return awaited(self._batch, self._index)

    def __repr__(self) -> str:
        return described(self._batch, self._index)


@compiled("client.sending")
@dataclass(slots=True)
class Piece:
    """Rows [start, start + count) of a batch."""

    batch: PendingBatch
    start: int
    count: int


@compiled("client.sending")
def landed_ranges(pieces: list[Piece]) -> list[OffsetRange] | None:
    """The ranges of records that are all in, each with the batch that took it. None: some are not, or not so."""
    for piece in pieces:
        batch = piece.batch
        if not batch.done or batch.parts is not None or batch.error is not None:
            return None
    return list(_ranges(pieces))


class DeliveryGroup:
    """The outcome of one ``send_many``. ``len()`` gives its number of records."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return sum(piece.count for piece in self._pieces)

    def done(self) -> bool:
        return all(piece.batch.done for piece in self._leaves())

    def result(self, timeout_s: float | None = None) -> list[OffsetRange]:
        """The ranges of offsets that the records got, by partition and in order; adjacent ones are joined.

        Sends open batches now. If records failed, raises the first error, with a note of how many did.
        DeliveryTimeoutError if there is no outcome for all within ``timeout_s``.
        """
        timeout_s = seconds_or_none(timeout_s)
        found = landed_ranges(self._pieces)
        if found is None:
            self._wait(timeout_s)
            found = landed_ranges(self._pieces)
        if found is not None:
            return found
        leaves = list(self._leaves())
        failed = [piece for piece in leaves if piece.batch.error is not None]
        if failed:
            for piece in failed:
                piece.batch.observed = True
            error = raisable(failed[0].batch)
            lost = sum(piece.count for piece in failed)
            error.add_note(f"{lost} of the {len(self)} records of this send_many failed")
            raise error
        return list(_ranges(leaves))

    def __await__(self) -> Generator[Any, None, list[OffsetRange]]:
        """``await producer.send_many(...)``: as ``result``, see ``Delivery.__await__``."""
        batches = {id(piece.batch): piece.batch for piece in self._pieces}.values()
        for batch in batches:
            if not batch.done and batch.driver is not None:
                batch.driver.hurry(batch)  # all of them, so that they share calls of the backend
        while waiting := [piece for piece in self._leaves() if not piece.batch.done]:
            yield from next_outcome(waiting[0].batch, waiting[0].start)
        return self.result(0)

    def landed(self) -> list[OffsetRange]:
        """The ranges of those records that are in by now; also where others failed. Never waits."""
        return list(
            _ranges([piece for piece in self._leaves() if piece.batch.done and piece.batch.error is None])
        )

    def _wait(self, timeout_s: float | None) -> None:
        drivers = (piece.batch.driver for piece in self._leaves())
        driver = next((found for found in drivers if found is not None), None)
        if driver is None or driver.finish([piece.batch for piece in self._pieces], timeout_s):
            return
        raise DeliveryTimeoutError(
            f"no outcome within {timeout_s} s for all {len(self)} records of a send_many",
            hint="they are still on their way: ask again, or wait longer",
        )

    def _leaves(self) -> Iterator[Piece]:
        """The pieces by the batches that their rows really went with."""
        for piece in self._pieces:
            if piece.batch.parts is None:
                yield piece
                continue
            first, end = piece.start, piece.start + piece.count
            at = 0
            for leaf in piece.batch.leaves():
                low, high = max(first, at), min(end, at + leaf.count)
                if low < high:
                    yield Piece(leaf, low - at, high - low)
                at += leaf.count


def _ranges(pieces: list[Piece]) -> Iterator[OffsetRange]:
    """By partition; a partition's pieces are of one queue, and in order."""
    queue: PartitionQueue | None = None
    start = end = -1
    for piece in sorted(pieces, key=_partition_of):
        batch = piece.batch
        if batch.queue is not queue:
            if queue is not None:
                yield OffsetRange(queue.topic, queue.partition, start, end)
            queue, start, end = batch.queue, -1, -1
        if batch.base_offset < 0:
            continue
        at = batch.base_offset + piece.start
        if at != end:
            if end >= 0:
                yield OffsetRange(queue.topic, queue.partition, start, end)
            start = at
        end = at + piece.count
    if queue is not None:
        yield OffsetRange(queue.topic, queue.partition, start, end)


def _partition_of(piece: Piece) -> int:
    return piece.batch.queue.partition
