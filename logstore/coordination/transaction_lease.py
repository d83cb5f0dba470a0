"""``CoordinatedLease``: one opening of a transactional id, and its transaction under way.

What the coordinator's log says counts. The lease remembers which transaction is its own (producer id and epoch), so
that it notices when another process moved on: a newer opening of the id (then it is fenced for good), or an abort by
the timeout or an administrator (then it may begin another one).
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Mapping

from logstore.api.groups import MemberIdentity
from logstore.api.transactions import PreparedTransaction
from logstore.coordination.transaction_operations import TransactionOperations
from logstore.coordination.transaction_runtime import IdLock
from logstore.errors import (
    LogStoreError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
    TransactionTimedOutError,
)
from logstore.machine import TransactionalWriter
from logstore.transactions.coordinator import (
    EndedTransaction,
    InitReply,
    TransactionState,
    TransactionStatus,
)
from logstore.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)


class CoordinatedLease:
    """A ``TransactionLease``. Thread-safe: every change is made under the id's guard. ``places``: of the transaction
    under way, as far as the coordinator knows them; ``id_lock``: None once it was handed over or released;
    ``coordinator``: the id that decides what this one prepares; ``prepared``: what waits for that; ``era``: of the
    coordinator, as it was opened."""

    def __init__(
        self,
        manager: TransactionOperations[CoordinatedLease],
        transactional_id: str,
        timeout_ms: int,
        id_lock: IdLock,
        reply: InitReply,
        coordinator: str | None = None,
        *,
        era: int = 0,
    ) -> None:
        self._manager = manager
        self.era = era
        self._guard = manager.guard(transactional_id)
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.id_lock: IdLock | None = id_lock
        self.producer_id = reply.producer_id
        self.epoch = reply.epoch
        self.coordinator = coordinator
        self.prepared: PreparedTransaction | None = None
        self._deciding: tuple[PreparedTransaction, ...] = ()  # of the commit under way
        self.places: set[TopicPartition] = set()
        self.begun = False  # the coordinator may know of a transaction of ours
        self.unfinished: EndedTransaction | None = None  # decided, its markers are not all there
        self._begun_behind = False  # a former coordinator has begun the next one
        self._marked: EndedTransaction | None = None  # they are, and the coordinator has not been told
        self._ended_by: LogStoreError | None = None
        self._fenced = False
        self._doubted: tuple[int, int] | None = None  # producer id and epoch of a commit that got no answer
        self._last: tuple[TransactionalWriter, bool] | None = None  # that ended: under what it ran, and how
        self._renewed: TransactionalWriter | None = None  # what was spent when the id was opened anew
        # Of a prepared one, ended without a call of its producer.
        self._decided: TransactionalWriter | None = None
        self._lost: LogStoreError | None = None  # the coordinator is another process's now

    # --- for the producer ---

    def begin(self, writer: TransactionalWriter | None = None) -> None:
        with self._guard:
            self._check_fenced()
            self._follow_decision()
            if writer not in (self._renewed, self._decided) or self.begun:
                self._check_current(writer)
            self._ended_by = None
            if self.unfinished is not None:
                self._finish(self.unfinished)
            if self._manager.is_spent(self.epoch):
                self.tell()
                own = (self.producer_id, self.epoch)
                reply = self._manager.initialise(
                    self.transactional_id,
                    self.timeout_ms,
                    own,
                    coordinator=self.coordinator,
                    keep_prepared=True,
                )
                self._renewed = TransactionalWriter(*own)
                self.producer_id, self.epoch = reply.producer_id, reply.epoch

    def _follow_decision(self) -> None:
        """What became of the prepared transaction. TransactionStateError: nothing yet; ProducerFencedError."""
        if self.prepared is None:
            return
        state = self._manager.state_of(self.transactional_id)
        if state is not None and state.is_prepared and state.handle == self.prepared:
            raise self._prepared_error("begin a transaction")
        if state is not None and state.committed_from(self.producer_id, self.epoch):
            self.note_committed(state)
            return
        moved = self._manager.moved_on(self)
        if state is None or isinstance(moved, ProducerFencedError):
            self.fence()
            raise self._fence_error()
        self.note_aborted(state, moved or self._prepared_error("begin a transaction"))

    def add_partitions(
        self,
        places: Collection[TopicPartition],
        *,
        offsets: bool = False,
        writer: TransactionalWriter | None = None,
    ) -> None:
        with self._guard:
            self._check_under_way()
            self._check_current(writer)
            wanted = set(places)
            if offsets and (only := self._manager.only_offsets_place) is not None:
                wanted.add(only)  # else ``send_offsets`` adds the group's
            if not wanted <= self.places:
                self._add(wanted)

    def _add(self, places: Collection[TopicPartition]) -> None:
        self._check_under_way()
        self._finish_taken_up()
        wanted = tuple(sorted(places))
        writer = TransactionalWriter(self.producer_id, self.epoch)
        try:
            self._manager.add_partitions(self.transactional_id, writer, wanted, self._marked)
        except OutcomeUnknownError:
            self.begun = True  # it may be in
            raise
        except (ProducerFencedError, TransactionStateError) as error:
            raise self._why(error) from error
        self.begun = True
        self._marked = self._decided = None
        self.places.update(wanted)

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None = None,
        writer: TransactionalWriter | None = None,
    ) -> None:
        with self._guard:
            self._check_under_way()
            self._check_current(writer)
            place = self._manager.offsets_place(group)
            if place not in self.places:
                self._add((place,))
            self._manager.send_offsets(
                group, offsets, TransactionalWriter(self.producer_id, self.epoch), member
            )

    def prepare(self, writer: TransactionalWriter | None = None) -> PreparedTransaction | None:
        with self._guard:
            if self.prepared is not None:
                self._check_fenced()
                self._check_current(writer)
                return self.prepared
            self._check_under_way()
            self._check_current(writer)
            if self.begun or self.coordinator is None:
                self.prepared = self._prepare()
            return self.prepared

    def _prepare(self) -> PreparedTransaction:
        def ask() -> PreparedTransaction:
            now_ms = self._manager.now_ms()
            return self._manager.coordinator().decide(
                lambda machine: machine.decide_prepare(
                    self.transactional_id, self.producer_id, self.epoch, now_ms
                )
            )

        try:
            try:
                return ask()
            except OutcomeUnknownError:
                return ask()  # the coordinator's log is recovered first, and says whether it is prepared
        except (ProducerFencedError, TransactionStateError) as error:
            raise self._why(error) from error

    def end(
        self,
        *,
        commit: bool,
        prepared: Collection[PreparedTransaction] = (),
        writer: TransactionalWriter | None = None,
    ) -> None:
        with self._guard:
            try:
                self._end(commit, tuple(prepared), writer)
            except ProducerFencedError:
                if not commit or not self._was_committed():
                    raise

    def _end(
        self, commit: bool, prepared: tuple[PreparedTransaction, ...], writer: TransactionalWriter | None
    ) -> None:
        self._check_lost()
        repeated = self._last is not None and writer == self._last[0]
        if not (repeated or self._fenced):
            self._check_current(writer)
            self._finish_taken_up()
        if self.unfinished is not None and self.unfinished.commit == commit:
            self._finish_decided(self.unfinished)
            return
        self._check_fenced()
        if self.prepared is not None:
            raise self._prepared_error("commit" if commit else "abort")
        if self.unfinished is not None and self.unfinished.commit:
            raise self._already(committed=True)
        if self._ended_by is not None:
            if commit:
                raise copy.copy(self._ended_by)
            self._ended_by = None
            return
        if repeated and self._last is not None:
            if self._last[1] != commit:
                raise self._already(committed=self._last[1])
            return
        if prepared or self._doubted is None:  # else it is what the doubtful commit named
            self._deciding = prepared
        decides = self._deciding if commit else self._manager.has_participants(self.transactional_id)
        if self.begun or decides:
            self._finish_decided(self._decide(commit))

    def _already(self, *, committed: bool) -> TransactionStateError:
        if not committed:
            return TransactionStateError(
                f"commit a transaction of {self.transactional_id!r}: it is aborted already",
                hint="send its records in another transaction",
            )
        return TransactionStateError(
            f"abort a transaction of {self.transactional_id!r}: it is committed already",
            hint="call commit() again: it is not everywhere to be seen yet" if self.unfinished else None,
        )

    def _was_committed(self) -> bool:
        """Of a commit that got no answer, once the id is open elsewhere: that opening has finished the transaction.
        TransactionAbortedError: it had not been decided. False: nothing was asked, or the log tells no more."""
        if self._doubted is None:
            return False
        outcome = self._manager.outcome_of(self.transactional_id, *self._doubted)
        if outcome is False:
            raise TransactionAbortedError(
                f"the transaction of {self.transactional_id!r} whose commit got no answer was aborted, by a newer "
                "producer that has the id now",
                hint="open the id again, and send its records in another transaction",
            )
        return outcome is True

    def _decide(self, commit: bool) -> EndedTransaction:
        try:
            ended = self._ask(commit)
        except OutcomeUnknownError:
            self._doubted = (self.producer_id, self.epoch) if commit else None
            self.begun = True  # it may be decided, also one that nothing was sent in
            # Once more: the coordinator's log is recovered first, and says whether it was decided.
            ended = self._ask_again(commit)
        except (ProducerFencedError, TransactionStateError) as error:
            raise self._why(error) from error
        self._note_ended(ended)
        return ended

    def _ask(self, commit: bool) -> EndedTransaction:
        now_ms = self._manager.now_ms()
        prepared = self._deciding if commit else ()
        return self._manager.coordinator().decide(
            lambda machine: machine.decide_end(
                self.transactional_id,
                self.producer_id,
                self.epoch,
                commit=commit,
                now_ms=now_ms,
                prepared=prepared,
            )
        )

    def _ask_again(self, commit: bool) -> EndedTransaction:
        try:
            return self._ask(commit)
        except (TransactionTimedOutError, OutcomeUnknownError):
            raise  # it was not decided; or it is as doubtful as before
        except LogStoreError as error:
            raise OutcomeUnknownError(
                f"whether the transaction of {self.transactional_id!r} is decided is not known: {error.message}",
                hint="call the same again: it asks",
            ) from error

    def _note_ended(self, ended: EndedTransaction) -> None:
        self._note_last(ended.commit)
        self.unfinished, self._marked, self._doubted = ended, None, None
        self.producer_id, self.epoch = ended.producer_id, ended.marker_epoch
        self.begun, self.prepared, self._deciding = False, None, ()
        self.places.clear()

    def _note_last(self, committed: bool) -> None:
        writer = TransactionalWriter(self.producer_id, self.epoch)
        self._last = (writer, committed)
        self._decided = None if self.prepared is None else writer

    def _finish_decided(self, ended: EndedTransaction) -> None:
        try:
            self._finish(ended)
        except LogStoreError as error:
            if not ended.commit:
                # No record of it counts, whichever process writes the rest; the next ``begin`` waits for that.
                logger.warning("an abort of %r is not finished yet: %s", self.transactional_id, error)
                return
            raise OutcomeUnknownError(
                f"the transaction of {self.transactional_id!r} is committed, but not everywhere to be seen yet: "
                f"{error.message}",
                hint="call commit() again to go on with it; the housekeeper goes on with it, too",
            ) from error

    def _finish(self, ended: EndedTransaction) -> None:
        self._manager.finish(ended, wait=True, told=False)
        self.unfinished, self._marked, self._begun_behind = None, None if ended.decides else ended, False

    def _finish_taken_up(self) -> None:
        if self._begun_behind and self.unfinished is not None:
            self._finish(self.unfinished)

    def tell(self) -> None:
        """The coordinator, that the last transaction is complete. No caller waits for that: the next transaction's
        first step does it, or the housekeeper."""
        if self._marked is not None:
            self._manager.tell([(self._marked, self._marked.places)])
            self._marked = None

    def ended_by(self) -> LogStoreError | None:
        if self._lost is not None:
            return copy.copy(self._lost)  # it goes on where its coordinator is
        if self._fenced:
            return self._fence_error()
        if self._ended_by is not None:
            return copy.copy(self._ended_by)
        if not self.begun:
            return None
        error = self._manager.moved_on(self)
        return None if error is None else error

    @property
    def is_closed(self) -> bool:
        """Whether it was released, and not taken away by a newer opening or another coordinator."""
        return self.id_lock is None and not self._fenced and self._lost is None

    def release(self) -> None:
        with self._guard:
            if self.id_lock is None:
                return
            if self._manager.era != self.era:
                self.let_go()  # it may have gone on elsewhere, and is not this one's to end
                return
            open_here = self.begun and self.prepared is None  # what is prepared is its coordinator's
            if open_here and not self._fenced and self._ended_by is None:
                try:
                    self._finish_decided(self._decide(commit=False))
                except LogStoreError as error:
                    logger.warning("the transaction of %r was left open: %s", self.transactional_id, error)
            try:
                self.tell()
            except LogStoreError as error:
                logger.debug("the next opening of %r tells the coordinator: %s", self.transactional_id, error)
            self.let_go()

    # --- for the manager and the housekeeper; the guard is held ---

    def let_go(self) -> IdLock | None:
        """The manager has forgotten the lease, and the id's lock is free."""
        self._manager.forget(self)
        id_lock, self.id_lock = self.id_lock, None
        if id_lock is not None:
            id_lock.release()
        return id_lock

    def lose(self, error: LogStoreError) -> None:
        """Another process runs the coordinator: calls say so from now on, and the end of this lease ends nothing."""
        self._lost = error
        self.let_go()

    def is_under(self, writer: TransactionalWriter) -> bool:
        """Whether it is open, and the producer's calls of now, or the one before, carry this id and epoch."""
        mine = TransactionalWriter(self.producer_id, self.epoch)
        open_here = self.id_lock is not None and not self._fenced and self._lost is None
        return open_here and (writer == mine or (self._last is not None and writer == self._last[0]))

    def take_up(self, state: TransactionState) -> None:
        """Of an opening made elsewhere: the transaction under way, or the outcome that its producer may not know."""
        if state.committed_from(self.producer_id, self.epoch):
            self.note_committed(state)
        elif state.aborted_from(self.producer_id, self.epoch):
            reason = f"the transaction of {self.transactional_id!r} was aborted by its coordinator"
            self.note_aborted(state, TransactionAbortedError(reason, hint="begin another one"))
        elif state.ended is not None:
            self.unfinished, self._begun_behind = state.ended, True
        elif state.status == TransactionStatus.ONGOING:
            self.begun = True
            self.places.update(state.places)
            self.prepared = state.handle if state.is_prepared else None

    def hand_over(self) -> IdLock | None:
        """A newer opening in this process: it is fenced, and the id's lock is that one's."""
        self._fenced = True
        self.begun, self.prepared = False, None
        self.unfinished = self._marked = None  # the newer opening finishes it before it begins anything
        id_lock, self.id_lock = self.id_lock, None
        return id_lock

    def fence(self) -> None:
        """A newer opening elsewhere."""
        self._fenced = True
        self.begun, self.prepared = False, None
        self.unfinished = self._marked = None
        self.let_go()

    def abort_for(self, reason: LogStoreError) -> None:
        """Abort the transaction under way; the producer is told ``reason`` at its next call."""
        self._note_ended(self._ask(False))
        self._ended_by = reason

    def finish_unfinished(self) -> None:
        """What this process can mark without waiting."""
        if self.unfinished is not None:
            self._manager.finish(self.unfinished, wait=False)
            self.unfinished = None
        self.tell()

    def note_committed(self, state: TransactionState) -> None:
        """The commit was decided and its answer got lost; ``end`` has only to go on with it."""
        nothing_left = EndedTransaction(
            self.transactional_id, state.producer_id, state.epoch, True, places=()
        )
        self._note_ended(state.ended or nothing_left)

    def note_aborted(self, state: TransactionState, reason: LogStoreError) -> None:
        """Another process decided the abort; the next transaction runs under the epoch that the abort left."""
        self._note_last(False)
        self.producer_id, self.epoch = state.producer_id, state.epoch
        self.unfinished, self._marked, self._doubted = state.ended, None, None
        self.begun, self.prepared, self._deciding = False, None, ()
        self.places.clear()
        self._ended_by = reason

    # --- whether it is still ours ---

    def _check_under_way(self) -> None:
        self._check_fenced()
        if self._ended_by is not None:
            raise copy.copy(self._ended_by)
        if self.prepared is not None:
            raise self._prepared_error("write")

    def _prepared_error(self, what: str) -> TransactionStateError:
        return TransactionStateError(
            f"{what} under {self.transactional_id!r}: its transaction is prepared, and {self.coordinator!r} decides "
            "it",
            hint="what comes later waits for that decision, or is written under another id",
        )

    def _check_current(self, writer: TransactionalWriter | None) -> None:
        """A call that comes late, or for the second time, must never touch the next transaction."""
        if writer is not None and writer != (self.producer_id, self.epoch):
            raise TransactionStateError(
                f"transactional id {self.transactional_id!r}: a call for the transaction of producer "
                f"{writer.producer_id} and epoch {writer.epoch}, which is over; now it has producer "
                f"{self.producer_id} and epoch {self.epoch}",
                hint="the call came late; begin another transaction",
            )

    def _check_lost(self) -> None:
        if self._lost is not None:
            raise copy.copy(self._lost)

    def _check_fenced(self) -> None:
        self._check_lost()
        if self._fenced:
            raise self._fence_error()
        if self.is_closed:
            raise TransactionStateError(
                f"transactional id {self.transactional_id!r}: its producer was closed", hint="open it again"
            )

    def _fence_error(self) -> ProducerFencedError:
        return ProducerFencedError(
            f"transactional id {self.transactional_id!r} was opened again, by a newer producer; this one had "
            f"producer id {self.producer_id} and epoch {self.epoch}",
            found_epoch=self.epoch,
        )

    def _why(self, error: LogStoreError) -> LogStoreError:
        """What the coordinator's refusal means for this lease."""
        if isinstance(error, TransactionTimedOutError):
            self.abort_for(error)
            return error
        moved = self._manager.moved_on(self)
        if moved is None:
            return error
        if isinstance(moved, ProducerFencedError):
            self.fence()
        elif (state := self._manager.state_of(self.transactional_id)) is not None:
            self.note_aborted(state, moved)
        return moved
