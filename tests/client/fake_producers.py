"""What a log remembers of producers, and their leases, in memory: the rules that the engine follows, too."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logstore.directory.named_producers import LAST_EPOCH, NamedProducer
from logstore.errors import (
    DuplicateSequenceError,
    LogStoreError,
    OutOfOrderSequenceError,
    ProducerBusyError,
    ProducerFencedError,
)
from logstore.format.batch import BatchHeader

if TYPE_CHECKING:
    from tests.client.fake_backend import FakeBackend

MASK = 0x7FFFFFFF


@dataclass
class FakeEntry:
    """``batches``: the last five, as (first sequence, last sequence, base offset)."""

    epoch: int
    last_sequence: int = -1
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


class FakeStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self.entries: dict[int, FakeEntry] = {}

    def known(self, header: BatchHeader) -> int | None:
        """The base offset of a batch that is in already; None: it is new. Refusals are raised."""
        if header.producer_id < 0:
            return None
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        base, last = header.base_sequence, last_sequence_of(header)
        expected = (entry.last_sequence + 1) & MASK
        if header.producer_epoch < entry.epoch:
            raise ProducerFencedError(
                "an older epoch", expected_epoch=entry.epoch, found_epoch=header.producer_epoch
            )
        if header.producer_epoch > entry.epoch:
            if base in (0, expected):
                return None
            raise OutOfOrderSequenceError("a new epoch", expected_sequence=0, found_sequence=base)
        for known_base, known_last, offset in entry.batches:
            if (known_base, known_last) == (base, last):
                return offset
        if base == expected:
            return None
        if (entry.last_sequence - last) & MASK < 1 << 30:
            raise DuplicateSequenceError(f"sequence {base} is in, but not remembered")
        raise OutOfOrderSequenceError("a gap", expected_sequence=expected, found_sequence=base)

    def note(self, header: BatchHeader, offset: int) -> None:
        if header.producer_id < 0:
            return
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self.entries[header.producer_id] = FakeEntry(header.producer_epoch)
        entry.last_sequence = last_sequence_of(header)
        entry.batches.append((header.base_sequence, entry.last_sequence, offset))

    def forget_all_but_last(self) -> None:
        """What a reload from a snapshot does."""
        for entry in self.entries.values():
            entry.batches = deque(list(entry.batches)[-1:], maxlen=5)


def last_sequence_of(header: BatchHeader) -> int:
    return (header.base_sequence + header.records_count - 1) & MASK


class FakeLease:
    """``faults``: what the next ``bump`` or new id meets."""

    def __init__(self, backend: FakeBackend, name: str | None) -> None:
        self._backend = backend
        self.name = name
        self.epoch = 0
        self.producer_id = -1
        self.bumps = 0
        self.faults: deque[LogStoreError] = deque()
        if name is None:
            self.producer_id = backend.take_producer_id()
            return
        if name in backend.holders:
            raise ProducerBusyError(f"producer {name!r} is open: {backend.holders[name]}")
        backend.holders[name] = "pid 1 on here (test)"
        entry = backend.producers.get(name) or NamedProducer(name=name)
        backend.producers[name] = entry.reopened()
        self.epoch = backend.producers[name].epoch
        self.producer_id = self.producer_id_of(0)

    def producer_id_of(self, era: int) -> int:
        if self.name is None:
            return self.producer_id
        entry = self._backend.producers[self.name]
        found = entry.id_of(era)
        if found is None:
            if self.faults:
                raise self.faults.popleft()
            found = self._backend.take_producer_id()
            self._backend.producers[self.name] = entry.with_id(era, found)
        return found

    def bump(self) -> None:
        assert self.name is None
        if self.faults:
            raise self.faults.popleft()
        self.bumps += 1
        if self.epoch < LAST_EPOCH:
            self.epoch += 1
        else:
            self.producer_id, self.epoch = self._backend.take_producer_id(), 0

    def last_sequence(self, topic: str, partition: int) -> int:
        assert self.name is not None
        entries = self._backend.log(topic, partition).producers.entries
        known = {producer_id: entry.last_sequence for producer_id, entry in entries.items()}
        return self._backend.producers[self.name].records_in(known)

    def spread(self, topic: str) -> int:
        assert self.name is not None
        entry = self._backend.producers[self.name]
        of = self._backend.topic(topic)
        if of.topic_id not in entry.spread:
            entry = entry.with_spread(of.topic_id, of.partitions, [])
            self._backend.producers[self.name] = entry
        return entry.spread[of.topic_id]

    def release(self) -> None:
        if self.name is not None:
            self._backend.holders.pop(self.name, None)
