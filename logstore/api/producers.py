"""The identity under which a producer's batches travel, and what is known of named producers."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ProducerLease(Protocol):
    """Under which ids and epochs a producer's batches travel; its own until ``release``. Thread-safe.

    ``name`` None: an id that no other producer has or will have. A named producer's records in a partition are
    numbered from 0 on, for ever: record n travels under ``producer_id_of(n >> 31)`` with sequence
    n & 0x7fffffff, and the numbers go on where an earlier opening of the name left them.
    """

    @property
    def name(self) -> str | None: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    def producer_id_of(self, era: int) -> int:
        """The id for sequences of this era (unnamed: always the same, its sequences wrap)."""
        ...

    def bump(self) -> None:
        """Unnamed: the next epoch, with a new id where the 16 bits end; sequences begin at 0 again."""
        ...

    def last_sequence(self, topic: str, partition: int) -> int:
        """Named: how many records of the name are in the partition's log, durably."""
        ...

    def spread(self, topic: str) -> int:
        """Named: over how many partitions an import under this name deals the topic's rows; noted durably at
        the first call, so that partitions added later do not move its rows."""
        ...

    def release(self) -> None:
        """Let others open the name. Safe to call again."""
        ...


class ProducerSummary(NamedTuple):
    """A named producer. ``producer_ids``: all it ever had; ``holder``: the process that has it open, or None."""

    name: str
    producer_ids: tuple[int, ...]
    epoch: int
    holder: str | None
