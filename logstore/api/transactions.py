"""Transactional ids as clients hold and administrators see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from logstore.api.groups import MemberIdentity
from logstore.arguments import shown, whole
from logstore.errors import InvalidArgumentError, LogStoreError
from logstore.types import OffsetAndMetadata, TopicPartition

MAX_TIMEOUT_MS: Final = 24 * 60 * 60 * 1000
"""The longest ``transaction_timeout_ms``."""
_HANDLES: Final = "it is a list of what prepare() of the participants gave"


class PreparedTransaction(NamedTuple):
    """A transaction that takes nothing more and waits for its coordinator's decision. Small and picklable, so that who
    wrote it may hand it to who decides."""

    transactional_id: str
    producer_id: int
    epoch: int


def prepared_handles(values: Iterable[Any]) -> tuple[PreparedTransaction, ...]:
    """What a caller calls prepared transactions, checked. InvalidArgumentError."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgumentError(f"prepared={shown(values)}", hint=_HANDLES)
    return tuple(_handle(value) for value in values)


def _handle(value: Any) -> PreparedTransaction:
    if not isinstance(value, PreparedTransaction) or not isinstance(value.transactional_id, str):
        raise InvalidArgumentError(f"prepared holds {shown(value)}", hint=_HANDLES)
    producer_id = whole(value.producer_id, "producer_id", 0, 2**63 - 1)
    return value._replace(producer_id=producer_id, epoch=whole(value.epoch, "epoch", 0, 2**15 - 1))


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

    def prepare(self) -> PreparedTransaction | None:
        """End the writing of a participant's transaction: durable, it waits for its coordinator's decision from now
        on, out of reach of its timeout and of this lease's end. None: nothing was in it, nothing is to be decided.
        Safe to call again. TransactionStateError: the id was not opened as a participant."""
        ...

    def end(self, *, commit: bool, prepared: Collection[PreparedTransaction] = ()) -> None:
        """Everything that was sent must be durable before. Returns when every partition shows the outcome.

        ``prepared``: of participants that name this id as their coordinator. One record commits them with this
        transaction, and aborts whatever else names it; an abort aborts all of them. TransactionStateError, and nothing
        is changed: one is not prepared, not for this coordinator, or fenced since. A participant itself takes an abort
        alone, before ``prepare``.

        A commit that raises OutcomeUnknownError may have been decided: call again with ``commit=True`` and the same
        ``prepared``, which asks and goes on. After any other error it was not.
        """
        ...

    def ended_by(self) -> LogStoreError | None:
        """Why the transaction under way is over without this lease's doing; None: it is not."""
        ...

    def release(self) -> None:
        """Abort what is open, as far as possible, and let others open the id. Safe to call again."""
        ...


class TransactionSummary(NamedTuple):
    """A transactional id. ``state``: EMPTY, ONGOING, PREPARED (it waits for ``coordinator``), PREPARE_COMMIT,
    PREPARE_ABORT, COMPLETE_COMMIT or COMPLETE_ABORT; ``places``: partitions of the transaction under way, those
    without a marker once it is decided; ``started_ms``: when the newest one began, -1: there was none; ``holder``:
    the process that has it open, or None; ``coordinator``: the id whose commit decides what this one prepares, None:
    it decides for itself."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    places: tuple[TopicPartition, ...]
    holder: str | None
    coordinator: str | None = None


class HangingTransaction(NamedTuple):
    """A transaction open in a partition that no coordinator knows of, so that nothing will ever end it: readers
    of committed records wait at ``start_offset``. ``transactional_id``: whose producer id it is; None: unknown."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    start_offset: int
    transactional_id: str | None
