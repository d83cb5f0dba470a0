"""``Transaction``: records of many partitions, and offsets, that readers see all of or none of.

``TransactionControl`` is a producer's side of it: what may be called when, and the order of the steps to an end.
Phases: none -> open -> ending -> none; open -> failed when a delivery or the coordinator says that it cannot be
committed any more (only ``abort`` goes on); ending -> doubtful when it is not known whether a commit was decided
(only ``commit`` again goes on: it asks); open -> prepared, out of which the coordinator's decision leads (``begin``
asks for it); any -> fenced when a newer opening of the id took over.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from logstore.api.backend import Backend
from logstore.api.groups import MemberIdentity, checked_offsets
from logstore.api.transactions import PreparedTransaction, TransactionLease, prepared_handles
from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.consumed_offsets import ConsumedOffsets, OffsetSource, offsets_of
from logstore.client.producer.delivery import Delivery, DeliveryGroup
from logstore.client.producer.sender import Sender
from logstore.client.producer.transaction_sequences import TransactionSequences
from logstore.client.serializers import SendRow
from logstore.errors import (
    ClientClosedError,
    LogStoreError,
    OutcomeUnknownError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
)
from logstore.types import Buffer, Headers, K, OffsetAndMetadata, TopicPartition, V

logger = logging.getLogger(__name__)


class Phase(Enum):
    NONE = "no transaction is open"
    OPEN = "a transaction is open"
    ENDING = "the transaction is being begun or ended by another call"
    FAILED = "the transaction cannot be committed any more: abort it"
    PREPARED = "the transaction is prepared, its coordinator decides it"
    DOUBTFUL = "the outcome of its commit is not known: call commit() again to ask for it"
    FENCED = "a newer producer has this transactional id"


_HINTS: Final = {
    Phase.NONE: "with producer.transaction() as tx: ...",
    Phase.OPEN: "commit or abort it first; transactions do not nest",
    Phase.PREPARED: "begin another one once that is decided",
    Phase.ENDING: "wait for that call: one thread begins and ends a producer's transactions",
}


class TransactionControl:
    """The transactions of one producer, one after the other. Thread-safe.

    ``gate(open)``: called under the accumulator's lock when rows may come in from now on, or no more.
    """

    def __init__(
        self,
        lease: TransactionLease,
        accumulator: Accumulator,
        sender: Sender,
        sequences: TransactionSequences,
        gate: Callable[[bool], None],
    ) -> None:
        self.lease = lease
        self.number = 0  # of the transaction under way, or of the last one
        self.closed_in: int | None = None  # the one that the producer's end cut short
        self._accumulator = accumulator
        self._sender = sender
        self._sequences = sequences
        self._gate = gate
        self._phase = Phase.NONE
        self._fenced: ProducerFencedError | None = None
        self._on_commit: list[Callable[[], None]] = []
        self._deciding: tuple[PreparedTransaction, ...] = ()  # of the commit under way

    @property
    def phase(self) -> Phase:
        return self._phase

    # --- the accumulator's lock is held ---

    def check_open(self) -> None:
        """TransactionStateError, ProducerFencedError: nothing may be sent now."""
        if self._phase is not Phase.OPEN:
            raise self._refusal("a record was sent")

    def _refusal(self, call: str) -> LogStoreError:
        if self._fenced is not None:
            return copy.copy(self._fenced)
        hint = _HINTS.get(self._phase)
        return TransactionStateError(
            f"transactional id {self.lease.transactional_id!r}: {call}, but {self._phase.value}", hint=hint
        )

    def _enter(self, call: str, *phases: Phase) -> Phase:
        """From one of these phases to ``ENDING``, where no other call comes in; the phase it was."""
        with self._accumulator.lock:
            was = self._phase
            if was not in phases:
                raise self._refusal(call)
            self._phase = Phase.ENDING
            self._gate(False)
            return was

    def _leave(self, phase: Phase) -> None:
        with self._accumulator.lock:
            if self._fenced is not None:
                phase = Phase.FENCED
            self._phase = phase
            self._gate(phase is Phase.OPEN)

    def _note(self, error: LogStoreError) -> None:
        if isinstance(error, ProducerFencedError):
            self._fenced = error

    # --- the life of a transaction ---

    def begin(self) -> int:
        """Open the next transaction; its number. Errors of the lease: none is open then."""
        phase = self._enter("begin()", Phase.NONE, Phase.PREPARED)
        try:
            self.lease.begin()
            with self._accumulator.lock:
                self._sequences.begin()
                self._accumulator.stopped = None
            self.number += 1
            self._on_commit.clear()
            phase = Phase.OPEN
        except LogStoreError as error:
            self._note(error)
            raise
        finally:
            self._leave(phase)
        return self.number

    def prepare(self) -> PreparedTransaction | None:
        """Wait for every delivery, then prepare. See ``Transaction.prepare``."""
        was = self._enter("prepare()", Phase.OPEN, Phase.PREPARED)
        after = Phase.FAILED if was is Phase.OPEN else was
        try:
            if was is Phase.OPEN:
                self._deliver()
            handle = self.lease.prepare()
            after = Phase.NONE if handle is None else Phase.PREPARED
            return handle
        except LogStoreError as error:
            self._note(error)
            raise
        finally:
            self._leave(after)

    def commit(self, prepared: Iterable[PreparedTransaction] = ()) -> None:
        """Wait for every delivery, then commit. See ``Transaction.commit``."""
        handles = prepared_handles(prepared)
        was = self._enter("commit()", Phase.OPEN, Phase.DOUBTFUL)
        after = was
        if was is Phase.OPEN:
            self._deciding = (
                handles  # the same again while it is in doubt: the first call may not have arrived
            )
        try:
            if was is Phase.OPEN:
                after = Phase.FAILED
                self._deliver()
            after = Phase.DOUBTFUL  # should this thread be interrupted from here on
            self.lease.end(commit=True, prepared=self._deciding)
            after = Phase.NONE
            for noted in self._on_commit:
                noted()
        except OutcomeUnknownError:
            raise  # doubtful, if it was the commit's; a delivery's is a failure
        except LogStoreError as error:
            if after is Phase.DOUBTFUL:
                after = was
            self._note(error)
            if self.lease.ended_by() is not None:
                after = Phase.FAILED
            raise
        finally:
            self._leave(after)

    def _deliver(self) -> None:
        """Everything queued has its outcome; the first failure is raised."""
        accumulator = self._accumulator
        with accumulator.lock:
            waiting = accumulator.unfinished()
        self._sender.finish(waiting, None)
        with accumulator.lock:
            failure = accumulator.stopped
            accumulator.take_unreported()  # told here, or by the deliveries themselves
        if failure is None:
            return
        ended = self.lease.ended_by()
        error = copy.copy(failure if ended is None else ended)
        error.add_note("the transaction cannot be committed: abort it, and begin another one")
        raise error

    def abort(self) -> None:
        """Drop what was not sent, wait for what is on its way, then abort. See ``Transaction.abort``."""
        self._enter("abort()", Phase.OPEN, Phase.FAILED)
        phase = Phase.FAILED
        try:
            self._drop_waiting()
            self.lease.end(commit=False)
            phase = Phase.NONE
        except LogStoreError as error:
            self._note(error)
            raise
        finally:
            self._leave(phase)

    def _drop_waiting(self) -> None:
        accumulator = self._accumulator
        with accumulator.lock:
            if accumulator.stopped is None:
                accumulator.stopped = TransactionAbortedError(
                    f"transactional id {self.lease.transactional_id!r}: the transaction was aborted"
                )
            dropped = accumulator.stop_waiting()
            flying = accumulator.unfinished()
        self._sender.announce(dropped)
        self._sender.finish(flying, None)
        with accumulator.lock:
            accumulator.take_unreported()

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        accumulator = self._accumulator
        with accumulator.lock:
            if self._phase is not Phase.OPEN:
                raise self._refusal("offsets were sent")
            waiting = accumulator.unfinished()
            # Now, as the thread that sends may take full ones while the coordinator is asked: the rest goes with them.
            for batch in waiting:
                batch.wanted = True
        try:
            # One step for all that waits, too; and then that is made durable beside the offsets.
            self._sequences.prepare(waiting, offsets=True)
            self._sender.wake()
            self.lease.send_offsets(group, offsets, member)
        except LogStoreError as error:
            self._note(error)
            ended = self.lease.ended_by()
            with accumulator.lock:
                if accumulator.stopped is None and ended is not None:
                    accumulator.stopped = ended
            raise
        if on_commit is not None:
            self._on_commit.append(on_commit)

    def close(self) -> None:
        """The producer ends: what is open is aborted. A failure is logged: the coordinator's timeout, or the next
        opening of the id, ends the transaction."""
        if self._phase in (Phase.OPEN, Phase.FAILED):
            self.closed_in = self.number
            try:
                self.abort()
            except LogStoreError:
                logger.exception("closing a producer: its transaction could not be aborted")


SentKey = TypeVar("SentKey", contravariant=True)
SentValue = TypeVar("SentValue", contravariant=True)


class RecordSender(Protocol[SentKey, SentValue]):
    """What a transaction needs of its ``Producer``."""

    def send(
        self,
        topic: str,
        value: SentValue | None = None,
        *,
        key: SentKey | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery: ...
    def send_many(
        self, topic: str, rows: Iterable[SendRow[SentKey, SentValue]], *, partition: int | None = None
    ) -> DeliveryGroup: ...
    def send_batch(self, topic: str, partition: int, buffer: Buffer) -> DeliveryGroup: ...


class Transaction(Generic[K, V]):
    """``with producer.transaction() as tx:`` commits when the block ends well, aborts when it raises.

    Readers with ``isolation="read_committed"`` see all of it or nothing, per partition in the order sent. Made by
    ``Producer.transaction`` and ``Producer.begin``; belongs to one producer, whose threads may share it.
    """

    def __init__(
        self,
        producer: RecordSender[K, V],
        backend: Backend,
        control: TransactionControl,
        rewind: ConsumedOffsets | None = None,
    ) -> None:
        self._backend = backend
        self._producer = producer
        self._control = control
        self._rewind = rewind
        self._number = 0  # of this transaction, once it has begun

    def begin(self) -> None:
        """``with`` does this. TransactionStateError: this one has begun, or another is open."""
        if self._number:
            raise TransactionStateError("this transaction has begun already", hint="producer.transaction()")
        self._number = self._control.begin()

    def _current(self, call: str) -> TransactionControl:
        control = self._control
        if self._number != control.number or control.phase is Phase.NONE:
            raise TransactionStateError(
                f"{call} in a transaction that is not open", hint="with producer.transaction() as tx: ..."
            )
        return control

    def check_open(self, call: str) -> None:
        """TransactionStateError unless something may go in."""
        self._current(call)

    # --- what goes in ---

    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """``Producer.send``. The delivery says that the record is in; whether it counts, the commit says."""
        self._current("send()")
        return self._producer.send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
        )

    def send_many(
        self, topic: str, rows: Iterable[SendRow[K, V]], *, partition: int | None = None
    ) -> DeliveryGroup:
        """``Producer.send_many``."""
        self._current("send_many()")
        return self._producer.send_many(topic, rows, partition=partition)

    def send_batch(self, topic: str, partition: int, buffer: Buffer) -> DeliveryGroup:
        """``Producer.send_batch``."""
        self._current("send_batch()")
        return self._producer.send_batch(topic, partition, buffer)

    def send_offsets(self, consumer: OffsetSource) -> None:
        """The consumer's positions, as its ``commit`` would take them, count when this transaction does.

        InvalidArgumentError for a consumer without a group, or of another store. StaleGenerationError: another
        member has partitions now whose records were handed out here and not committed; then the transaction must
        be aborted.
        """
        control = self._current("send_offsets()")
        offsets = offsets_of(consumer, "send_offsets()", self._backend)
        group, member, points = offsets.points()
        if points:
            control.send_offsets(group, points, member, lambda: offsets.note_committed(points))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """The next offsets to read of any group, as ``LogStore.commit_offsets``; they count when this does."""
        self._current("commit_offsets()").send_offsets(group, checked_offsets(offsets), None)

    # --- the end ---

    def prepare(self) -> PreparedTransaction | None:
        """Wait for every delivery, then leave the outcome to the producer's ``transaction_coordinator``: all of it is
        durable, nothing more goes in, and it waits whatever becomes of this producer.

        What comes back goes, pickled or as it is, to who commits the coordinator's transaction; None: nothing was
        sent, nothing is to be decided. Safe to call again; the block may be left. Errors as for ``commit``, and
        TransactionStateError without a coordinator.
        """
        return self._current("prepare()").prepare()

    def commit(self, *, prepared: Iterable[PreparedTransaction] = ()) -> None:
        """Wait for every delivery, then commit; returns when every partition shows it.

        ``prepared``: of other producers, whose ``transaction_coordinator`` is this one's id: one record commits them
        and this transaction together, and what else waits for the id is aborted. TransactionStateError: one of them
        was aborted or fenced since; then nothing is decided, and an abort aborts all of them.
        If a delivery failed, its error is raised, and ``abort`` is all that is left. TransactionTimedOutError: it
        took longer than ``transaction_timeout_ms`` and was aborted. OutcomeUnknownError: the commit may be decided,
        or is and its last step failed; it is never to be aborted, and calling ``commit`` again asks and goes on.
        Other errors: nothing was decided, try again or abort.
        """
        self._current("commit()").commit(prepared)

    def abort(self) -> None:
        """Nothing of it counts. What was not sent yet gets TransactionAbortedError. TransactionStateError after a
        commit of unknown outcome. With ``rewind`` the consumer goes back to its committed positions."""
        self._current("abort()").abort()
        if self._rewind is not None:
            self._rewind.rewind()

    def __enter__(self) -> Transaction[K, V]:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or abort if an exception leaves the block. A commit that is refused is aborted, unless its
        outcome is unknown; then the error is raised. ClientClosedError: the producer was closed in the block."""
        control = self._control
        if self._number != control.number or control.phase is Phase.NONE:
            if error is None and control.closed_in == self._number:
                raise ClientClosedError(
                    "the producer was closed before the transaction's end: nothing of it counts",
                    hint="close the producer after the block",
                )
            return  # ended in the block
        if control.phase is Phase.PREPARED:
            return  # its coordinator ends it
        if error is None:
            try:
                control.commit()
            except LogStoreError as refusal:
                if control.phase in (Phase.OPEN, Phase.FAILED):
                    self._abort_after(refusal)
                raise
        elif control.phase in (Phase.OPEN, Phase.FAILED):
            self._abort_after(error)

    def _abort_after(self, error: BaseException) -> None:
        """The error that leaves the block goes on, whatever becomes of the abort."""
        try:
            self.abort()
        except LogStoreError as failure:
            error.add_note(f"and the transaction could not be aborted: {failure}")
            logger.warning("a transaction could not be aborted: %s", failure)
