"""Sequences of a transactional producer: they begin at 0 with each transaction, which has an epoch of its own, and
no batch gets one before the coordinator knows, durably, that the transaction is in the batch's partition.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from logstore.api.producers import ProducerLease
from logstore.api.transactions import TransactionLease
from logstore.client.producer.pending import Identity, PendingBatch
from logstore.client.producer.sequences import SEQUENCE_MASK, Sequences
from logstore.errors import TransactionAbortedError, TransactionStateError
from logstore.types import TopicPartition


class TransactionSequences(Sequences):
    def __init__(self, lease: TransactionLease) -> None:
        super().__init__(_no_lease)
        self._transactions = lease
        self._adding = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """A transaction begins, under what the lease says now. The accumulator's lock is held, nothing flies."""
        lease = self._transactions
        self._current = Identity(lease.producer_id, lease.epoch, transactional=True)
        self._added: set[TopicPartition] = set()

    def prepare(self, batches: Sequence[PendingBatch], *, offsets: bool = False) -> None:
        """Errors of ``TransactionLease.add_partitions``: then nothing of the flight may go. ``offsets``: some will
        be sent, too."""
        added = self._added
        places = {TopicPartition(batch.queue.topic, batch.queue.partition) for batch in batches}
        if places <= added and not offsets:
            return
        with self._adding:
            fresh = places - added
            if fresh or offsets:
                self._transactions.add_partitions(fresh, offsets=offsets)
                added |= fresh

    def assign(self, batch: PendingBatch) -> int:
        identity = self._current
        if batch.done:
            # Given up on while this flight hung; its transaction may be over, and this one is not its own.
            raise TransactionAbortedError("the batch's transaction ended before it was sent")
        queue = batch.queue
        if queue.identity is not identity:
            queue.identity = identity
            queue.next_sequence = 0
        queue.spent = False
        batch.identity = identity
        batch.base_sequence = queue.next_sequence & SEQUENCE_MASK
        queue.next_sequence += batch.count
        return batch.count

    def release(self) -> None:
        self._transactions.release()


def _no_lease() -> ProducerLease:
    raise TransactionStateError("a transactional producer takes no other producer id")
