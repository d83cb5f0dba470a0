"""``Blocking``: threads for the engine's calls, which may wait for the disk, so that the event loop never does.

Every call of a client goes through here. So a call is an entry in a queue and a future of the event loop, and no more:
``concurrent.futures`` makes a future of its own of each, with a condition, and chains the two.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class _Work(NamedTuple):
    """``asked``: whose answer it is, with its loop; None: it tells its outcome in its own way."""

    context: Context
    call: Callable[[], Any]
    asked: tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]] | None


class Blocking:
    """``threads``: how many calls are under way at once; more wait in their order. What waits for records or for a
    sync takes no thread. Threads are made as they are needed, and end with ``close``. RuntimeError: it was closed."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = f"logstore-{name}"
        self._most = threads
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._asked = 0  # calls that have not come to their end
        self._closed = False
        self._threads: list[threading.Thread] = []

    async def run(
        self, call: Callable[Given, Answer], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Answer:
        """The call's answer, or its error. What it logs belongs to the caller's request. A caller that is cancelled
        leaves the call to its end."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._put(_Work(copy_context(), lambda: call(*args, **kwargs), (loop, answer)))
        return await answer

    def start(self, call: Callable[[], None]) -> None:
        """As ``run``, for a call that tells its outcome in its own way, and raises nothing: the loop is not woken up
        for its end."""
        self._put(_Work(copy_context(), call, None))

    def _put(self, work: _Work) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self._name} takes no calls any more")
            self._asked += 1
            if len(self._threads) < min(self._asked, self._most):
                number = len(self._threads)
                thread = threading.Thread(target=self._work_on, name=f"{self._name}_{number}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._queue.put(work)

    def _work_on(self) -> None:
        while (work := self._queue.get()) is not None:
            self._carry_out(work)
            del work  # what a call holds is not held until the next one

    def _carry_out(self, work: _Work) -> None:
        context, call, asked = work
        try:
            found = context.run(call)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call was asked for
            self._note_end()
            if asked is None:
                context.run(logger.exception, "a call that nobody waits for has failed")
                return
            loop, answer = asked
            _tell(loop, _fail, answer, error)
        else:
            self._note_end()  # before its caller knows, whose next call finds this thread free
            if asked is not None:
                loop, answer = asked
                _tell(loop, _settle, answer, found)

    def _note_end(self) -> None:
        with self._lock:
            self._asked -= 1

    def close(self) -> None:
        """Wait for the calls under way; those that have not begun are dropped: their callers are cancelled. Safe to
        call again."""
        with self._lock:
            self._closed = True
            dropped = self._drained()
            for _ in self._threads:
                self._queue.put(None)
        for work in dropped:
            if work.asked is not None:
                loop, answer = work.asked
                _tell(loop, answer.cancel)
        for thread in self._threads:
            thread.join()

    def _drained(self) -> list[_Work]:
        found: list[_Work] = []
        with suppress(Empty):
            while True:
                work = self._queue.get_nowait()
                if work is not None:
                    found.append(work)
        return found


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[..., object], *args: object) -> None:
    with suppress(RuntimeError):  # the loop is closed: nothing waits there any more
        loop.call_soon_threadsafe(what, *args)


def _settle(answer: asyncio.Future[Any], found: object) -> None:
    if not answer.done():  # its caller has gone meanwhile
        answer.set_result(found)


def _fail(answer: asyncio.Future[Any], error: BaseException) -> None:
    if answer.done():
        return
    if isinstance(error, StopIteration):  # no future may have it
        found = RuntimeError("a call raised StopIteration")
        found.__cause__ = error
        error = found
    answer.set_exception(error)
