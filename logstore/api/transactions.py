"""Transactional ids as clients hold and administrators see them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

from logstore.api.groups import MemberIdentity
from logstore.errors import LogStoreError
from logstore.types import OffsetAndMetadata, TopicPartition

MAX_TIMEOUT_MS: Final = 24 * 60 * 60 * 1000
"""The longest ``transaction_timeout_ms``."""


class TransactionLease(Protocol):
    """A transactional id, its own until ``release`` or until another opening fences it. Thread-safe.

    ``producer_id``, ``epoch``: what the batches of the transaction under way carry; they change between two.
    Each method may raise ProducerFencedError (a newer opening has the id: this one is over) and, but for
    ``begin`` and ``release``, TransactionTimedOutError (the coordinator aborted the transaction).
    """

    @property
    def transactional_id(self) -> str: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    def begin(self) -> None:
        """Be ready for the next transaction: whatever the last one left open is finished first."""
        ...

    def add_partitions(self, places: Collection[TopicPartition], *, offsets: bool = False) -> None:
        """Durable when it returns: only then a batch of the transaction may go to these partitions. ``offsets``:
        and offsets to their log, so that the first ``send_offsets`` needs no step of its own."""
        ...

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None = None,
    ) -> None:
        """Offsets that count once the transaction is committed. ``member``: who commits in the group.
        Errors as for ``Backend.commit_offsets``."""
        ...

    def end(self, *, commit: bool) -> None:
        """Everything that was sent must be durable before. Returns when every partition shows the outcome.

        A commit that raises OutcomeUnknownError may have been decided: call again with ``commit=True``, which asks
        and goes on. After any other error it was not.
        """
        ...

    def ended_by(self) -> LogStoreError | None:
        """Why the transaction under way is over without this lease's doing; None: it is not."""
        ...

    def release(self) -> None:
        """Abort what is open, as far as possible, and let others open the id. Safe to call again."""
        ...


class TransactionSummary(NamedTuple):
    """A transactional id. ``state``: EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT or
    COMPLETE_ABORT; ``places``: partitions of the transaction under way, those without a marker once it is decided;
    ``started_ms``: when the newest one began, -1: there was none; ``holder``: the process that has it open, or None."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    places: tuple[TopicPartition, ...]
    holder: str | None


class HangingTransaction(NamedTuple):
    """A transaction open in a partition that no coordinator knows of, so that nothing will ever end it: readers
    of committed records wait at ``start_offset``. ``transactional_id``: whose producer id it is; None: unknown."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    start_offset: int
    transactional_id: str | None
