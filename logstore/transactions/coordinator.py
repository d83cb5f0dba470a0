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
6. A prepared transaction is committed by a record of its coordinator that lists it, or is never; and the coordinator
   is complete after all that its record lists.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from logstore.api.transactions import MAX_TIMEOUT_MS, PreparedTransaction
from logstore.arguments import partition_places, whole
from logstore.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    InvariantError,
    ProducerFencedError,
    TransactionStateError,
    UnknownTransactionError,
)
from logstore.machine import Change, Decision
from logstore.transactions.participants import Participants
from logstore.transactions.refusals import (
    check_idle,
    check_in_time,
    check_not_prepared,
    check_not_spent,
    check_same,
    validate_transactional_id,
    verb,
)
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
    "EXPIRING_PREFIX",
    "HIGHEST_EPOCH",
    "LAST_EPOCH",
    "EndedTransaction",
    "InitReply",
    "TransactionCoordinator",
    "TransactionState",
    "TransactionStatus",
    "validate_transactional_id",
]

EXEMPT_PREFIX: Final = "spark-"
"""Ids that are never forgotten: a streaming query may stand for longer, and its epochs say what is written. But those
of participants are, and those that are used once:"""
EXPIRING_PREFIX: Final = "spark-once-"

Reply = TypeVar("Reply")
_Status = TransactionStatus
_COMPLETE: Final = frozenset({_Status.COMPLETE_COMMIT, _Status.COMPLETE_ABORT})
_KEPT: Final = (
    4  # outcomes of an id: as many openings may pass until a producer that lost an answer asks for it
)
_IDLE: Final = frozenset({_Status.EMPTY, _Status.COMPLETE_COMMIT, _Status.COMPLETE_ABORT})


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
        self.participants = Participants(self._states)

    # --- opening an id ---

    def decide_init(
        self,
        transactional_id: str,
        timeout_ms: int,
        fresh_id: int,
        now_ms: int,
        *,
        continuing: tuple[int, int] | None = None,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> Decision[InitReply]:
        """Open the id, and fence the producer that had it open: see ``InitReply`` for what comes back.

        ``fresh_id``: a producer id that was never used; it is taken if the id is new, or its epochs have ended.
        ``timeout_ms``: 1 to ``MAX_TIMEOUT_MS``, of its transactions. ``continuing``: the producer id and epoch of
        an opening that only asks to go on, e.g. for fresh epochs; ProducerFencedError if it has been replaced.
        ``coordinator``: the id whose commit decides what this one prepares. ``keep_prepared``: what participants of
        this id have under way stays, to be decided; else it is aborted first.
        InvalidTransactionIdError, InvalidArgumentError; UnknownTransactionError when continuing with no state.
        """
        validate_transactional_id(transactional_id)
        timeout_ms = whole(timeout_ms, "transaction_timeout_ms", 1, MAX_TIMEOUT_MS)
        self._check_fresh(transactional_id, whole(fresh_id, "fresh_id"))
        state = self._states.get(transactional_id)
        if continuing is not None:
            state = self._owned(transactional_id, *continuing, "go on under")
        if coordinator is not None:
            validate_transactional_id(coordinator)
            self.participants.check_opening(transactional_id, coordinator)
        decides = None if keep_prepared else self._decides(transactional_id)
        if state is not None and state.status == _Status.ONGOING:
            committed = self.participants.is_committed(state)
            aborted = _decided(state, committed, now_ms, state.epoch + (1 if committed else 2), decides)
            return _decision(aborted, InitReply(aborted.producer_id, aborted.epoch, aborted.ended))
        if state is not None and state.ended is not None:
            return Decision((), InitReply(state.producer_id, state.epoch, state.ended))
        if decides is not None:
            if state is None or state.producer_id < 0:
                state = _opened(transactional_id, fresh_id, 0, timeout_ms, now_ms)
            aborted = _decided(replace(state, start_ms=now_ms), False, now_ms, state.epoch + 2, decides)
            return _decision(aborted, InitReply(aborted.producer_id, aborted.epoch, aborted.ended))
        if state is None or state.producer_id < 0 or state.epoch + 1 >= LAST_EPOCH:
            producer_id, epoch = fresh_id, 0
        else:
            producer_id, epoch = state.producer_id, state.epoch + 1
        opened = _opened(transactional_id, producer_id, epoch, timeout_ms, now_ms)
        return _decision(replace(opened, coordinator=coordinator), InitReply(producer_id, epoch, None))

    def _decides(
        self, transactional_id: str, prepared: Collection[PreparedTransaction] = ()
    ) -> tuple[PreparedTransaction, ...] | None:
        """What an outcome of the id says of its participants; None: it has none."""
        if prepared or self.participants.any_of(transactional_id):
            return tuple(sorted(set(prepared)))
        return None

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
            check_in_time(state, now_ms)
            check_not_prepared(state, "add partitions to")
            if wanted <= set(state.places):
                return Decision((), state.places)
            merged = tuple(sorted(wanted.union(state.places)))
            return _decision(replace(state, places=merged, updated_ms=now_ms), merged)
        check_idle(state, "begin a transaction")
        check_not_spent(state)
        begun = replace(
            state, status=_Status.ONGOING, places=tuple(sorted(wanted)), updated_ms=now_ms, start_ms=now_ms
        )
        return _decision(begun, begun.places)

    def decide_prepare(
        self, transactional_id: str, producer_id: int, epoch: int, now_ms: int
    ) -> Decision[PreparedTransaction]:
        """The participant's transaction takes nothing more, and waits for its coordinator. Asked again: the same.

        UnknownTransactionError, ProducerFencedError; TransactionStateError: no participant, or nothing is under way;
        TransactionTimedOutError.
        """
        state = self._owned(transactional_id, producer_id, epoch, "prepare a transaction of")
        if state.coordinator is None:
            raise TransactionStateError(
                f"prepare a transaction of {transactional_id!r}: the id names no coordinator that could decide it",
                hint="open it with a coordinator, or commit the transaction",
            )
        if state.status != _Status.ONGOING:
            raise TransactionStateError(
                f"prepare a transaction of {transactional_id!r}: none is under way in epoch {epoch} (the id is "
                f"{state.status.name})"
            )
        if state.is_prepared:
            return Decision((), state.handle)
        check_in_time(state, now_ms)
        return _decision(replace(state, prepared_ms=now_ms, updated_ms=now_ms), state.handle)

    def decide_end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        now_ms: int,
        prepared: Collection[PreparedTransaction] = (),
    ) -> Decision[EndedTransaction]:
        """The outcome, for good once the records are durable. The producer goes on under ``marker_epoch``.

        ``prepared``: participants that a commit commits, too; see ``TransactionLease.end`` for what it is refused for.
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
                check_same(state, prepared)
                return Decision((), _as_ended(state, commit))
            raise TransactionStateError(
                f"{verb(commit)} a transaction of {transactional_id!r} (epoch {epoch}): it is "
                f"{'committed' if decided else 'aborted'} already",
                hint="what was decided stays"
                if decided
                else "begin another transaction, and send the records again",
            )
        state = self._owned(transactional_id, producer_id, epoch, f"{verb(commit)} a transaction of")
        self._check_end(state, commit, prepared)
        decides = self._decides(transactional_id, prepared)
        if state.status == _Status.ONGOING:
            if commit:
                check_in_time(state, now_ms)
            ended = _decided(state, commit, now_ms, epoch + 1, decides)
            return _decision(ended, _as_ended(ended, commit))
        check_idle(state, f"{verb(commit)} a transaction")
        if decides is not None and (prepared or not commit):
            check_not_spent(state)
            ended = _decided(replace(state, start_ms=now_ms), commit, now_ms, epoch + 1, decides)
            return _decision(ended, _as_ended(ended, commit))
        if commit or epoch >= HIGHEST_EPOCH:
            raise TransactionStateError(
                f"{verb(commit)} a transaction of {transactional_id!r}: none is under way in epoch {epoch} (the id "
                f"is {state.status.name})"
            )
        nothing = replace(state, status=_Status.COMPLETE_ABORT, epoch=epoch + 1, updated_ms=now_ms)
        return _decision(nothing, _as_ended(nothing, commit))

    def _check_end(
        self, state: TransactionState, commit: bool, prepared: Collection[PreparedTransaction]
    ) -> None:
        """What coordinators and participants may not ask for."""
        if prepared and not commit:
            raise InvalidArgumentError(
                f"abort a transaction of {state.transactional_id!r} with {len(prepared)} prepared ones",
                hint="leave them out: an abort aborts all of its participants",
            )
        if commit and state.coordinator is not None and state.status == _Status.ONGOING:
            raise TransactionStateError(
                f"commit a transaction of {state.transactional_id!r}: {state.coordinator!r} is its coordinator",
                hint="prepare it, and let the coordinator commit it",
            )
        if self.participants.is_committed(state):
            raise TransactionStateError(
                f"abort a transaction of {state.transactional_id!r}: its coordinator {state.coordinator!r} has "
                "committed it",
                hint="what was decided stays",
            )
        self.participants.check_prepared(state.transactional_id, prepared)

    def decide_settle(self, coordinator: str, now_ms: int, most_bytes: int) -> Decision[int]:
        """The outcome of a coordinator that decides participants, in the records of some of them: of one, and of as
        many more as ``most_bytes`` take. The reply: of how many, 0: of none any more. UnknownTransactionError."""
        records: list[Change] = []
        size = 0
        for state, commit in self.participants.undecided(self._find(coordinator)):
            ended = _decided(state, commit, now_ms, state.epoch + 1)
            key, value = encode_key(ended.transactional_id), encode_value(ended)
            size += len(key) + len(value)
            if records and size > most_bytes:
                break
            records.append((key, value))
        return Decision(tuple(records), len(records))

    def decide_marked(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Collection[TopicPartition],
        now_ms: int,
    ) -> Decision[tuple[TopicPartition, ...]]:
        """These places have the durable markers of the transaction that ended with markers of ``epoch``, or are
        deleted. The reply: those that lack one still; when none does the transaction is complete, but for one that
        commits participants: it is after those.

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
        # That of a decision over participants stays: what begins after it is no part of it.
        updated_ms = now_ms if state.decides is None else state.updated_ms
        if left:
            return _decision(replace(state, places=left, updated_ms=updated_ms), left)
        if not self.participants.are_complete(state):
            return (
                _decision(replace(state, places=(), updated_ms=updated_ms), ())
                if state.places
                else Decision((), ())
            )
        commit = state.status == _Status.PREPARE_COMMIT
        status = _Status.COMPLETE_COMMIT if commit else _Status.COMPLETE_ABORT
        return _decision(replace(state, status=status, places=(), decides=None, updated_ms=now_ms), ())

    # --- for the reaper ---

    def decide_resolve(
        self,
        transactional_id: str,
        now_ms: int,
        *,
        fence: bool = False,
        prepared_max_age_ms: int | None = None,
    ) -> Decision[EndedTransaction | None]:
        """The caller knows that the owner is gone, or may overrule it: a transaction under way is aborted; the reply
        is what is left to mark of that, or of one that was decided before; None: nothing is under way.

        ``fence``: the producer may not go on afterwards; else it may begin another transaction.
        ``prepared_max_age_ms``: one that is prepared for no longer is left to its coordinator; None: it is aborted,
        too. What the coordinator has committed is committed in any case. UnknownTransactionError.
        """
        state = self._find(transactional_id)
        if state.status != _Status.ONGOING:
            return Decision((), state.ended)
        committed = self.participants.is_committed(state)
        patient = prepared_max_age_ms is not None and state.is_waiting(now_ms, prepared_max_age_ms)
        if patient and not committed:
            return Decision((), None)
        epoch = state.epoch + (2 if fence and not committed else 1)
        ended = _decided(state, committed, now_ms, epoch, self._decides(transactional_id))
        return _decision(ended, ended.ended)

    def expired(self, now_ms: int, expiration_ms: int) -> list[str]:
        """Ids with nothing under way and no change for ``expiration_ms`` (Kafka's transactional.id.expiration.ms),
        but none that begins with ``EXEMPT_PREFIX``, save participants and ``EXPIRING_PREFIX``; sorted."""
        return sorted(
            name
            for name, state in self._states.items()
            if state.status in _IDLE and now_ms - state.updated_ms >= expiration_ms and not _is_exempt(state)
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
        self.participants.note(before, state)
        if before is not None and self._ids.get(before.producer_id) == transactional_id:
            del self._ids[before.producer_id]
        if state is None:
            self._states.pop(transactional_id, None)
            self._outcomes.pop(transactional_id, None)
            self._under_way.pop(transactional_id, None)
            return
        self._states[transactional_id] = state
        reopened = (
            state.status == _Status.EMPTY or state.status.is_decided
        )  # or what is of no places is decided
        if before is not None and before.status in _COMPLETE and reopened:
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
            f"{epoch}, {verb(committed)}"
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


def _is_exempt(state: TransactionState) -> bool:
    name = state.transactional_id
    once = name.startswith(EXPIRING_PREFIX) or state.coordinator is not None
    return name.startswith(EXEMPT_PREFIX) and not once


def _opened(
    transactional_id: str, producer_id: int, epoch: int, timeout_ms: int, now_ms: int
) -> TransactionState:
    return TransactionState(transactional_id, producer_id, epoch, timeout_ms, _Status.EMPTY, (), now_ms, -1)


def _decided(
    state: TransactionState,
    commit: bool,
    now_ms: int,
    epoch: int,
    decides: tuple[PreparedTransaction, ...] | None = None,
) -> TransactionState:
    return replace(
        state,
        status=_Status.PREPARE_COMMIT if commit else _Status.PREPARE_ABORT,
        epoch=min(epoch, HIGHEST_EPOCH),
        updated_ms=now_ms,
        prepared_ms=-1,
        decides=decides,
    )


def _as_ended(state: TransactionState, commit: bool) -> EndedTransaction:
    ended = state.ended
    if ended is not None:
        return ended
    return EndedTransaction(state.transactional_id, state.producer_id, state.epoch, commit, state.places)


def _decision(state: TransactionState, reply: Reply) -> Decision[Reply]:
    return Decision(((encode_key(state.transactional_id), encode_value(state)),), reply)
