"""``ProducerLease`` of the embedded store: under which ids and epochs a producer's batches travel.

A named producer is held by one opener at a time, by a lock of its name that the system frees when its process
ends, however that ends. An unnamed one has an id of its own, and epochs that live in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from logstore.directory.named_producers import LAST_EPOCH, NamedProducer, validate_producer_name
from logstore.directory.producer_ids import ProducerIds
from logstore.errors import InvalidArgumentError, ProducerBusyError
from logstore.ownership.lock import LockHolder
from logstore.ownership.name_lock import holder_of, lock_of
from logstore.partition.context import StoreContext
from logstore.partition.topic_registry import TopicRegistry

_MEMORY_SLOTS: Final = 1 << 61  # beside those of group members

LastSequences = Callable[[str, int, tuple[int, ...]], Mapping[int, int]]
"""(topic, partition, ids) -> the last sequence that the partition's log remembers of those it knows."""


class UnnamedLease:
    """A producer that begins anew with each batch that fails. Thread-safe."""

    name = None

    def __init__(self, ids: ProducerIds) -> None:
        self._ids = ids
        self.producer_id = ids.take()
        self.epoch = 0

    def producer_id_of(self, era: int) -> int:
        del era  # its sequences wrap
        return self.producer_id

    def bump(self) -> None:
        """The next epoch; a new id when the 16 bits end. Errors as for ``ProducerIds.take``."""
        if self.epoch < LAST_EPOCH:
            self.epoch += 1
        else:
            self.producer_id, self.epoch = self._ids.take(), 0

    def last_sequence(self, topic: str, partition: int) -> int:
        raise InvalidArgumentError(
            f"last_sequence({topic!r}, {partition}): this producer has no name, so nothing of it is remembered",
            hint='give it one: store.producer(name="import")',
        )

    def spread(self, topic: str) -> int:
        return self.last_sequence(topic, 0)

    def release(self) -> None:
        """Nothing is held: the id is never handed out again."""


class NamedLease:
    """A named producer, from its construction to ``release`` exclusively ours. Thread-safe.

    ProducerBusyError names who holds the name; InvalidArgumentError for a name that cannot be.
    """

    def __init__(
        self, context: StoreContext, registry: TopicRegistry, name: str, last_sequences: LastSequences
    ) -> None:
        self._hold = ProducerHold(context, name)
        self._registry = registry
        self._last_sequences = last_sequences
        self._guard = threading.Lock()
        self.name = name
        try:
            catalogue = registry.change_producers(lambda catalogue: catalogue.with_opened_producer(name))
        except BaseException:
            self._hold.release()
            raise
        self._entry: NamedProducer = catalogue.producer(name)
        self.epoch = self._entry.epoch
        self.producer_id = self.producer_id_of(0)

    def producer_id_of(self, era: int) -> int:
        """The id for records ``era`` << 31 and on; a new one is durable before it is given."""
        self._hold.check()
        with self._guard:
            known = self._entry.id_of(era)
            if known is not None:
                return known
            changed = self._registry.change_producers(
                lambda catalogue: catalogue.with_producer_id(self.name, era)
            )
            self._entry = changed.producer(self.name)
            made = self._entry.id_of(era)
            if made is None or self._entry.epoch != self.epoch:
                raise ProducerBusyError(f"producer {self.name!r} was opened anew elsewhere")
            return made

    def bump(self) -> None:
        raise InvalidArgumentError(
            f"producer {self.name!r} has a name: its sequences go on, and never restart"
        )

    def last_sequence(self, topic: str, partition: int) -> int:
        """How many records of the name are in the partition, durably. Takes the topic."""
        self._hold.check()
        entry = self._entry
        ids = tuple(row.producer_id for row in entry.ids)
        return entry.records_in(self._last_sequences(topic, partition, ids))

    def spread(self, topic: str) -> int:
        """Over how many of the topic's partitions the name deals rows: those it had at the first call, ever."""
        changed = self._registry.change_producers(lambda catalogue: catalogue.with_spread(self.name, topic))
        return changed.producer(self.name).spread[changed.topic(topic).topic_id]

    def release(self) -> None:
        self._hold.release()


class ProducerHold:
    """A producer's name, held from its construction to ``release``."""

    def __init__(self, context: StoreContext, name: str) -> None:
        validate_producer_name(name)
        context.check_writable()
        self._locks, self._slot, self._close = lock_of(context, "producer", name, _MEMORY_SLOTS)
        self._held = self._locks.try_acquire(self._slot)
        if not self._held:
            holder = self._locks.holder(self._slot)
            self._close()
            who = "another producer" if holder is None else holder.describe()
            raise ProducerBusyError(f"producer {name!r} is open: {who}")

    def check(self) -> None:
        """LockLostError if another producer may have opened the name: the lock's file was removed."""
        self._locks.check(now=True)

    def release(self) -> None:
        if self._held:
            self._held = False
            self._locks.release(self._slot)
            self._close()


def producer_holder(context: StoreContext, name: str) -> LockHolder | None:
    """The process that has the name open now; None: there is none."""
    return holder_of(context, "producer", name, _MEMORY_SLOTS)
