"""``Coordinators`` on logs that are lists in memory: neither topics, nor files, nor locks of a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from logstore.errors import LogStoreError, ProducerFencedError, TransactionStateError
from logstore.log.log_offsets import Waiter
from logstore.machine import Change, Decision, StateMachine

Machine = TypeVar("Machine", bound=StateMachine)
Reply = TypeVar("Reply")


class Entry(NamedTuple):
    """Records, those of a producer's transaction, or its marker (``committed`` says so)."""

    records: tuple[Change, ...] = ()
    producer_id: int = -1
    epoch: int = -1
    committed: bool | None = None


class MemoryLog:
    """What the processes of a world share. ``epochs``: the newest of each producer."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.entries: list[Entry] = []
        self.epochs: dict[int, int] = {}

    def append(self, entry: Entry) -> None:
        if entry.producer_id >= 0:
            if self.epochs.get(entry.producer_id, -1) > entry.epoch:
                raise ProducerFencedError(
                    f"producer {entry.producer_id} has a newer epoch than {entry.epoch}"
                )
            self.epochs[entry.producer_id] = entry.epoch
        self.entries.append(entry)


class MemoryCoordinator(Generic[Machine]):
    """``Coordinator``, as one process has it. ``moved``: holds the error by which it is another process's."""

    def __init__(
        self, log: MemoryLog, make: Callable[[], Machine], moved: list[LogStoreError] | None = None
    ) -> None:
        self._log = log
        self._moved = [] if moved is None else moved
        self._machine = make()
        self._applied = 0
        self._waiters: set[Waiter] = set()

    def decide(
        self,
        decide: Callable[[Machine], Decision[Reply]],
        *,
        patience_s: float | None = None,
    ) -> Reply:
        with self._log.lock:
            self._check_here()
            self._follow()
            decision = decide(self._machine)
            if decision.records:
                writer = decision.producer or (-1, -1)
                self._log.append(Entry(decision.records, *writer))
                self._follow()
            return decision.reply

    def look(self, look: Callable[[Machine], Reply]) -> Reply:
        with self._log.lock:
            self._check_here()
            self._follow()
            return look(self._machine)

    def confirm(self) -> None:
        self._check_here()

    def _check_here(self) -> None:
        if self._moved:
            raise self._moved[0]

    def _follow(self) -> None:
        machine: Any = self._machine
        new = self._log.entries[self._applied :]
        for records, producer_id, epoch, committed in new:
            if committed is not None:
                machine.replay_marker(producer_id, epoch, committed)
            for key, value in records:
                if producer_id >= 0:
                    machine.replay_pending(producer_id, epoch, key, value)
                else:
                    machine.replay(key, value)
        self._applied += len(new)
        for waiter in tuple(self._waiters) if new else ():
            waiter.set()

    def follow_some(self) -> bool:
        self.look(lambda _: None)
        return True

    era = 0

    def changed(self) -> bool:
        return self._applied != len(self._log.entries)

    def subscribe(self, event: Waiter) -> None:
        self._waiters.add(event)

    def unsubscribe(self, event: Waiter) -> None:
        self._waiters.discard(event)

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
    ) -> None:
        with self._log.lock:
            if self._log.epochs.get(producer_id) != epoch:
                self._log.append(Entry((), producer_id, epoch, commit))
            self._follow()

    def end_hanging(self, producer_id: int, epoch: int, start_offset: int) -> None:
        raise TransactionStateError(f"producer {producer_id} ({epoch}) has nothing open since {start_offset}")

    def lost(self) -> LogStoreError | None:
        return self._moved[0] if self._moved else None

    def close(self) -> None:
        """Nothing to give back."""


class MemoryCoordinators:
    """``logs``: by topic; shared by the processes of a world. ``moved``: see ``MemoryCoordinator``."""

    def __init__(self, logs: dict[str, MemoryLog], moved: list[LogStoreError] | None = None) -> None:
        self._logs = logs
        self._moved = moved

    def existing(self, topic: str, make: Callable[[], Machine]) -> MemoryCoordinator[Machine] | None:
        log = self._logs.get(topic)
        return None if log is None else MemoryCoordinator(log, make, self._moved)

    def needed(
        self,
        topic: str,
        config: Mapping[str, str],
        make: Callable[[], Machine],
    ) -> MemoryCoordinator[Machine]:
        return MemoryCoordinator(self._logs.setdefault(topic, MemoryLog()), make, self._moved)
