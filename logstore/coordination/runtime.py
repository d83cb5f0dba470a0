"""An internal topic that many threads and processes write, a record or two at a time, through a state machine.

A write decides on the newest state, appends, replays, and waits for the commit (embedded: a sync), with the log held
(``coordinated_log.py``). Threads that come meanwhile share one hold, one batch and one commit (group commit): one of
them leads, decides for the others one after the other, each on the state that the one before made, appends once for all
and waits once. No request is answered before that. If the log refuses the batch, they are decided anew, one by one, so
that those that fit go in. What a refused commit leaves behind is not known: then all that was decided in the group
fails, and the machine is made anew from what the log holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final, Generic, TypeAlias, TypeVar

from logstore.coordination.commit_queue import CommitQueue, Request
from logstore.coordination.coordinated_log import CoordinatedLog, HeldLog, KeepsState
from logstore.coordination.followed_machine import FollowedMachine
from logstore.coordination.store_view import StoreView
from logstore.errors import (
    CorruptBatchError,
    LogStoreError,
    OffsetMismatchError,
    OutcomeUnknownError,
    PartitionPoisonedError,
    from_os_error,
)
from logstore.format.batch import encode_batch
from logstore.format.varint import INT32_MAX
from logstore.log.append_validation import own_batch
from logstore.log.log_offsets import Waiter
from logstore.log.producers.producer_state import SEQUENCE_MASK, Marker
from logstore.machine import Change, Decision, StateMachine, TransactionalWriter
from logstore.partition.coordinator_log import damaged
from logstore.partition.partition import PendingAppend, result_of, wait_all

Reply = TypeVar("Reply")
Machine = TypeVar("Machine", bound=StateMachine)
Queued: TypeAlias = Request[HeldLog]
_READ_BYTES: Final = 1 << 20
_UNKNOWN: Final = (OutcomeUnknownError, PartitionPoisonedError)  # of an append that may be in the log
_MOST_GATHERED_BYTES: Final = 64 << 10
_LARGEST_GROUP: Final = 256  # requests that share a sync: more would keep the first of them waiting


class CoordinatorRuntime(Generic[Machine]):
    """``Coordinator`` on an internal topic of one partition, which its processes write by turns. Thread-safe.

    ``make_machine``: an empty machine; it is replayed from the start if records that were seen are lost.
    ``groups``: how often several requests shared a sync.
    """

    def __init__(self, context: StoreView, log: CoordinatedLog, make_machine: Callable[[], Machine]) -> None:
        self._context = context
        self._log = log
        self._states = log if isinstance(log, KeepsState) else None
        self._era = log.era
        self._followed: FollowedMachine[Machine] = FollowedMachine(make_machine)
        self._mutex = Lock()  # around the machine; taken last
        self._line: CommitQueue[HeldLog] = CommitQueue()
        self._waiters: dict[Waiter, None] = {}
        self._pending: list[PendingAppend] = []  # of the group that is served
        # Decided on by the group that is served, and not in the log yet.
        self._gathered: list[tuple[Queued, Sequence[Change]]] = []
        self._gathered_bytes = 0
        self._refused: LogStoreError | None = None  # the log did not take what the group had gathered
        self._one_by_one = False
        self._given_up: Queued | None = None
        self.groups = 0

    # --- writing ---

    def decide(
        self, decide: Callable[[Machine], Decision[Reply]], *, patience_s: float | None = None
    ) -> Reply:
        """See ``Coordinator``. The decisions of several threads share a batch and a sync."""

        def work(held: HeldLog, request: Queued) -> Reply:
            decision = decide(self._followed.machine)
            if decision.records:
                if decision.producer is None and not self._one_by_one:
                    self._gather(decision.records, held, request)
                else:
                    self._append_gathered(held)
                    self._append(decision.records, held, decision.producer)
                request.wrote = True
                self._followed.took(decision, self._followed.applied + len(decision.records))
            return decision.reply

        reply: Reply = self._submit(work, patience_s)
        return reply

    def _gather(self, records: Sequence[Change], held: HeldLog, request: Queued) -> None:
        """They come into the log with those of their neighbours in the group, in one batch: a batch for each
        would cost more than deciding on it."""
        size = sum(map(_size_of, records))
        if self._gathered and self._gathered_bytes + size > _MOST_GATHERED_BYTES:
            self._append_gathered(held)
        self._gathered.append((request, records))
        self._gathered_bytes += size

    def _append_gathered(self, held: HeldLog) -> None:
        """After an error nothing of it is in the log, unless the error is one of ``_UNKNOWN``."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if not gathered:
            return
        try:
            self._append([record for _, records in gathered for record in records], held, None)
        except LogStoreError as error:
            self._refused = error
            if not isinstance(error, _UNKNOWN):
                for request, _ in gathered:
                    request.wrote = False
                if len(gathered) == 1:  # it had the batch for itself: to try again would be no other
                    self._given_up = gathered[0][0]
                    self._given_up.error = error
            raise

    def _append(self, records: Sequence[Change], held: HeldLog, writer: TransactionalWriter | None) -> None:
        batch = encode_batch(records, now_ms=self._now_ms(), **_of_writer(held, writer))
        self._pending.append(held.append([own_batch(batch)]))

    def end_transaction(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> None:
        """See ``Coordinator``."""

        def work(held: HeldLog, request: Queued) -> None:
            if _may_be_open(held, producer_id, epoch):
                self._end(
                    held, request, Marker(producer_id, epoch, coordinator_epoch, commit, self._now_ms())
                )

        self._submit(work)

    def end_hanging(self, producer_id: int, epoch: int, start_offset: int) -> None:
        """See ``Coordinator``."""

        def work(held: HeldLog, request: Queued) -> None:
            self._end(held, request, Marker(producer_id, epoch, 0, False, self._now_ms()), start_offset)

        self._submit(work)

    def _end(self, held: HeldLog, request: Queued, marker: Marker, open_since: int = -1) -> None:
        self._append_gathered(held)
        pending = held.append_marker(marker, open_since=open_since)
        self._pending.append(pending)
        request.wrote = True
        self._followed.ended(marker, pending.next_offset)

    def _now_ms(self) -> int:
        return self._context.clock.wall_ms()

    def _submit(self, work: Callable[[HeldLog, Queued], Any], patience_s: float | None = None) -> Any:
        most_s = self._context.lock_timeout_s
        left_s = most_s if patience_s is None else min(patience_s, most_s)
        deadline_s = self._context.clock.monotonic_s() + left_s
        while True:
            request = self._served(work, left_s)
            if request.error is None:
                return request.reply
            left_s = deadline_s - self._context.clock.monotonic_s()
            if not isinstance(request.error, OffsetMismatchError):
                raise request.error
            if left_s <= 0:
                raise self._log.doubt(request.error, wrote=False) from request.error

    def _served(self, work: Callable[[HeldLog, Queued], Any], patience_s: float) -> Queued:
        """OffsetMismatchError as its error: the log went on beneath the hold; it is decided anew, on what came."""
        self._context.check_writable()
        request = Request(work, self._context.clock.monotonic_s())
        if self._line.join(request, lambda turn: self._log.await_turn(turn, patience_s)):
            self._lead(request, patience_s)
        return request

    def _lead(self, mine: Queued, patience_s: float) -> None:
        group: list[Queued] = []
        try:
            self._serve_group(mine, group, patience_s)
        except BaseException as error:
            if not group:  # the log could not be had: the next in line tries for itself
                self._line.take()
            if not isinstance(error, LogStoreError):
                raise  # an interrupt of this thread: no other thread may lead the group
            if not group:
                mine.error = error
        finally:
            self._line.hand_on()
            for request in group:
                if request is not mine:
                    request.wake()
        if any(request.wrote for request in group):
            self._tell_waiters()

    def _serve_group(self, mine: Queued, group: list[Queued], patience_s: float) -> None:
        waited_s = self._context.clock.monotonic_s() - mine.since_s
        with self._log.held(patience_s - waited_s) as held, self._mutex:
            self._catch_up(held)
            self._refused = None
            try:
                while len(group) < _LARGEST_GROUP and (request := self._line.take()) is not None:
                    group.append(request)
                    self._serve(request, held)
                    self._settle_refusal(group, held)
                with suppress(LogStoreError):
                    self._append_gathered(held)
                self._settle_refusal(group, held)
                if not self._pending and any(map(_is_refused, group)):
                    self._log.confirm()  # nothing of the group shows whether the log is another process's by now
                self._commit()
            except BaseException as error:
                self._doubt(group, error)
                raise
            if len(group) > 1:
                self.groups += 1

    def _commit(self) -> None:
        """Wait until all that the group appended is durable: one sync."""
        pending, self._pending = self._pending, []
        wait_all(pending)
        for append in pending:
            result_of(append)

    def _settle_refusal(self, group: Sequence[Queued], held: HeldLog) -> None:
        """If the log refused what was gathered, what the group decided since rests on nothing. One by one, then."""
        refused, self._refused = self._refused, None
        if refused is None:
            return
        if isinstance(refused, _UNKNOWN):
            raise refused
        self._one_by_one = True
        try:
            self._followed.start_over()
            self._commit()
            self._catch_up(held)
            for request in group:
                if not request.wrote and request is not self._given_up:
                    request.error = None
                    self._serve(request, held)
        finally:
            self._one_by_one, self._given_up = False, None

    def _serve(self, request: Queued, held: HeldLog) -> None:
        try:
            request.reply = request.work(held, request)
        except Exception as error:  # noqa: BLE001 - carried to its caller; the others of the group go on
            request.error = error
            if request.wrote and not self._refused:
                self._append_gathered(held)
                self._followed.start_over()  # the machine refused what it had decided itself
                self._commit()
                self._catch_up(held)
        request.unsure = bool(self._pending or self._gathered)
        request.served = True

    def _doubt(self, group: list[Queued], why: BaseException) -> None:
        """The sync failed, or never was: what depends on it must not be taken for granted."""
        self._followed.start_over()
        self._pending.clear()
        self._gathered, self._gathered_bytes = [], 0
        for request in group:
            if request.wrote or not request.served:
                request.error = self._log.doubt(why, wrote=True)
            elif request.unsure or _is_refused(request):
                request.error = self._log.doubt(why, wrote=False)

    def _catch_up(self, held: HeldLog) -> None:
        """The lock is held: replay all that there is."""
        self._start_over_in_another_era()
        if held.log_end_offset < self._followed.applied:
            self._followed.start_over()
        self._replay(held.log_end_offset)

    def _start_over_in_another_era(self) -> None:
        era = self._log.era
        if era != self._era:
            self._followed.start_over()
            self._era = era

    # --- reading ---

    def look(self, look: Callable[[Machine], Reply]) -> Reply:
        """Replay what others have appended and synced, and read the state; needs no lock of the store."""
        with self._mutex:
            self._context.check_usable()
            before = self._followed.applied
            self._replay(self._committed_end())
            moved = self._followed.applied != before
            answer = look(self._followed.machine)
        if moved:
            self._tell_waiters()
        return answer

    def confirm(self) -> None:
        """See ``Coordinator``."""
        self._context.check_usable()
        self._log.confirm()

    def follow_some(self) -> bool:
        """Replay a piece of what there is, of a megabyte or so; True: nothing is left. Errors as ``look``."""
        with self._mutex:
            self._context.check_usable()
            end = self._committed_end()
            self._replay(end, most=1)
            return self._followed.applied >= end

    def _committed_end(self) -> int:
        """Where what may be replayed ends; a machine that is past it begins anew. The mutex is held."""
        try:
            end = self._log.offsets().high_watermark
        except OSError as error:
            raise from_os_error(error, "read", self._log.directory) from error
        self._start_over_in_another_era()
        if end < self._followed.applied:
            self._followed.start_over()
        return end

    def unload(self) -> None:
        """Forget what was replayed, where this process does not run the coordinator any more."""
        with self._mutex:
            if self._followed.applied and self._log.lost() is not None:
                self._followed.start_over()

    def changed(self) -> bool:
        """Whether there is anything that was not replayed yet: cheap, for callers that poll."""
        return self._log.has_more(self._followed.applied)

    @property
    def era(self) -> int:
        """See ``Coordinator``."""
        return self._log.era

    def lost(self) -> LogStoreError | None:
        """See ``Coordinator``."""
        return self._log.lost()

    def subscribe(self, event: Waiter) -> None:
        """``event.set()`` whenever this process has appended or replayed something; for what other processes
        append ask ``changed`` now and then."""
        with self._mutex:
            self._waiters[event] = None

    def unsubscribe(self, event: Waiter) -> None:
        with self._mutex:
            self._waiters.pop(event, None)

    def _tell_waiters(self) -> None:
        for waiter in tuple(self._waiters):
            waiter.set()

    def _replay(self, end: int, most: int = INT32_MAX) -> None:
        """Up to ``end``, which is synced, or so many pieces. The mutex is held."""
        followed = self._followed
        while followed.applied < end and most > 0:
            most -= 1
            try:
                kept = None if self._states is None else self._states.state_before(followed.applied)
                if kept is not None:
                    followed.load(*kept)
                    continue
                chunk = self._log.read(followed.applied, _READ_BYTES, end)
                if chunk is None:
                    return
                followed.follow(chunk)
            except CorruptBatchError as error:
                followed.start_over()
                raise damaged(self._log.where, error) from error
            except OSError as error:
                followed.start_over()
                raise from_os_error(error, "read", self._log.directory) from error
            except BaseException:
                followed.start_over()  # an interrupt or a bad batch: how much of the chunk was taken is not known
                raise

    def close(self) -> None:
        """See ``CoordinatorLog.close``."""
        self._log.close()


def _is_refused(request: Queued) -> bool:
    return isinstance(request.error, LogStoreError)


def _size_of(change: Change) -> int:
    key, value = change
    return len(key) + len(value or b"") + 16


def _of_writer(held: HeldLog, writer: TransactionalWriter | None) -> dict[str, Any]:
    """What a batch says of its producer. A coordinator writes for the producer, which numbers no batches here:
    they go on where the log's newest of that epoch ends, so that a log's checks and tools find them in order."""
    if writer is None:
        return {}
    entry = held.producer_entries((writer.producer_id,)).get(writer.producer_id)
    last = entry.last_sequence if entry is not None and entry.epoch == writer.epoch else -1
    return {
        "producer_id": writer.producer_id,
        "producer_epoch": writer.epoch,
        "base_sequence": (last + 1) & SEQUENCE_MASK,
        "transactional": True,
    }


def _may_be_open(held: HeldLog, producer_id: int, epoch: int) -> bool:
    """Whether the transaction that a marker of ``epoch`` ends may lack it here."""
    entry = held.producer_entries((producer_id,)).get(producer_id)
    return entry is None or entry.epoch != epoch
