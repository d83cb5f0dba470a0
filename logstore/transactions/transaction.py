"""One transactional id as its coordinator knows it: the producer that may write, and what is under way.

Life of an id (the numbers are Kafka's, in ``__transaction_state``):

    EMPTY(0) ---------- the first partition ---------> ONGOING(1)
    ONGOING ----------- commit | abort --------------> PREPARE_COMMIT(2) | PREPARE_ABORT(3)
    PREPARE_* --------- all markers are written -----> COMPLETE_COMMIT(4) | COMPLETE_ABORT(5)
    COMPLETE_* -------- the first partition ---------> ONGOING
    EMPTY, COMPLETE_* - the id is opened again ------> EMPTY
    EMPTY, COMPLETE_* - out of use for long ---------> forgotten (a null value; DEAD(6) in Kafka's logs)

An id may be opened as the participant of another, its coordinator. Its transaction is *prepared* when its writing has
ended: its status stays ONGOING, and only the coordinator's outcome, or an administrator, ends it. The coordinator's
PREPARE_COMMIT lists the prepared transactions that it commits (``decides``); whatever else names it is aborted:

    ONGOING ----------- prepare ---------------------> ONGOING with prepared_ms
    EMPTY, COMPLETE_* - the outcome of participants --> PREPARE_COMMIT | PREPARE_ABORT, of no places

A transaction that runs under epoch e is ended by markers of a higher one, and the next one of the id runs under
the markers' epoch (KIP-890). So whatever still comes under e is older than the end, and touches nothing after it.
A marker of epoch e + 1 says that the producer itself may go on under e + 1; one of e + 2 fences it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from logstore.api.transactions import PreparedTransaction
from logstore.types import TopicPartition

HIGHEST_EPOCH: Final = 2**15 - 1
LAST_EPOCH: Final = HIGHEST_EPOCH - 1
"""No transaction begins under this epoch: its markers, and those that fence its producer, need the two above
the last one that does. An id that has come here goes on under another producer id."""


class TransactionStatus(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def is_decided(self) -> bool:
        """The outcome is known, markers are due."""
        return self in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)

    @property
    def outcome(self) -> bool | None:
        """Of the last transaction: True committed, False aborted, None: not decided, or there was none."""
        return _OUTCOMES.get(self)


_OUTCOMES: Final = {
    TransactionStatus.PREPARE_COMMIT: True,
    TransactionStatus.COMPLETE_COMMIT: True,
    TransactionStatus.PREPARE_ABORT: False,
    TransactionStatus.COMPLETE_ABORT: False,
}


class EndedTransaction(NamedTuple):
    """A decided transaction: its markers carry ``marker_epoch`` and ``commit``; ``places`` lack them still.
    ``decides``: its outcome is that of its participants, too, which are ended before it is complete."""

    transactional_id: str
    producer_id: int
    marker_epoch: int
    commit: bool
    places: tuple[TopicPartition, ...]
    decides: bool = False


class InitReply(NamedTuple):
    """``pending`` None: the id is open under ``producer_id`` and ``epoch``. Else nothing is opened yet: its
    markers must be written and noted first, then the id is asked for again."""

    producer_id: int
    epoch: int
    pending: EndedTransaction | None


@dataclass(frozen=True, slots=True)
class TransactionState:
    """``places``: of the transaction under way, or, once it is decided, those without a marker yet; sorted.
    ``updated_ms``, ``start_ms``: ms since 1970 UTC of the last change, and of the last transaction's beginning
    (-1: there was none). ``epoch``: of the transaction under way, else of the next one. ``coordinator``: the id whose
    participant this opening is. ``prepared_ms``: since when the transaction is prepared, -1: it is not. ``decides``:
    what a decided outcome commits of the id's participants, the others are aborted; None: it decides nothing."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    status: TransactionStatus
    places: tuple[TopicPartition, ...]
    updated_ms: int
    start_ms: int
    coordinator: str | None = None
    prepared_ms: int = -1
    decides: tuple[PreparedTransaction, ...] | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Another coordinator, that of the id's ``coordinator``, has all of the id: this one has its place alone."""
        return self.producer_id < 0 and self.coordinator is not None

    @property
    def is_prepared(self) -> bool:
        return self.status == TransactionStatus.ONGOING and self.prepared_ms >= 0

    @property
    def handle(self) -> PreparedTransaction:
        """What names the transaction under way to its coordinator."""
        return PreparedTransaction(self.transactional_id, self.producer_id, self.epoch)

    @property
    def ended(self) -> EndedTransaction | None:
        """What is left to do for a transaction that is decided and not complete."""
        if not self.status.is_decided:
            return None
        commit = self.status == TransactionStatus.PREPARE_COMMIT
        decides = self.decides is not None
        return EndedTransaction(
            self.transactional_id, self.producer_id, self.epoch, commit, self.places, decides
        )

    def ended_from(self, producer_id: int, epoch: int) -> bool | None:
        """The outcome, if what this producer began under ``epoch`` was the last transaction and is decided, and
        the producer may go on; else None."""
        if (self.producer_id, self.epoch) != (producer_id, epoch + 1):
            return None
        return self.status.outcome

    def aborted_from(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer's transaction of ``epoch`` was aborted and it may begin another one."""
        return self.ended_from(producer_id, epoch) is False

    def committed_from(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer's transaction of ``epoch`` was committed and it may begin another one."""
        return self.ended_from(producer_id, epoch) is True

    def is_overdue(self, now_ms: int) -> bool:
        """A transaction is under way, and not prepared, for longer than its timeout."""
        ongoing = self.status == TransactionStatus.ONGOING and not self.is_prepared
        return ongoing and now_ms - self.start_ms > self.timeout_ms

    def is_waiting(self, now_ms: int, prepared_max_age_ms: int) -> bool:
        """It is prepared, and its coordinator has time left to decide."""
        return self.is_prepared and now_ms - self.prepared_ms <= prepared_max_age_ms
