"""The transaction coordinator: the producer that may write under a transactional id, and how its transactions end.

A ``StateMachine`` over ``__transaction_state``: ``decide_*`` return records and a reply and change nothing, only
``replay`` does. Requests carry the producer id and epoch that ``decide_init`` or the last end gave out; the states
are in ``transaction.py``. Kafka's design: KIP-98, with the epoch of KIP-890.

Numbered properties, kept over any interleaving of producers, crashes and repeated requests (tests/transactions):

1. A decided outcome never changes: PREPARE_COMMIT leads to COMPLETE_COMMIT alone.
2. A pair (producer id, epoch) is given to one opening or one transaction only, also across ids.
3. What comes late, under an older epoch or an earlier producer id, changes nothing.
4. The next transaction begins after the last place of the one before has its marker.
5. The state is what a replay of the log's records gives, up to any of them.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from logstore.api.transactions import MAX_TIMEOUT_MS
from logstore.arguments import partition_places, whole
from logstore.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTransactionIdError,
    InvariantError,
    ProducerFencedError,
    TransactionStateError,
    TransactionTimedOutError,
    UnknownTransactionError,
)
from logstore.machine import Change, Decision
from logstore.transactions.transaction import (
    HIGHEST_EPOCH,
    LAST_EPOCH,
    EndedTransaction,
    InitReply,
    TransactionState,
    TransactionStatus,
)
from logstore.transactions.transaction_records import decode_key, decode_value, encode_key, encode_value
from logstore.types import TopicPartition

__all__ = [
    "EXEMPT_PREFIX",
    "HIGHEST_EPOCH",
    "LAST_EPOCH",
    "EndedTransaction",
    "InitReply",
    "TransactionCoordinator",
    "TransactionState",
    "TransactionStatus",
    "validate_transactional_id",
]

MAX_ID_CHARACTERS: Final = 249
EXEMPT_PREFIX: Final = "spark-"
"""Ids that are never forgotten: a streaming query may stand for longer, and its epochs say what is written."""

Reply = TypeVar("Reply")
_Status = TransactionStatus
_COMPLETE: Final = frozenset({_Status.COMPLETE_COMMIT, _Status.COMPLETE_ABORT})
_KEPT: Final = (
    4  # outcomes of an id: as many openings may pass until a producer that lost an answer asks for it
)
_IDLE: Final = frozenset({_Status.EMPTY, _Status.COMPLETE_COMMIT, _Status.COMPLETE_ABORT})


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


class _Outcome(NamedTuple):
    producer_id: int
    marker_epoch: int
    committed: bool


class TransactionCoordinator:
    """All transactional ids of a store. Not thread-safe: its owner serialises calls.

    ``ignored_records``: replayed records of kinds that this version does not know, and null keys.
    """

    def __init__(self) -> None:
        self.ignored_records = 0
        self._states: dict[str, TransactionState] = {}
        self._under_way: dict[str, None] = {}  # ids of ONGOING and PREPARE_*, in the order they got there
        self._ids: dict[int, str] = {}  # producer id -> transactional id
        self._outcomes: dict[str, tuple[_Outcome, ...]] = {}  # of transactions before the id was opened again

    # --- opening an id ---

    def decide_init(
        self,
        transactional_id: str,
        timeout_ms: int,
        fresh_id: int,
        now_ms: int,
        *,
        continuing: tuple[int, int] | None = None,
    ) -> Decision[InitReply]:
        """Open the id, and fence the producer that had it open: see ``InitReply`` for what comes back.

        ``fresh_id``: a producer id that was never used; it is taken if the id is new, or its epochs have ended.
        ``timeout_ms``: 1 to ``MAX_TIMEOUT_MS``, of its transactions. ``continuing``: the producer id and epoch of
        an opening that only asks to go on, e.g. for fresh epochs; ProducerFencedError if it has been replaced.
        InvalidTransactionIdError, InvalidArgumentError; UnknownTransactionError when continuing with no state.
        """
        validate_transactional_id(transactional_id)
        timeout_ms = whole(timeout_ms, "transaction_timeout_ms", 1, MAX_TIMEOUT_MS)
        self._check_fresh(transactional_id, whole(fresh_id, "fresh_id"))
        state = self._states.get(transactional_id)
        if continuing is not None:
            state = self._owned(transactional_id, *continuing, "go on under")
        if state is not None and state.status == _Status.ONGOING:
            aborted = _decided(state, False, now_ms, min(state.epoch + 2, HIGHEST_EPOCH))
            return _decision(aborted, InitReply(aborted.producer_id, aborted.epoch, aborted.ended))
        if state is not None and state.ended is not None:
            return Decision((), InitReply(state.producer_id, state.epoch, state.ended))
        if state is None or state.producer_id < 0 or state.epoch + 1 >= LAST_EPOCH:
            producer_id, epoch = fresh_id, 0
        else:
            producer_id, epoch = state.producer_id, state.epoch + 1
        opened = TransactionState(
            transactional_id, producer_id, epoch, timeout_ms, _Status.EMPTY, (), now_ms, -1
        )
        return _decision(opened, InitReply(producer_id, epoch, None))

    def _check_fresh(self, transactional_id: str, fresh_id: int) -> None:
        if fresh_id in self._ids:
            raise InvariantError(
                f"open transactional id {transactional_id!r}: producer id {fresh_id} was given for a fresh one, and "
                f"{self._ids[fresh_id]!r} has it"
            )

    # --- one transaction ---

    def decide_add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Collection[TopicPartition],
        now_ms: int,
    ) -> Decision[tuple[TopicPartition, ...]]:
        """Let the transaction write to ``places`` too, and begin it if none is under way; the reply is all of its
        places. The records must be durable before the first record of such a place is written.

        UnknownTransactionError, ProducerFencedError (expected and found epoch), TransactionStateError: the last
        one is decided and its markers are not all written; TransactionTimedOutError; InvalidArgumentError.
        """
        state = self._owned(transactional_id, producer_id, epoch, "add partitions to a transaction of")
        wanted = set(partition_places(places))
        if not wanted:
            raise InvalidArgumentError(f"no partitions to add to the transaction of {transactional_id!r}")
        if state.status == _Status.ONGOING:
            _check_in_time(state, now_ms)
            if wanted <= set(state.places):
                return Decision((), state.places)
            merged = tuple(sorted(wanted.union(state.places)))
            return _decision(replace(state, places=merged, updated_ms=now_ms), merged)
        _check_idle(state, "begin a transaction")
        if epoch >= LAST_EPOCH:
            raise TransactionStateError(
                f"begin a transaction of {transactional_id!r}: epoch {epoch} of producer id {producer_id} is past "
                f"the last that can, {LAST_EPOCH - 1}",
                hint="open the id again: it gets another producer id",
            )
        begun = replace(
            state, status=_Status.ONGOING, places=tuple(sorted(wanted)), updated_ms=now_ms, start_ms=now_ms
        )
        return _decision(begun, begun.places)

    def decide_end(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, now_ms: int
    ) -> Decision[EndedTransaction]:
        """The outcome, for good once the records are durable. The producer goes on under ``marker_epoch``.

        Asked again with the same outcome, the reply is what is left to mark. An abort of what never began is
        complete at once, and takes an epoch as well: an ``add`` that is still on its way comes too late.
        UnknownTransactionError, ProducerFencedError; TransactionStateError: the other outcome was decided, or a
        commit of nothing; TransactionTimedOutError: a commit past the timeout, the transaction is still to be
        aborted.
        """
        state = self._find(transactional_id)
        decided = state.ended_from(producer_id, epoch)
        if decided is not None:
            if decided == commit:
                return Decision((), _as_ended(state, commit))
            raise TransactionStateError(
                f"{_verb(commit)} a transaction of {transactional_id!r} (epoch {epoch}): it is "
                f"{'committed' if decided else 'aborted'} already",
                hint="what was decided stays"
                if decided
                else "begin another transaction, and send the records again",
            )
        state = self._owned(transactional_id, producer_id, epoch, f"{_verb(commit)} a transaction of")
        if state.status == _Status.ONGOING:
            if commit:
                _check_in_time(state, now_ms)
            ended = _decided(state, commit, now_ms, min(epoch + 1, HIGHEST_EPOCH))
            return _decision(ended, _as_ended(ended, commit))
        _check_idle(state, f"{_verb(commit)} a transaction")
        if commit or epoch >= HIGHEST_EPOCH:
            raise TransactionStateError(
                f"{_verb(commit)} a transaction of {transactional_id!r}: none is under way in epoch {epoch} (the id "
                f"is {state.status.name})"
            )
        nothing = replace(state, status=_Status.COMPLETE_ABORT, epoch=epoch + 1, updated_ms=now_ms)
        return _decision(nothing, _as_ended(nothing, commit))

    def decide_marked(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Collection[TopicPartition],
        now_ms: int,
    ) -> Decision[tuple[TopicPartition, ...]]:
        """These places have the durable markers of the transaction that ended with markers of ``epoch``, or are
        deleted. The reply: those that lack one still; when none does the transaction is complete.

        For a transaction that is complete already nothing is changed, whatever came after it.
        UnknownTransactionError; TransactionStateError: no transaction was ended with that epoch.
        """
        state = self._find(transactional_id)
        if producer_id == state.producer_id and epoch > state.epoch:
            raise TransactionStateError(
                f"note markers of {transactional_id!r}: no transaction ended with epoch {epoch} of producer id "
                f"{producer_id}, the newest epoch is {state.epoch}"
            )
        if (producer_id, epoch) != (state.producer_id, state.epoch) or not state.status.is_decided:
            return Decision((), ())
        marked = set(partition_places(places))
        left = tuple(place for place in state.places if place not in marked)
        if left == state.places and left:
            return Decision((), left)
        if left:
            return _decision(replace(state, places=left, updated_ms=now_ms), left)
        commit = state.status == _Status.PREPARE_COMMIT
        status = _Status.COMPLETE_COMMIT if commit else _Status.COMPLETE_ABORT
        return _decision(replace(state, status=status, places=(), updated_ms=now_ms), ())

    # --- for the reaper ---

    def decide_resolve(
        self, transactional_id: str, now_ms: int, *, fence: bool = False
    ) -> Decision[EndedTransaction | None]:
        """The caller knows that the owner is gone, or may overrule it: a transaction under way is aborted; the reply
        is what is left to mark of that, or of one that was decided before; None: nothing is under way.

        ``fence``: the producer may not go on afterwards; else it may begin another transaction.
        UnknownTransactionError.
        """
        state = self._find(transactional_id)
        if state.status != _Status.ONGOING:
            return Decision((), state.ended)
        aborted = _decided(state, False, now_ms, min(state.epoch + (2 if fence else 1), HIGHEST_EPOCH))
        return _decision(aborted, aborted.ended)

    def expired(self, now_ms: int, expiration_ms: int) -> list[str]:
        """Ids with nothing under way and no change for ``expiration_ms`` (Kafka's transactional.id.expiration.ms),
        but none that begins with ``EXEMPT_PREFIX``; sorted."""
        return sorted(
            name
            for name, state in self._states.items()
            if state.status in _IDLE
            and now_ms - state.updated_ms >= expiration_ms
            and not name.startswith(EXEMPT_PREFIX)
        )

    def decide_forget(
        self, now_ms: int, expiration_ms: int, among: Container[str] | None = None
    ) -> Decision[list[str]]:
        """Forget what ``expired`` lists, or those of it that are ``among`` these; the reply lists them.

        A producer that has such an id open meets UnknownTransactionError next, so leave open ones out. An id that
        comes again gets a producer id of its own.
        """
        gone = [name for name in self.expired(now_ms, expiration_ms) if among is None or name in among]
        records: tuple[Change, ...] = tuple((encode_key(name), None) for name in gone)
        return Decision(records, gone)

    # --- looks ---

    def find(self, transactional_id: str) -> TransactionState | None:
        return self._states.get(transactional_id)

    def describe(self, transactional_id: str) -> TransactionState:
        """InvalidTransactionIdError, UnknownTransactionError."""
        return self._find(transactional_id)

    def transactions(self) -> list[TransactionState]:
        """All ids, by name."""
        return [self._states[name] for name in sorted(self._states)]

    def in_doubt(self) -> list[TransactionState]:
        """The ids with a transaction under way, or decided and not marked everywhere, in the order they got there:
        what another process must finish should the owner be gone."""
        return [self._states[name] for name in self._under_way]

    def owner_of(self, producer_id: int) -> str | None:
        """The transactional id that has this producer id now; None: none has."""
        return self._ids.get(producer_id)

    def outcome_of(self, transactional_id: str, producer_id: int, epoch: int) -> bool | None:
        """Whether the producer's transaction of ``epoch`` was committed (True) or aborted, also if the id was opened
        again since; None: the log tells no more, or it is not decided."""
        state = self._states.get(transactional_id)
        if state is not None and (last := state.ended_from(producer_id, epoch)) is not None:
            return last
        for ended in self._outcomes.get(transactional_id, ()):
            # An opening that aborts what it finds takes two epochs, and nothing runs under the one between.
            if ended.producer_id == producer_id and 1 <= ended.marker_epoch - epoch <= 2 - ended.committed:
                return ended.committed
        return None

    # --- replay ---

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. InvalidRecordError, UnsupportedStoreVersionError if it cannot be understood."""
        transactional_id = None if key is None else decode_key(key)
        if transactional_id is None:
            self.ignored_records += 1
            return
        state = None if value is None else decode_value(transactional_id, value)
        if state is not None and state.status == _Status.DEAD:
            state = None
        before = self._states.get(transactional_id)
        if before is not None and self._ids.get(before.producer_id) == transactional_id:
            del self._ids[before.producer_id]
        if state is None:
            self._states.pop(transactional_id, None)
            self._outcomes.pop(transactional_id, None)
            self._under_way.pop(transactional_id, None)
            return
        self._states[transactional_id] = state
        if before is not None and before.status in _COMPLETE and state.status == _Status.EMPTY:
            ended = _Outcome(before.producer_id, before.epoch, before.status == _Status.COMPLETE_COMMIT)
            self._outcomes[transactional_id] = (*self._outcomes.get(transactional_id, ()), ended)[-_KEPT:]
        if state.producer_id >= 0:
            self._ids[state.producer_id] = transactional_id
        if state.status in _IDLE:
            self._under_way.pop(transactional_id, None)
        else:
            self._under_way.setdefault(transactional_id)

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        raise InvalidRecordError(
            f"__transaction_state holds a record of a transaction itself, of producer {producer_id}, epoch {epoch}, "
            f"key {key!r}, {0 if value is None else len(value)} bytes"
        )

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        raise InvalidRecordError(
            f"__transaction_state holds the marker of a transaction in itself, of producer {producer_id}, epoch "
            f"{epoch}, {_verb(committed)}"
        )

    # --- checks ---

    def _find(self, transactional_id: str) -> TransactionState:
        validate_transactional_id(transactional_id)
        state = self._states.get(transactional_id)
        if state is None:
            raise UnknownTransactionError(f"transactional id {transactional_id!r} is not open")
        return state

    def _owned(self, transactional_id: str, producer_id: int, epoch: int, action: str) -> TransactionState:
        """The id's state, if this is its producer. ProducerFencedError, TransactionStateError: an epoch that was
        never given out."""
        state = self._find(transactional_id)
        if producer_id == state.producer_id and epoch == state.epoch:
            return state
        what = f"{action} {transactional_id!r}"
        if producer_id == state.producer_id and epoch > state.epoch:
            raise TransactionStateError(
                f"{what}: epoch {epoch} of producer id {producer_id} was never given out, the newest is {state.epoch}"
            )
        if state.ended_from(producer_id, epoch) is not None:
            raise TransactionStateError(
                f"{what}: the transaction of epoch {epoch} is {state.status.name}, the next one has epoch "
                f"{state.epoch}"
            )
        raise ProducerFencedError(
            f"{what}: came with producer id {producer_id} and epoch {epoch}, it is open under producer id "
            f"{state.producer_id} and epoch {state.epoch}",
            expected_epoch=state.epoch,
            found_epoch=epoch,
        )


def _verb(commit: bool) -> str:
    return "commit" if commit else "abort"


def _check_in_time(state: TransactionState, now_ms: int) -> None:
    if state.is_overdue(now_ms):
        raise TransactionTimedOutError(
            f"the transaction of {state.transactional_id!r} (epoch {state.epoch}) began {now_ms - state.start_ms} ms "
            f"ago, its timeout is {state.timeout_ms} ms"
        )


def _check_idle(state: TransactionState, what: str) -> None:
    """Of one that is not ONGOING: that no markers are due."""
    if state.status.is_decided:
        raise TransactionStateError(
            f"{what} of {state.transactional_id!r}: the one before is {state.status.name}, markers are missing in "
            f"{len(state.places)} partitions",
            hint="finish it first",
        )


def _decided(state: TransactionState, commit: bool, now_ms: int, epoch: int) -> TransactionState:
    status = _Status.PREPARE_COMMIT if commit else _Status.PREPARE_ABORT
    return replace(state, status=status, epoch=epoch, updated_ms=now_ms)


def _as_ended(state: TransactionState, commit: bool) -> EndedTransaction:
    return EndedTransaction(state.transactional_id, state.producer_id, state.epoch, commit, state.places)


def _decision(state: TransactionState, reply: Reply) -> Decision[Reply]:
    return Decision(((encode_key(state.transactional_id), encode_value(state)),), reply)
