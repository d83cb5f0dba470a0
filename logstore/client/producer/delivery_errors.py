"""The errors of deliveries that did not get there in time, or of which the outcome is not known."""

from __future__ import annotations

from logstore.client.producer.pending import PartitionQueue, PendingBatch
from logstore.client.producer.settings import ProducerSettings
from logstore.errors import DeliveryTimeoutError, LogStoreError, OutcomeUnknownError


def doubt_error(queue: PartitionQueue, batch: PendingBatch) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{batch.count} records for {queue.topic}-{queue.partition}: the store's answer was lost, and the batch "
        "before them failed, so they cannot be sent again in order; they may be in or not",
        hint="read the end of the partition to see",
    )


def refused_in_doubt_error(batch: PendingBatch, refusal: LogStoreError) -> OutcomeUnknownError:
    """For records of which an earlier call's answer was lost, and that were refused when they were sent again."""
    queue = batch.queue
    return OutcomeUnknownError(
        f"{batch.count} records for {queue.topic}-{queue.partition}: the store's answer was lost, and sent again "
        f"they were refused: {refusal.message}; they may be in or not",
        hint=refusal.advice or "read the end of the partition to see",
    )


def timeout_error(
    queue: PartitionQueue, batch: PendingBatch, settings: ProducerSettings, *, flying: bool
) -> DeliveryTimeoutError:
    where = f"{batch.count} records for {queue.topic}-{queue.partition}"
    limit_ms = round(settings.delivery_timeout_s * 1000)
    if flying:
        return DeliveryTimeoutError(
            f"{where}: the store did not answer within delivery_timeout_ms={limit_ms}; they may be in or not",
            hint="read the end of the partition to see, then find out why the store hangs",
        )
    if batch.doubtful:
        where += " (the answer to an earlier attempt was lost: they may be in or not)"
    if batch.refusal is not None:
        return DeliveryTimeoutError(
            f"{where} were not accepted within delivery_timeout_ms={limit_ms} ({batch.attempts} attempts), "
            f"the last time because: {batch.refusal.message}",
            hint=batch.refusal.advice or "find out why the store refuses, or raise delivery_timeout_ms",
        )
    return DeliveryTimeoutError(
        f"{where} were not accepted within delivery_timeout_ms={limit_ms} ({batch.attempts} attempts)",
        hint="find out why the store refuses or is slow, or raise delivery_timeout_ms",
    )
