"""``Sequences``: the numbers that let a log tell a repeated batch from a new one.

A batch gets its producer id, epoch and sequence when it flies for the first time, and keeps them for every
retry. Per partition one flight is out at a time, and whoever has it alone touches the partition's numbers here;
what becomes of failed ones is the accumulator's to say, under its lock.

An unnamed producer meets a failed batch with a new epoch, in which a partition's sequences begin at 0 again,
so that a batch of doubtful outcome can never be taken for a later one. A named producer's numbers never begin
again: it stops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from logstore.api.producers import ProducerLease
from logstore.client.producer.pending import Identity, PartitionQueue, PendingBatch

SEQUENCE_BITS: Final = 31
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1


class Sequences:
    """``init_producer``: takes the lease, at the first batch; ``lease``: a named producer's, taken before.
    ``identity``: what new batches are sent under; None before the first, of a named producer, and of a transaction."""

    def __init__(
        self, init_producer: Callable[[], ProducerLease], lease: ProducerLease | None = None
    ) -> None:
        self._init_producer = init_producer
        self._lease = lease
        self._named = lease is not None and lease.name is not None
        self._guard = threading.Lock()  # of the lease, and of the identity made from it
        self.identity: Identity | None = None

    @property
    def lease(self) -> ProducerLease | None:
        return self._lease

    def prepare(self, batches: Sequence[PendingBatch]) -> None:
        """A flight begins; whatever must be true before its batches get numbers is made so."""

    def assign(self, batch: PendingBatch) -> int:
        """Give ``batch``, the next of its partition to fly, its numbers. Gives how many of its rows may fly:
        if not all, nothing was given, and the batch must be cut there first.

        Errors of the lease: what the catalogue or the log could not say or write; nothing was given then.
        """
        queue = batch.queue
        if self._named:
            return self._assign_named(batch, queue)
        identity = self.identity
        if identity is None or (identity is queue.identity and queue.spent):
            identity = self._renewed(identity)
        if identity is not queue.identity:
            queue.identity = identity
            queue.next_sequence = 0
        queue.spent = False
        batch.identity = identity
        batch.base_sequence = queue.next_sequence
        queue.next_sequence = (queue.next_sequence + batch.count) & SEQUENCE_MASK
        return batch.count

    def assign_at_once(self, batch: PendingBatch) -> bool:
        """``assign`` where nobody is to be asked for anything; False, with nothing given, where that is not sure."""
        identity, queue = self.identity, batch.queue
        if identity is None or identity is not queue.identity or queue.spent:
            return False
        batch.identity = identity
        batch.base_sequence = queue.next_sequence
        queue.next_sequence = (queue.next_sequence + batch.count) & SEQUENCE_MASK
        return True

    def _renewed(self, seen: Identity | None) -> Identity:
        """The next identity, unless another partition's flight has made one since ``seen``."""
        with self._guard:
            identity = self.identity
            if identity is not None and identity is not seen:
                return identity
            lease = self._lease
            if lease is None:
                lease = self._lease = self._init_producer()
            elif identity is not None:
                lease.bump()
            self.identity = identity = Identity(lease.producer_id, lease.epoch)
            return identity

    def _assign_named(self, batch: PendingBatch, queue: PartitionQueue) -> int:
        lease = self._lease
        if lease is None:
            lease = self._lease = self._init_producer()
        topic_id = queue.route.topic_id
        if queue.numbered_topic != topic_id:  # not met before, or made anew since
            queue.next_sequence = lease.last_sequence(queue.topic, queue.partition)
            queue.numbered_topic = topic_id
            queue.identity = None
        number = queue.next_sequence
        era, sequence = number >> SEQUENCE_BITS, number & SEQUENCE_MASK
        room = SEQUENCE_MASK + 1 - sequence
        if batch.count > room:
            return room
        if queue.identity is None or sequence == 0:
            queue.identity = Identity(lease.producer_id_of(era), lease.epoch)
        batch.identity = queue.identity
        batch.base_sequence = sequence
        queue.next_sequence = number + batch.count
        return batch.count

    def release(self) -> None:
        """The producer is done: its name is free for others."""
        if self._lease is not None:
            self._lease.release()
