"""``Delivery`` and ``DeliveryGroup``: what became of records that were sent.

A delivery is two slots, a view on its batch: no lock and no future per record. Asking for the result of a
record whose batch is still open sends that batch now.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

from logstore.arguments import function_or_none, seconds_or_none
from logstore.client.producer.pending import PendingBatch
from logstore.errors import DeliveryTimeoutError, LogStoreError
from logstore.invariants import invariant
from logstore.types import OffsetRange, RecordMetadata


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
        batch, index = self._outcome(timeout_s)
        if batch.error is not None:
            raise raisable(batch)
        queue = batch.queue
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        return RecordMetadata(queue.topic, queue.partition, offset, batch.timestamp_of(index))

    def exception(self, timeout_s: float | None = None) -> LogStoreError | None:
        """The record's error, None if it is in. Waits like ``result``."""
        batch, _ = self._outcome(timeout_s)
        return None if batch.error is None else raisable(batch)

    def add_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Have ``callback(delivery)`` called once there is an outcome: now if there is one, else by the
        thread that brings it. It should be quick; what it raises is logged. A callback counts as having
        been told of an error."""
        function_or_none(callback, "callback")
        driver = self._batch.driver

        def call() -> None:
            batch, _ = self._batch.locate(self._index)
            batch.observed = True
            callback(self)

        if driver is None or not driver.attach(self._batch, self._index, call):
            call()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """``await delivery`` in a coroutine of asyncio: as ``result``, without holding up the event loop.

        A task that is cancelled meanwhile gives up waiting and nothing else: the record stays on its way, the
        delivery may be awaited or asked again.
        """
        while not self.done():
            yield from _next_outcome(*self._batch.locate(self._index))
        return self.result(0)

    def _outcome(self, timeout_s: float | None) -> tuple[PendingBatch, int]:
        batch, index = self._batch.locate(self._index)
        driver = batch.driver
        if batch.done or driver is None:
            return batch.locate(index)
        outcome = driver.drive(batch, index, seconds_or_none(timeout_s))
        if outcome is None:
            raise DeliveryTimeoutError(
                f"no outcome within {timeout_s} s for a record sent to "
                f"{batch.queue.topic}-{batch.queue.partition}",
                hint="it is still on its way: ask again, or wait longer",
            )
        return outcome

    def __repr__(self) -> str:
        batch, index = self._batch.locate(self._index)
        where = f"{batch.queue.topic}-{batch.queue.partition}"
        if not batch.done:
            return f"<Delivery to {where}: on its way>"
        if batch.error is not None:
            return f"<Delivery to {where}: failed: {batch.error}>"
        return f"<Delivery to {where}: offset {batch.base_offset + index if batch.base_offset >= 0 else -1}>"


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows [start, start + count) of a batch."""

    batch: PendingBatch
    start: int
    count: int


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
        self._wait(timeout_s)
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
            yield from _next_outcome(waiting[0].batch, waiting[0].start)
        return self.result(0)

    def landed(self) -> list[OffsetRange]:
        """The ranges of those records that are in by now; also where others failed. Never waits."""
        return list(
            _ranges([piece for piece in self._leaves() if piece.batch.done and piece.batch.error is None])
        )

    def _wait(self, timeout_s: float | None) -> None:
        timeout_s = seconds_or_none(timeout_s)
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
    def where(piece: Piece) -> tuple[str, int]:
        return piece.batch.queue.topic, piece.batch.queue.partition

    for (topic, partition), group in groupby(sorted(pieces, key=where), key=where):
        start = end = -1
        for piece in group:
            batch = piece.batch
            if batch.base_offset < 0:
                continue
            at = batch.base_offset + piece.start
            if at != end and end >= 0:
                yield OffsetRange(topic, partition, start, end)
            if at != end:
                start = at
            end = at + piece.count
        yield OffsetRange(topic, partition, start, end)


def _next_outcome(batch: PendingBatch, index: int) -> Generator[Any, None, None]:
    """Wait in asyncio's event loop until the row at ``index`` has an outcome, or its batch was cut in two."""
    import asyncio  # by then the caller has

    driver = batch.driver
    if batch.done or driver is None:
        return
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()

    def tell() -> None:
        try:
            loop.call_soon_threadsafe(_settle, arrived)
        except RuntimeError:
            pass  # the loop was closed meanwhile: no task waits any more

    if driver.attach(batch, index, tell):
        driver.hurry(batch)
        yield from arrived


def _settle(arrived: Any) -> None:
    if not arrived.done():  # else its task was cancelled
        arrived.set_result(None)


def raisable(batch: PendingBatch) -> LogStoreError:
    """A copy of the failed batch's error: one object raised by many threads would pile up tracebacks."""
    invariant(batch.error is not None, "only a failed batch has an error")
    batch.observed = True
    return cast(LogStoreError, copy.copy(batch.error))
