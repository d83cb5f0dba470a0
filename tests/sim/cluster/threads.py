"""Stand-ins for ``threading``, ``time`` and executors on a ``Scheduler``, and their exchange in production's modules.

Production makes its locks, conditions, events, threads and executors by the names of the modules ``threading`` and
``concurrent.futures``: those names are the seam. ``exchanged`` puts the stand-ins there for as long as a run takes, so
that every lock and every wait of production takes part, as it is, and none can be forgotten in a constructor.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from logstore.ownership.lock import LockHolder, this_process
from logstore.seams.clock import Clock
from tests.sim.cluster.scheduler import Scheduler, Task

_PACKAGES: Final = ("logstore.", "replication.")
_LEFT: Final = frozenset({"logstore.seams.memory_fs"})
"""Its lock is never held where a task gives way."""


class Lock:
    """``threading.Lock``: any task may release it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False
        self._waiters: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self._scheduler
        scheduler.maybe_give_way()
        if not self._held:
            self._held = True
            return True
        if not blocking:
            return False
        deadline_s = None if timeout < 0 else scheduler.now_s + timeout
        while self._held:
            left_s = None if deadline_s is None else deadline_s - scheduler.now_s
            if left_s is not None and left_s <= 0:
                return False
            self._waiters.append(scheduler.current)
            scheduler.park(left_s)
        self._held = True
        return True

    def release(self) -> None:
        if not self._held and not self._scheduler.current.killed:
            raise RuntimeError("release unlocked lock")
        self._held = False
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._scheduler.wake(task)

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._inner = Lock(scheduler)
        self._owner: Task | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        current = self._scheduler.current
        if self._owner is current:
            self._depth += 1
            return True
        if not self._inner.acquire(blocking, timeout):
            return False
        self._owner, self._depth = current, 1
        return True

    def release(self) -> None:
        current = self._scheduler.current
        if self._owner is not current:
            if current.killed:
                return
            raise RuntimeError("cannot release un-acquired lock")
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._inner.release()

    def _is_owned(self) -> bool:
        return self._owner is self._scheduler.current

    def release_all(self) -> int:
        depth, self._depth, self._owner = self._depth, 0, None
        self._inner.release()
        return depth

    def take_back(self, depth: int) -> None:
        self._inner.acquire()
        self._owner, self._depth = self._scheduler.current, depth

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    def __init__(self, scheduler: Scheduler, lock: Lock | RLock | None = None) -> None:
        self._scheduler = scheduler
        self._lock = lock if lock is not None else RLock(scheduler)
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiters: list[Task] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        lock, task = self._lock, self._scheduler.current
        self._waiters.append(task)
        if isinstance(lock, RLock):
            depth = lock.release_all()
        else:
            depth = 1
            lock.release()
        try:
            woken = self._scheduler.park(timeout)
        finally:
            if task in self._waiters:
                self._waiters.remove(task)
            if not task.killed:
                if isinstance(lock, RLock):
                    lock.take_back(depth)
                else:
                    lock.acquire()
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline_s = None if timeout is None else self._scheduler.now_s + timeout
        found = predicate()
        while not found:
            left_s = None if deadline_s is None else deadline_s - self._scheduler.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
            found = predicate()
        return found

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiters))):
            self._scheduler.wake(self._waiters.pop(0))

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._scheduler.wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = self._scheduler
        deadline_s = None if timeout is None else scheduler.now_s + timeout
        while not self._set:
            left_s = None if deadline_s is None else deadline_s - scheduler.now_s
            if left_s is not None and left_s <= 0:
                return False
            self._waiters.append(scheduler.current)
            scheduler.park(left_s)
        return True


class Thread:
    def __init__(
        self,
        scheduler: Scheduler,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        daemon: bool | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._target = target
        self._args = args
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.ident

    def start(self) -> None:
        self._task = self._scheduler.spawn(self.name, self._run)
        self._task.thread = self

    def _run(self) -> None:
        if self._target is not None:
            self._target(*self._args)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None:
            self._scheduler.join(self._task, timeout)


class Future:
    """Of one call in an ``Executor``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._over = Event(scheduler)
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self, work: Callable[[], Any]) -> None:
        try:
            self._result = work()
        except Exception as error:  # noqa: BLE001 - given to whoever asks for the result
            self._error = error
        self._over.set()

    def done(self) -> bool:
        return self._over.is_set()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self._over.wait(timeout):
            raise TimeoutError
        return self._error

    def result(self, timeout: float | None = None) -> Any:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._result


class Executor:
    """A task for each call."""

    def __init__(self, scheduler: Scheduler, name: str = "") -> None:
        self._scheduler = scheduler
        self._name = name or "executor"
        self._futures: list[Future] = []

    def submit(self, work: Callable[..., Any], *args: Any) -> Future:
        future = Future(self._scheduler)
        self._futures.append(future)
        self._scheduler.spawn(self._name, lambda: future.run(lambda: work(*args)))
        return future

    def map(self, work: Callable[..., Any], *things: Iterable[Any]) -> Iterator[Any]:
        futures = [self.submit(work, *args) for args in zip(*things, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True) -> None:
        if wait:
            for future in self._futures:
                future.exception()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class Threading:
    """In the place of the module ``threading``."""

    TIMEOUT_MAX = threading.TIMEOUT_MAX
    local = threading.local

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Lock(self) -> Lock:
        return Lock(self._scheduler)

    def RLock(self) -> RLock:
        return RLock(self._scheduler)

    def Condition(self, lock: Lock | RLock | None = None) -> Condition:
        return Condition(self._scheduler, lock)

    def Event(self) -> Event:
        return Event(self._scheduler)

    def Thread(self, **of: Any) -> Thread:
        return Thread(self._scheduler, **of)

    def get_ident(self) -> int:
        return self._scheduler.current.ident

    def current_thread(self) -> Any:
        return self._scheduler.current.thread


class Time:
    """In the place of the module ``time``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.sleep = scheduler.let_pass

    def monotonic(self) -> float:
        return self._scheduler.now_s

    perf_counter = time = monotonic

    def time_ns(self) -> int:
        return int(self._scheduler.now_s * 1e9)

    monotonic_ns = perf_counter_ns = time_ns


def _any_process(clock: Clock) -> LockHolder:
    return LockHolder(1, "host", "python", clock.wall_ms())


@contextmanager
def exchanged(scheduler: Scheduler) -> Iterator[None]:
    """Production's modules have the stand-ins inside."""
    named = Threading(scheduler)
    stand_ins: dict[int, Any] = {
        id(threading): named,
        id(threading.Lock): named.Lock,
        id(threading.RLock): named.RLock,
        id(threading.Thread): named.Thread,
        id(threading.Event): named.Event,
        id(threading.Condition): named.Condition,
        id(time): Time(scheduler),
        id(concurrent.futures.ThreadPoolExecutor): lambda _most, name="": Executor(scheduler, name),
    }
    kinds = (_thread.LockType, type(threading.RLock()))
    before: list[tuple[ModuleType, str, Any]] = []
    for module_name, module in sorted(sys.modules.items()):
        if not module_name.startswith(_PACKAGES) or module_name in _LEFT:
            continue
        for name, value in list(vars(module).items()):
            exchange = stand_ins.get(id(value))
            if isinstance(value, kinds):
                exchange = RLock(scheduler)
            if value is this_process and module_name.startswith("logstore.embedded."):
                exchange = _any_process  # what a group's member says of it is in the log
            if exchange is not None:
                before.append((module, name, value))
                setattr(module, name, exchange)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
