"""The outcome of a record by its batch and its index there: what both twins of ``Delivery`` are made of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from typing import Any, cast

from logstore.arguments import seconds_or_none
from logstore.client.producer.pending import PendingBatch
from logstore.errors import DeliveryTimeoutError, LogStoreError
from logstore.invariants import invariant
from logstore.types import RecordMetadata


def metadata_of(
    batch: PendingBatch, index: int, timeout_s: float | None, left_s: float | None = None
) -> RecordMetadata:
    """See ``Delivery.result``. ``left_s``: what is left of the timeout, if that is not all of it."""
    batch, index = _outcome(batch, index, timeout_s, left_s)
    if batch.error is not None:
        raise raisable(batch)
    queue = batch.queue
    offset = batch.base_offset + index if batch.base_offset >= 0 else -1
    return RecordMetadata(queue.topic, queue.partition, offset, batch.timestamp_of(index))


def error_of(batch: PendingBatch, index: int, timeout_s: float | None) -> LogStoreError | None:
    """See ``Delivery.exception``."""
    batch, _ = _outcome(batch, index, timeout_s)
    return None if batch.error is None else raisable(batch)


def call_back(batch: PendingBatch, index: int, callback: Callable[[], object]) -> None:
    """See ``Delivery.add_callback``."""
    driver = batch.driver

    def call() -> None:
        leaf, _ = batch.locate(index)
        leaf.observed = True
        callback()

    if driver is None or not driver.attach(batch, index, call):
        call()


def awaited(batch: PendingBatch, index: int) -> Generator[Any, None, RecordMetadata]:
    """See ``Delivery.__await__``."""
    while not batch.locate(index)[0].done:
        yield from next_outcome(*batch.locate(index))
    return metadata_of(batch, index, 0)


def described(batch: PendingBatch, index: int) -> str:
    batch, index = batch.locate(index)
    where = f"{batch.queue.topic}-{batch.queue.partition}"
    if not batch.done:
        return f"<Delivery to {where}: on its way>"
    if batch.error is not None:
        return f"<Delivery to {where}: failed: {batch.error}>"
    return f"<Delivery to {where}: offset {batch.base_offset + index if batch.base_offset >= 0 else -1}>"


def _outcome(
    batch: PendingBatch, index: int, timeout_s: float | None, left_s: float | None = None
) -> tuple[PendingBatch, int]:
    batch, index = batch.locate(index)
    driver = batch.driver
    if batch.done or driver is None:
        return batch.locate(index)
    outcome = driver.drive(batch, index, seconds_or_none(timeout_s) if left_s is None else left_s)
    if outcome is None:
        raise DeliveryTimeoutError(
            f"no outcome within {timeout_s} s for a record sent to {batch.queue.topic}-{batch.queue.partition}",
            hint="it is still on its way: ask again, or wait longer",
        )
    return outcome


def next_outcome(batch: PendingBatch, index: int) -> Generator[Any, None, None]:
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
