"""What requests of a transactional id are refused for, whatever they ask: each check raises, and says what to do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from logstore.api.transactions import PreparedTransaction
from logstore.errors import (
    InvalidTransactionIdError,
    ProducerFencedError,
    TransactionStateError,
    TransactionTimedOutError,
)
from logstore.machine import TransactionalWriter
from logstore.transactions.transaction import LAST_EPOCH, TransactionState

MAX_ID_CHARACTERS: Final = 249


def validate_transactional_id(transactional_id: str) -> None:
    """InvalidTransactionIdError unless it is 1 to 249 characters of valid Unicode without NUL."""
    if not isinstance(transactional_id, str):
        raise InvalidTransactionIdError(f"a transactional id is text, not {type(transactional_id).__name__}")
    if not 1 <= len(transactional_id) <= MAX_ID_CHARACTERS:
        raise InvalidTransactionIdError(
            f"transactional id of {len(transactional_id)} characters: {transactional_id[:40]!r}"
        )
    if "\0" in transactional_id or any("\ud800" <= character <= "\udfff" for character in transactional_id):
        raise InvalidTransactionIdError(
            f"transactional id {transactional_id!r} holds a NUL or half of a surrogate pair"
        )


def check_not_prepared(state: TransactionState, what: str) -> None:
    if state.is_prepared:
        raise TransactionStateError(
            f"{what} the transaction of {state.transactional_id!r}: it is prepared, for {state.coordinator!r} to "
            "decide",
            hint="what comes later goes into another transaction",
        )


def check_not_spent(state: TransactionState) -> None:
    if state.epoch >= LAST_EPOCH:
        raise TransactionStateError(
            f"begin a transaction of {state.transactional_id!r}: epoch {state.epoch} of producer id "
            f"{state.producer_id} is past the last that can, {LAST_EPOCH - 1}",
            hint="open the id again: it gets another producer id",
        )


def check_same(state: TransactionState, prepared: Collection[PreparedTransaction]) -> None:
    """A commit that is asked for again names what it named before, as far as that is known."""
    if prepared and state.decides is not None and set(prepared) != set(state.decides):
        raise TransactionStateError(
            f"commit a transaction of {state.transactional_id!r} with {len(prepared)} prepared ones: it is committed "
            f"already, with {len(state.decides)} others",
            hint="what was decided stays",
        )


def check_in_time(state: TransactionState, now_ms: int) -> None:
    if state.is_overdue(now_ms):
        raise TransactionTimedOutError(
            f"the transaction of {state.transactional_id!r} (epoch {state.epoch}) began {now_ms - state.start_ms} ms "
            f"ago, its timeout is {state.timeout_ms} ms"
        )


def check_resumed(state: TransactionState, writer: TransactionalWriter) -> None:
    """Of an opening that goes on elsewhere: that it is the newest one, be its last transaction decided meanwhile."""
    if (state.producer_id, state.epoch) == writer or state.ended_from(*writer) is not None:
        return
    raise ProducerFencedError(
        f"transactional id {state.transactional_id!r} has epoch {state.epoch} of producer id {state.producer_id} by "
        f"now, this producer has epoch {writer.epoch} of {writer.producer_id}",
        expected_epoch=state.epoch,
        found_epoch=writer.epoch,
    )


def check_idle(state: TransactionState, what: str) -> None:
    """Of one that is not ONGOING: that no markers are due."""
    if state.status.is_decided:
        raise TransactionStateError(
            f"{what} of {state.transactional_id!r}: the one before is {state.status.name}, markers are missing in "
            f"{len(state.places)} partitions",
            hint="finish it first",
        )


def verb(commit: bool) -> str:
    return "commit" if commit else "abort"
