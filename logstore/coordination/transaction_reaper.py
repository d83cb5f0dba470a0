"""What the housekeeper does for transactions: end those whose producer does not.

- One of this process that is past its timeout is aborted.
- An id that was opened anew elsewhere is let go of, after what this process has to mark was marked.
- An id that no process has open and that was out of use for ``EXPIRATION_MS`` is forgotten.
- A transaction whose owner is gone (its lock can be had) is finished if it was decided, else aborted. A live
  owner's is left alone, whatever its state; topics that another process owns are left to that process.
- Where another process runs the coordinator, nothing is done, and no id is open any more.
- One that is prepared waits for its coordinator, whether or not its owner lives; not for longer than a bound.
- Where coordinators move, a free lock says nothing of the owner, which may be on its way from a former one: what is not
  decided then waits for its timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from logstore.api.transactions import MAX_TIMEOUT_MS
from logstore.coordination.transaction_lease import CoordinatedLease
from logstore.coordination.transaction_manager import TransactionManager
from logstore.errors import (
    LogStoreError,
    ProducerFencedError,
    RetriableError,
    TopicLockedError,
    TransactionTimedOutError,
)
from logstore.transactions.coordinator import TransactionState

logger = logging.getLogger(__name__)

LOOK_S = 1.0  # while a transaction is open somewhere
IDLE_S = 5.0  # while none is
FORGET_S = 3600.0  # between two looks for ids out of use
EXPIRATION_MS = 7 * 24 * 3600 * 1000  # Kafka's transactional.id.expiration.ms
PREPARED_MAX_AGE_MS = MAX_TIMEOUT_MS
"""As long as the longest transaction: between the first task of a long job that prepares and the job's commit hours
may pass, and an abort any earlier would cost the job. It is safe all the same: that commit is refused as a whole."""


class TransactionReaper:
    """``step`` does what is due; seconds until the next look, None if transactions are not used here.
    ``prepared_max_age_ms``: how long a prepared transaction waits for its coordinator; ``owners_return``: an owner that
    has not come here yet may still come, within its transaction's timeout; ``may_forget``: of an id that is out of use,
    None: any may be forgotten."""

    def __init__(
        self,
        manager: TransactionManager,
        prepared_max_age_ms: int = PREPARED_MAX_AGE_MS,
        *,
        owners_return: bool = False,
        may_forget: Callable[[TransactionState], bool] | None = None,
    ) -> None:
        self._manager = manager
        self._may_forget = may_forget
        self._owners_return = owners_return
        self._prepared_max_age_ms = prepared_max_age_ms
        self._next_s = 0.0
        self._next_forget_s = 0.0

    def step(self) -> float | None:
        manager = self._manager
        if manager.store.read_only:
            return None
        now_s = manager.store.clock.monotonic_s()
        if now_s < self._next_s:
            return self._next_s - now_s
        shared = manager.existing()
        if shared is None:
            return None
        lost = shared.lost()
        if lost is not None:
            manager.drop(lost)
            self._next_s = now_s + IDLE_S
            return IDLE_S
        now_ms = manager.now_ms()
        try:
            open_ids = shared.look(
                lambda machine: [
                    state.transactional_id
                    for state in machine.in_doubt()
                    if not state.is_waiting(now_ms, self._prepared_max_age_ms)
                ]
            )
        except RetriableError as error:
            if not error.passes:
                raise
            logger.debug("transactions are looked after in a moment: %s", error)
            self._next_s = now_s + LOOK_S
            return LOOK_S
        failures: list[LogStoreError] = []
        leases = {lease.transactional_id: lease for lease in manager.leases()}
        for transactional_id in dict.fromkeys((*open_ids, *leases)):
            lease = leases.get(transactional_id)
            try:
                if lease is not None:
                    self._look_after(lease)
                else:
                    self._resolve(transactional_id)
            except LogStoreError as error:
                if isinstance(error, RetriableError) and error.passes:
                    logger.debug("a transaction of %r waits: %s", transactional_id, error)
                else:
                    failures.append(error)
        if now_s >= self._next_forget_s:
            self._next_forget_s = now_s + FORGET_S
            for transactional_id in shared.look(
                lambda machine: machine.expired(manager.now_ms(), EXPIRATION_MS)
            ):
                if transactional_id not in leases:
                    self._with_lock(transactional_id, self._forget)
        wait_s = LOOK_S if open_ids or leases else IDLE_S
        self._next_s = now_s + wait_s
        if failures:
            raise failures[0]
        return wait_s

    def soon(self) -> None:
        """The next step looks, whenever the last one did."""
        self._next_s = 0.0

    def holds(self, topic: str) -> bool:
        return self._manager.holds(topic)

    # --- ids that are open here ---

    def _look_after(self, lease: CoordinatedLease) -> None:
        manager = self._manager
        guard = manager.guard(lease.transactional_id)
        if not guard.try_enter():
            return  # its own thread is at it
        try:
            state = manager.state_of(lease.transactional_id)
            if lease.id_lock is None or state is None:
                return
            if state.committed_from(lease.producer_id, lease.epoch):
                lease.note_committed(state)
            elif (state.producer_id, state.epoch) != (lease.producer_id, lease.epoch):
                self._follow(lease, state)
            elif lease.begun and state.is_overdue(manager.now_ms()):
                reason = TransactionTimedOutError(
                    f"a transaction of {lease.transactional_id!r} was open for more than "
                    f"transaction_timeout_ms={state.timeout_ms} and was aborted",
                    hint="make transactions shorter, or allow them more time",
                )
                lease.abort_for(reason)
                logger.warning("%s", reason)
            elif state.is_prepared and not state.is_waiting(manager.now_ms(), self._prepared_max_age_ms):
                manager.decide_resolve(lease.transactional_id, self._prepared_max_age_ms)
                if (ended := manager.state_of(lease.transactional_id)) is not None:
                    self._follow(lease, ended)
            lease.finish_unfinished()
        finally:
            guard.leave()

    def _follow(self, lease: CoordinatedLease, state: TransactionState) -> None:
        """Another process decided: an abort is finished here, a newer opening gets the id."""
        manager = self._manager
        reason = manager.moved_on(lease)
        ended = state.ended
        if reason is not None and not isinstance(reason, ProducerFencedError):
            lease.note_aborted(state, reason)
        if ended is not None:
            try:
                manager.finish(ended, wait=False)
            except TopicLockedError as error:
                logger.debug("the newer opening of %r marks the rest: %s", lease.transactional_id, error)
        if isinstance(reason, ProducerFencedError):
            logger.info("transactional id %r is given up: %s", lease.transactional_id, reason)
            lease.fence()

    # --- ids of others ---

    def _resolve(self, transactional_id: str) -> None:
        """If its owner is gone."""
        if self._owners_return and self._may_return(transactional_id):
            return
        self._with_lock(
            transactional_id, lambda found: self._manager.resolve(found, self._prepared_max_age_ms)
        )

    def _may_return(self, transactional_id: str) -> bool:
        manager = self._manager
        state = manager.state_of(transactional_id)
        if state is None or state.status.is_decided or state.is_prepared:
            return False
        return not state.is_overdue(manager.now_ms())

    def _forget(self, transactional_id: str) -> None:
        manager = self._manager
        if self._may_forget is not None:
            state = manager.state_of(transactional_id)
            if state is not None and not self._may_forget(state):
                return
        manager.coordinator().decide(
            lambda machine: machine.decide_forget(manager.now_ms(), EXPIRATION_MS, {transactional_id})
        )

    def _with_lock(self, transactional_id: str, work: Callable[[str], None]) -> None:
        """Only if no process has the id open, or is opening it."""
        manager = self._manager
        guard = manager.guard(transactional_id)
        if not guard.try_enter():
            return  # it is being opened here
        try:
            id_lock = manager.runtime.id_lock(transactional_id)
            try:
                if id_lock.try_take():
                    work(transactional_id)
            finally:
                id_lock.release()
        finally:
            guard.leave()
