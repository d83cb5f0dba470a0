"""``Scheduler``: the threads of a whole cluster, of which one runs at a time, on a clock that nobody waits for.

Every task has a thread of the operating system, so that thread-local state, stacks and exceptions are real ones; which
of them runs is the seed's choice. A task gives way where production code can be made to wait: at locks, conditions,
events, joins and pauses (``threads.py`` stands in for the module ``threading``), and at syncs of the disk. Time goes on
when nothing else can, to the next moment that something waits for.
"""

from __future__ import annotations

import _thread
import heapq
import random
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from logstore.seams.faults import SimulatedCrash

SWITCH_S: Final = 1e-5
"""What a turn of a task takes: a loop that only looks at the clock comes to its end."""
_STACK_BYTES: Final = 1 << 20
_UNWIND_TURNS: Final = 100_000


class KilledError(BaseException):
    """The task's host is gone: nothing of it goes on. Not an ``Exception``, so that nothing takes it for a failure."""


class StuckError(AssertionError):
    """No task can go on, and nothing is waited for."""


class Host:
    """What dies and stops together: the tasks of one process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = False
        self.dead = False
        self.tasks: dict[Task, None] = {}
        self.parked: list[Task] = []  # would run, if the host were not paused


class Task:
    """``ident``: as ``threading.get_ident`` gives it."""

    def __init__(self, name: str, host: Host, ident: int) -> None:
        self.name = name
        self.host = host
        self.ident = ident
        self.killed = False
        self.done = False
        self.waiting = False
        self.ticket = 0
        self.woken = False
        self.joiners: list[Task] = []
        self.failure: BaseException | None = None
        self.gate = _thread.allocate_lock()
        self.gate.acquire()
        self.thread: Any = None  # the stand-in for ``threading.Thread`` that it runs for

    def __repr__(self) -> str:
        return f"{self.host.name}/{self.name}"


class Scheduler:
    """``dice``: of the order of tasks alone; ``preempts``: the share of uncontended locks at which a task gives way."""

    def __init__(self, seed: int, *, preempts: float = 0.0) -> None:
        self.dice = random.Random(f"{seed}:order")
        self.preempts = preempts
        self.now_s = 1000.0
        self.switches = 0
        self.failure: BaseException | None = None
        self.world = Host("world")
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Task | None, int, Callable[[], None] | None]] = []
        self._number = 0
        self._idents = 1
        self.main = Task("main", self.world, 1)
        self.current = self.main
        self._digest = blake2b(digest_size=16)
        self.lines: list[str] | None = None  # of the trace, where they are kept

    # --- the trace ---

    def note(self, line: str) -> None:
        text = f"{self.now_s:.5f} {line}\n"
        self._digest.update(text.encode())
        if self.lines is not None:
            self.lines.append(text)

    def trace(self) -> str:
        """A digest of all turns and all notes."""
        return self._digest.hexdigest()

    # --- tasks ---

    def spawn(self, name: str, work: Callable[[], object], host: Host | None = None) -> Task:
        """It runs when the seed says so."""
        self._idents += 1
        task = Task(name, host or self.current.host, self._idents)
        task.killed = task.host.dead
        task.host.tasks[task] = None
        before = _thread.stack_size(_STACK_BYTES)
        _thread.start_new_thread(self._body, (task, work))
        _thread.stack_size(before)
        self._ready.append(task)
        return task

    def _body(self, task: Task, work: Callable[[], object]) -> None:
        task.gate.acquire()
        try:
            if not task.killed:
                work()
        except KilledError:
            pass
        except SimulatedCrash as error:
            if not task.killed:
                self.fail(error)
        except BaseException as error:  # noqa: BLE001 - raised in the simulation's own task
            task.failure = error
            if not task.killed:
                self.fail(error)
        finally:
            task.done = True
            task.host.tasks.pop(task, None)
            for joiner in task.joiners:
                self.wake(joiner)
            self._hand_over(self._next())

    def fail(self, error: BaseException) -> None:
        """The run ends with this, in the simulation's own task."""
        if self.failure is None:
            self.failure = error
        self.wake(self.main)

    def join(self, task: Task, timeout_s: float | None = None) -> bool:
        deadline_s = None if timeout_s is None else self.now_s + timeout_s
        while not task.done:
            left_s = None if deadline_s is None else deadline_s - self.now_s
            if left_s is not None and left_s <= 0:
                return False
            task.joiners.append(self.current)
            self.park(left_s)
        return True

    # --- turns ---

    def park(self, timeout_s: float | None = None) -> bool:
        """Wait until ``wake``, or for so long; whether it was woken."""
        task = self.current
        if task.killed:
            raise KilledError
        task.ticket += 1
        task.woken, task.waiting = False, True
        if timeout_s is not None:
            self._push(self.now_s + max(timeout_s, 0.0), task, task.ticket, None)
        self._turn(task)
        return task.woken

    def wake(self, task: Task) -> None:
        if task.waiting:
            task.waiting, task.woken = False, True
            self._ready.append(task)

    def give_way(self) -> None:
        """Let others run, perhaps."""
        task = self.current
        if task.killed:
            return
        self._ready.append(task)
        self._turn(task)

    def maybe_give_way(self) -> None:
        if self.preempts and self.dice.random() < self.preempts:
            self.give_way()

    def let_pass(self, seconds: float) -> None:
        deadline_s = self.now_s + seconds
        while self.now_s < deadline_s:
            self.park(deadline_s - self.now_s)

    def at(self, when_s: float, what: Callable[[], None]) -> None:
        """Call it then; it must not wait."""
        self._push(when_s, None, 0, what)

    def _push(self, when_s: float, task: Task | None, ticket: int, what: Callable[[], None] | None) -> None:
        self._number += 1
        heapq.heappush(self._timers, (when_s, self._number, task, ticket, what))

    def _turn(self, task: Task) -> None:
        following = self._next()
        if following is not task:
            self._hand_over(following)
            task.gate.acquire()
        if task.killed:
            raise KilledError
        if task is self.main and self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def _hand_over(self, task: Task) -> None:
        task.gate.release()

    def _next(self) -> Task:
        while True:
            self._fire_due()
            if not self._ready:
                if not self._timers:
                    self.fail(StuckError("nothing can go on, and nothing is waited for"))
                    if not self._ready:
                        raise StuckError("the simulation's own task does not wait")
                else:
                    self.now_s = max(self.now_s, self._timers[0][0])
                continue
            index = self.dice.randrange(len(self._ready))
            self._ready[index], self._ready[-1] = self._ready[-1], self._ready[index]
            task = self._ready.pop()
            if task.host.paused and not task.killed:
                task.host.parked.append(task)
                continue
            if task.done:
                continue
            self.now_s += SWITCH_S
            self.switches += 1
            self._digest.update(b"%d %d;" % (task.ident, int(self.now_s * 1e6)))
            if self.lines is not None:
                self.lines.append(f"{self.now_s:.5f} {task!r}\n")
            self.current = task
            return task

    def _fire_due(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now_s:
            _, _, task, ticket, what = heapq.heappop(timers)
            if what is not None:
                what()
            elif task is not None and task.waiting and task.ticket == ticket:
                task.waiting = False
                self._ready.append(task)

    # --- hosts ---

    def pause(self, host: Host) -> None:
        host.paused = True

    def resume(self, host: Host) -> None:
        host.paused = False
        self._ready += host.parked
        host.parked.clear()

    def kill(self, host: Host) -> None:
        """All of its tasks end where they are, before this returns."""
        host.dead = True
        self.resume(host)
        for _ in range(_UNWIND_TURNS):
            left = list(host.tasks)
            if not left:
                return
            for task in left:
                task.killed = True
                self.wake(task)
            self.give_way()
        raise StuckError(f"tasks of {host.name} do not end: {left}")

    def end(self, hosts: list[Host]) -> None:
        """The run is over: whatever still runs ends."""
        self.failure = None
        for host in [*hosts, self.world]:
            with suppress(StuckError):
                self.kill(host)
