"""``TransactionManager``: the coordinator's topic, and the ids that are open in this process.

The order of durability: the coordinator's record of a partition, data, the decision (prepare), markers, and last
the coordinator's record that all is done. A crash after the decision is finished, a crash before it is aborted, by
whichever process gets the lock of the id (``transaction_reaper.py``): that is proof that its owner is gone. Only the
process that has the lock, or opens the id, writes its markers, or whoever finishes its coordinator's outcome; a place
that has its marker gets no second one, so that none can hit a later transaction.

A coordinator's outcome reaches its participants in steps that may be repeated: their own records, their markers, and
last the coordinator's completion. Whoever finishes the coordinator finishes them.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Mapping

from logstore.api.groups import MemberIdentity
from logstore.coordination.coordinator import Coordinator, Coordinators
from logstore.coordination.store_view import StoreView
from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.coordination.transaction_markers import MarkerWriter
from logstore.coordination.transaction_runtime import IdLock, TransactionRuntime
from logstore.coordination.transactional_offsets import TransactionalOffsets
from logstore.errors import (
    LogStoreError,
    ProducerFencedError,
    TopicLockedError,
    TransactionAbortedError,
    UnknownTransactionError,
)
from logstore.machine import Change, Decision, TransactionalWriter
from logstore.transactions.coordinator import (
    LAST_EPOCH,
    EndedTransaction,
    InitReply,
    TransactionCoordinator,
    TransactionState,
    validate_transactional_id,
)
from logstore.transactions.refusals import check_resumed
from logstore.transactions.transaction_records import TOPIC
from logstore.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

STATE_CONFIG = {"segment.bytes": str(16 << 20)}
_AT_ONCE = 100  # participants whose markers share syncs
_SETTLED_BYTES = 256 << 10  # of their records in one batch, which has to stay below the topic's limit
_LOOK_AGAIN_S = 0.05  # at partitions of a crashed owner that another process has to mark


class _Guard:
    """The lock of one id, shared by the threads that change its transaction in this process."""

    __slots__ = ("__weakref__", "_id", "_lock", "_store")

    def __init__(self, store: StoreView, transactional_id: str) -> None:
        self._store = store
        self._id = transactional_id
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        """TopicLockedError if the caller's limit has passed first: the thread that has it may wait for long."""
        patience_s = self._store.wait_limit.left_s(threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=patience_s):
            raise TopicLockedError(
                f"transactional id {self._id!r} is in use by another thread of this process; waited "
                f"{patience_s:.1f} s for it"
            )

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def try_enter(self) -> bool:
        return self._lock.acquire(blocking=False)

    def leave(self) -> None:
        self._lock.release()


class TransactionManager:
    """Thread-safe. ``offsets``: where groups commit in transactions."""

    def __init__(
        self,
        store: StoreView,
        runtime: TransactionRuntime,
        offsets: TransactionalOffsets,
        coordinators: Coordinators,
    ) -> None:
        self.store = store
        self.runtime = runtime
        self._offsets = offsets
        self._coordinators = coordinators
        self.markers = MarkerWriter(store, runtime, offsets.coordinator)
        self._lock = threading.Lock()
        self._shared: Coordinator[TransactionCoordinator] | None = None
        self._guards: weakref.WeakValueDictionary[str, _Guard] = weakref.WeakValueDictionary()
        self._leases: dict[str, CoordinatedLease] = {}

    def now_ms(self) -> int:
        return self.store.clock.wall_ms()

    # --- what there is ---

    def coordinator(self) -> Coordinator[TransactionCoordinator]:
        """The coordinator's topic, made if it is not there."""
        shared = self.existing()
        if shared is not None:
            return shared
        self.store.check_writable()
        return self._attach(self._coordinators.needed(TOPIC, STATE_CONFIG, TransactionCoordinator))

    def existing(self) -> Coordinator[TransactionCoordinator] | None:
        """None while no transaction was ever begun in this store."""
        if self._shared is not None:
            return self._shared
        found = self._coordinators.existing(TOPIC, TransactionCoordinator)
        return None if found is None else self._attach(found)

    @property
    def era(self) -> int:
        """See ``Coordinator``."""
        shared = self.existing()
        return 0 if shared is None else shared.era

    def _attach(self, found: Coordinator[TransactionCoordinator]) -> Coordinator[TransactionCoordinator]:
        with self._lock:
            if self._shared is None:
                self._shared = found  # else another thread was first
            return self._shared

    def guard(self, transactional_id: str) -> _Guard:
        with self._lock:
            guard = self._guards.get(transactional_id)
            if guard is None:
                guard = self._guards[transactional_id] = _Guard(self.store, transactional_id)
            return guard

    def leases(self) -> list[CoordinatedLease]:
        with self._lock:
            return list(self._leases.values())

    def lease(self, transactional_id: str) -> CoordinatedLease | None:
        return self._leases.get(transactional_id)

    def forget(self, lease: CoordinatedLease) -> None:
        with self._lock:
            if self._leases.get(lease.transactional_id) is lease:
                del self._leases[lease.transactional_id]

    def holds(self, topic: str) -> bool:
        """Whether a transaction of this process is in the topic: it is not given up for being idle."""
        return any(
            place.topic == topic
            for lease in self.leases()
            for place in (*lease.places, *(lease.unfinished.places if lease.unfinished else ()))
        )

    # --- opening an id ---

    def open(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
        check: Callable[[TransactionCoordinator], None] | None = None,
    ) -> CoordinatedLease:
        """See ``Backend.init_transactions``. ``check``: called whenever the opening is decided on; raises where it is
        not to be opened."""
        store = self.store
        store.check_writable()
        validate_transactional_id(transactional_id)
        deadline_s = store.clock.monotonic_s() + store.lock_timeout_s
        guard = self.guard(transactional_id)
        with guard:
            id_lock, era = self._lock_of(transactional_id), self.era
            try:
                reply = self.initialise(
                    transactional_id,
                    timeout_ms,
                    coordinator=coordinator,
                    keep_prepared=keep_prepared,
                    check=check,
                )
                # Its former opening in another process is fenced now, and lets go when it notices.
                id_lock.take(deadline_s - store.clock.monotonic_s())
            except BaseException:
                id_lock.release()
                raise
            lease = CoordinatedLease(self, transactional_id, timeout_ms, id_lock, reply, coordinator, era=era)
            with self._lock:
                self._leases[transactional_id] = lease
        self.runtime.note_opened()
        return lease

    def resume(
        self,
        transactional_id: str,
        timeout_ms: int,
        writer: TransactionalWriter,
        *,
        coordinator: str | None = None,
    ) -> CoordinatedLease:
        """The opening that the coordinator's log has under this producer id and epoch, as it stands: what it has under
        way goes on, nobody is fenced. ``ProducerFencedError``: there is a newer one; ``UnknownTransactionError``."""
        store = self.store
        store.check_writable()
        validate_transactional_id(transactional_id)
        self.coordinator().confirm()  # one that was deposed and has not heard of it may lack the opening
        with self.guard(transactional_id):
            era, state = self.era, self.state_of(transactional_id)
            if state is None:
                raise UnknownTransactionError(f"there is no transactional id {transactional_id!r}")
            known = self.lease(transactional_id)
            if known is not None and known.era != era:
                known.let_go()  # it may have gone on elsewhere in between
            elif known is not None and known.is_under(writer):
                return known
            check_resumed(state, writer)
            id_lock = self._lock_of(transactional_id)
            try:
                id_lock.take(store.lock_timeout_s)
                reply = InitReply(*writer, None)
                lease = CoordinatedLease(
                    self, transactional_id, timeout_ms, id_lock, reply, coordinator, era=era
                )
                lease.take_up(state)
            except BaseException:
                id_lock.release()
                raise
            with self._lock:
                self._leases[transactional_id] = lease
        self.runtime.note_opened()
        return lease

    def drop(self, error: LogStoreError, *, before: int | None = None) -> None:
        """Another process runs the coordinator, or has run it before this era: no id that was open then is open here
        any more, what is under way goes on there."""
        for lease in self.leases():
            if lease.era != before:
                lease.lose(error)

    def _lock_of(self, transactional_id: str) -> IdLock:
        """Held already if it was open in this process until now. Else not yet: another process may have to mark
        what a dead owner left in that one's topics, and does so only while no process has the id's lock."""
        older = self.lease(transactional_id)
        id_lock = None if older is None else older.hand_over()
        return self.runtime.id_lock(transactional_id) if id_lock is None else id_lock

    def initialise(
        self,
        transactional_id: str,
        timeout_ms: int,
        continuing: tuple[int, int] | None = None,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
        check: Callable[[TransactionCoordinator], None] | None = None,
    ) -> InitReply:
        """A new epoch, once nothing of earlier ones is open. ``TopicLockedError``: partitions that another process
        has to mark first. The others: see ``TransactionCoordinator.decide_init``. The guard is held."""
        store = self.store
        deadline_s = store.clock.monotonic_s() + store.lock_timeout_s
        while True:
            fresh_id, now_ms = self.runtime.take_producer_id(), self.now_ms()

            def decide(
                machine: TransactionCoordinator, fresh_id: int = fresh_id, now_ms: int = now_ms
            ) -> Decision[InitReply]:
                if check is not None:
                    check(machine)
                return machine.decide_init(
                    transactional_id,
                    timeout_ms,
                    fresh_id,
                    now_ms,
                    continuing=continuing,
                    coordinator=coordinator,
                    keep_prepared=keep_prepared,
                )

            reply = self.coordinator().decide(decide)
            if reply.pending is None:
                return reply
            try:
                self.finish(reply.pending, wait=False)
            except TopicLockedError:
                if store.clock.monotonic_s() >= deadline_s:
                    raise
                threading.Event().wait(_LOOK_AGAIN_S)  # for the owner's housekeeper to write them

    def is_spent(self, epoch: int) -> bool:
        """Whether no transaction fits under this producer id any more: the id must be opened anew for another."""
        return epoch >= LAST_EPOCH

    # --- one transaction ---

    @property
    def only_offsets_place(self) -> TopicPartition | None:
        """See ``TransactionalOffsets``."""
        return self._offsets.only_place

    def offsets_place(self, group: str) -> TopicPartition:
        """See ``TransactionalOffsets``."""
        return self._offsets.place(group)

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        writer: TransactionalWriter,
        member: MemberIdentity | None,
    ) -> None:
        self._offsets.commit(group, offsets, writer, member)

    def finish(self, ended: EndedTransaction, *, wait: bool, told: bool = True) -> None:
        """Write what markers are due, and tell the coordinator. The guard is held, and so is the id's lock, unless
        the id is being opened. Raises why a place could not be marked, after all had their chance. ``told`` False:
        if all are marked the coordinator is told later, but of an outcome that decides participants: it is complete
        when this returns, so that what its participants begin next is no part of it."""
        unsettled = self._settle(ended.transactional_id, wait=wait) if ended.decides else None
        done, failure = self.markers.write(ended, wait=wait)
        failure = unsettled or failure
        if not told and not ended.decides and failure is None and set(done) >= set(ended.places):
            return
        if done or not ended.places:
            self.tell([(ended, done)])
        if failure is not None:
            raise failure
        self._check_left(ended, done)
        state = self.state_of(ended.transactional_id) if ended.decides else None
        if state is not None and state.ended is not None and state.epoch == ended.marker_epoch:
            self.finish(state.ended, wait=wait)  # a participant began in the moment of the decision

    def _check_left(self, ended: EndedTransaction, done: Collection[TopicPartition]) -> None:
        """TopicLockedError: places lack the marker, and wait for the process that has their topic."""
        left = set(ended.places) - set(done)
        if not left:
            return
        state = self.state_of(ended.transactional_id)  # others may have marked them meanwhile
        if state is None or not left & set(state.places):
            return
        first = min(left)
        raise TopicLockedError(
            f"the end of a transaction of {ended.transactional_id!r} is not in {first.topic}-{first.partition} "
            f"yet: {self.runtime.holder_of(first.topic)} has the topic",
            hint="its housekeeper writes it within moments; if that process is stopped, end it or let it go on",
        )

    def _settle(self, coordinator_id: str, *, wait: bool) -> LogStoreError | None:
        """End the participants of a coordinator whose outcome is decided; why one is not at its end yet, None: all
        are. What begins meanwhile is left alone."""
        shared = self.coordinator()
        now_ms = self.now_ms()
        while shared.decide(lambda machine: machine.decide_settle(coordinator_id, now_ms, _SETTLED_BYTES)):
            pass  # a batch of their records more
        ends = shared.look(lambda machine: [state.ended for state in machine.participants.of(coordinator_id)])
        due = [ended for ended in ends if ended is not None]
        first: LogStoreError | None = None
        for start in range(0, len(due), _AT_ONCE):
            some = due[start : start + _AT_ONCE]
            written = self.markers.write_all(some, wait=wait)
            told = [(ended, done) for ended, (done, _) in zip(some, written, strict=True)]
            whole = [(ended, done) for ended, done in told if set(done) >= set(ended.places)]
            self.tell(whole)
            for one in told:  # the record of one with places left may be large
                if one not in whole:
                    self.tell([one])
            for ended, (done, failure) in zip(some, written, strict=True):
                try:
                    if failure is not None:
                        raise failure
                    self._check_left(ended, done)
                except LogStoreError as error:
                    first = first or error
        return first

    def tell(self, marked: Collection[tuple[EndedTransaction, Collection[TopicPartition]]]) -> None:
        """These places show the outcomes, durably; one transaction of an id at the most."""
        now_ms = self.now_ms()

        def decide(machine: TransactionCoordinator) -> Decision[None]:
            records: list[Change] = []
            for ended, places in marked:
                records += machine.decide_marked(
                    ended.transactional_id, ended.producer_id, ended.marker_epoch, places, now_ms
                ).records
            return Decision(tuple(records), None)

        self.coordinator().decide(decide)

    def add_partitions(
        self,
        transactional_id: str,
        writer: TransactionalWriter,
        places: Collection[TopicPartition],
        marked: EndedTransaction | None,
    ) -> None:
        """``marked``: the id's last transaction, of which the coordinator has not been told that it is complete:
        now it is, in the same step."""
        now_ms = self.now_ms()

        def decide(machine: TransactionCoordinator) -> Decision[tuple[TopicPartition, ...]]:
            told: tuple[Change, ...] = ()
            if marked is not None:
                told = machine.decide_marked(
                    transactional_id, marked.producer_id, marked.marker_epoch, marked.places, now_ms
                ).records
            if told:
                machine = TransactionCoordinator()  # as it is once that is replayed
                for key, value in told:
                    machine.replay(key, value)
            added = machine.decide_add_partitions(transactional_id, *writer, places, now_ms)
            return Decision(told + added.records, added.reply)

        self.coordinator().decide(decide)

    def resolve(self, transactional_id: str, prepared_max_age_ms: int | None = None) -> None:
        """Finish what was decided, abort what was not, save what is prepared for no longer than this (None: that, too).
        The guard and the id's lock are held, so that no process has it under way. Errors as for ``finish``."""
        ended = self.decide_resolve(transactional_id, prepared_max_age_ms)
        if ended is not None:
            how = "committed" if ended.commit else "aborted"
            logger.info("a transaction of %r, whose process is gone, is %s", transactional_id, how)
            self.finish(ended, wait=False)

    def decide_resolve(
        self, transactional_id: str, prepared_max_age_ms: int | None = None
    ) -> EndedTransaction | None:
        """End the id's transaction, see ``resolve``; what is left to mark, None: nothing is."""
        now_ms, shared = self.now_ms(), self.coordinator()
        before = shared.look(lambda machine: machine.find(transactional_id))
        ended = shared.decide(
            lambda machine: machine.decide_resolve(
                transactional_id, now_ms, prepared_max_age_ms=prepared_max_age_ms
            )
        )
        if before is not None and before.is_prepared and ended is not None and not ended.commit:
            logger.warning(
                "the prepared transaction of %r (producer id %d, epoch %d) is aborted after %d s in which its "
                "coordinator %r decided nothing: a commit of that with it will be refused",
                *before.handle,
                max(now_ms - before.prepared_ms, 0) // 1000,
                before.coordinator,
            )
        return ended

    def has_participants(self, transactional_id: str) -> bool:
        """Whether transactions are under way that the id decides."""
        shared = self.existing()
        return shared is not None and shared.look(
            lambda machine: machine.participants.any_of(transactional_id)
        )

    def state_of(self, transactional_id: str) -> TransactionState | None:
        """As the coordinator's log says now; None: it does not know the id."""
        shared = self.existing()
        if shared is None:
            return None
        return shared.look(lambda machine: machine.find(transactional_id))

    def outcome_of(self, transactional_id: str, producer_id: int, epoch: int) -> bool | None:
        """See ``TransactionCoordinator.outcome_of``."""
        shared = self.existing()
        if shared is None:
            return None
        return shared.look(lambda machine: machine.outcome_of(transactional_id, producer_id, epoch))

    def moved_on(self, lease: CoordinatedLease) -> LogStoreError | None:
        """What happened to the lease's transaction without its doing; None: it is as the lease left it."""
        state = self.state_of(lease.transactional_id)
        if state is None or (state.producer_id, state.epoch) == (lease.producer_id, lease.epoch):
            return None
        if state.committed_from(lease.producer_id, lease.epoch):
            return None  # its own commit, of which it may have got no answer
        if state.aborted_from(lease.producer_id, lease.epoch):
            return TransactionAbortedError(
                f"the transaction of {lease.transactional_id!r} was aborted by another process",
                hint="begin another one",
            )
        return ProducerFencedError(
            f"transactional id {lease.transactional_id!r} has a newer producer: epoch {state.epoch} of producer id "
            f"{state.producer_id}, this one has epoch {lease.epoch} of {lease.producer_id}",
            expected_epoch=state.epoch,
            found_epoch=lease.epoch,
        )

    # --- the end ---

    def let_go(self) -> None:
        """Of all ids, as they are."""
        for lease in self.leases():
            with self.guard(lease.transactional_id):
                lease.let_go()

    def close(self) -> None:
        self.let_go()
        if self._shared is not None:
            self._shared.close()
