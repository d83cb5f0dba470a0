"""What runs a coordinator's state machine on a log: decide, look, be told, end a transaction.

Managers, leases and the tasks that look after groups and transactions use these two protocols alone, so that they do
not know what the log is: an internal topic that processes write by turns (``runtime.py``), or a replicated one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from logstore.errors import LogStoreError
from logstore.log.log_offsets import Waiter
from logstore.machine import Decision, StateMachine

Reply = TypeVar("Reply")
Machine = TypeVar("Machine", bound=StateMachine)
MachineT_co = TypeVar("MachineT_co", bound=StateMachine, covariant=True)


class Coordinator(Protocol[MachineT_co]):
    """One state machine and its log. Thread-safe."""

    def decide(
        self, decide: Callable[[MachineT_co], Decision[Reply]], *, patience_s: float | None = None
    ) -> Reply:
        """Run ``decide`` on the newest state, make its records durable (committed, on a replicated log), replay them,
        give its reply. ``decide`` may run on another thread, and must neither wait nor use this coordinator.
        ``patience_s``: how long to wait for the turn to write, None: as long as the store waits for a lock.

        Errors: those of ``decide``, on a state as ``confirm`` has it; ``TopicLockedError``, ``DiskFullError``,
        ``StorageError``: nothing was written; ``OutcomeUnknownError``; ``ProducerFencedError``,
        ``TransactionStateError`` for a producer's records.
        """
        ...

    def look(self, look: Callable[[MachineT_co], Reply]) -> Reply:
        """Read the state, with all replayed that is known to be committed. A process that runs the coordinator no more,
        and does not know it yet, may read what was: see ``confirm``."""
        ...

    def confirm(self) -> None:
        """Block until a ``look`` sees all that was acknowledged before this call: for what callers are told, who may
        decide on it without the coordinator. Errors as ``look``."""
        ...

    def follow_some(self) -> bool:
        """Replay a piece of what there is; True: nothing is left. Errors as ``look``."""
        ...

    def changed(self) -> bool:
        """Whether there is anything that was not replayed yet; cheap."""
        ...

    def subscribe(self, event: Waiter) -> None:
        """``event.set()`` whenever this process has appended or replayed something."""
        ...

    def unsubscribe(self, event: Waiter) -> None: ...

    def end_transaction(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> None:
        """Append the marker that ends the producer's transaction in this log, durably, and replay it.

        ``epoch`` is above that of the transaction; the next one may run under it. May be repeated, and may come
        late: where that epoch is known the marker is, and nothing is done. Errors: ``ProducerFencedError`` (a newer
        epoch is known), ``CoordinatorFencedError``, and those of ``decide``.
        """
        ...

    def end_hanging(self, producer_id: int, epoch: int, start_offset: int) -> None:
        """Abort what the producer has open since ``start_offset``, under the transaction's own ``epoch``.
        ``TransactionStateError``: that is not open (any more); and the errors of ``end_transaction``."""
        ...

    @property
    def era(self) -> int:
        """Another number once another process may have run the coordinator in between: what this one remembers beside
        the machine's state counts no more."""
        ...

    def lost(self) -> LogStoreError | None:
        """Why this process does not run the coordinator now, in words for its clients; None: it may. Cheap."""
        ...

    def close(self) -> None: ...


class Coordinators(Protocol):
    """The coordinators of a store, each on the log of an internal topic."""

    def existing(self, topic: str, make: Callable[[], Machine]) -> Coordinator[Machine] | None:
        """A coordinator that has replayed nothing yet; None while there is no such topic. ``make``: an empty
        machine."""
        ...

    def needed(
        self, topic: str, config: Mapping[str, str], make: Callable[[], Machine]
    ) -> Coordinator[Machine]:
        """The same; the topic is made if it is not there."""
        ...
