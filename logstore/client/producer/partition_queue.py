"""``PartitionQueue``: one partition's batches on their way, and what is said of those that did not get there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from logstore.client.producer.settings import ProducerSettings
from logstore.errors import DeliveryTimeoutError, OutcomeUnknownError

if TYPE_CHECKING:
    from logstore.client.producer.pending import PendingBatch
    from logstore.client.producer.route import TopicRoute
    from logstore.client.producer.sequences import Identity


class PartitionQueue:
    """The batches of one partition. ``flying``: those in the backend's hands now, in order.

    ``identity``, ``next_sequence``, ``numbered_topic``: see ``sequences``, the flight's holder alone touches
    them. ``spent``: a batch with a sequence has failed, so the next one needs an identity other than this.
    """

    __slots__ = (
        "closed",
        "flying",
        "identity",
        "next_sequence",
        "numbered_topic",
        "open",
        "partition",
        "retry_at_s",
        "route",
        "spent",
        "topic",
    )

    def __init__(self, route: TopicRoute, partition: int) -> None:
        self.route = route
        self.topic = route.name
        self.partition = partition
        self.open: PendingBatch | None = None
        self.closed: deque[PendingBatch] = deque()
        self.flying: tuple[PendingBatch, ...] = ()
        self.retry_at_s = 0.0
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.numbered_topic = ""
        self.spent = False

    def head(self) -> PendingBatch | None:
        """The next batch to fly."""
        return self.closed[0] if self.closed else self.open

    def batches(self) -> Iterator[PendingBatch]:
        """All that are not done, in order."""
        yield from self.flying
        yield from self.closed
        if self.open is not None:
            yield self.open

    @property
    def is_empty(self) -> bool:
        return self.open is None and not self.closed and not self.flying


def doubt_error(queue: PartitionQueue, batch: PendingBatch) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{batch.count} records for {queue.topic}-{queue.partition}: the store's answer was lost, and the batch "
        "before them failed, so they cannot be sent again in order; they may be in or not",
        hint="read the end of the partition to see",
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
