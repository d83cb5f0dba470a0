"""``ClientThread``: the thread of one producer or consumer of asyncio, which makes its calls one after the other."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, TypeVar

from logstore.errors import ClientClosedError

T = TypeVar("T")
Job = Callable[[], None]

_hook_of: ContextVar[ClientThread | None] = ContextVar("logstore_hook_of", default=None)


class ClientThread:
    """Starts with its first call. A hook that is a coroutine runs in the event loop while the thread waits for it, and
    makes the calls of the hook meanwhile: a consumer's hook may commit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._hook_jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._started = False
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """ClientClosedError after ``close``."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  # the caller's, whatever it is
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._guard:
            if self._closed:
                raise ClientClosedError("this client is closed", hint="make another one")
            if not self._started:
                self._started = True
                thread = threading.Thread(target=_run, args=(self._jobs,), name=self._name, daemon=True)
                thread.start()
                # A client that is dropped without close() leaves no thread behind.
                weakref.finalize(self, self._jobs.put, None).atexit = False
            (self._hook_jobs if _hook_of.get() is self else self._jobs).put(job)
        return future

    def run_hook(
        self, loop: asyncio.AbstractEventLoop, hook: Callable[[], Coroutine[Any, Any, object]]
    ) -> object:
        """In this thread: run the coroutine in ``loop``, and what it asks this thread to do."""

        async def hooked() -> object:
            _hook_of.set(self)
            return await hook()

        future = asyncio.run_coroutine_threadsafe(hooked(), loop)
        future.add_done_callback(lambda _: self._hook_jobs.put(None))
        while (job := self._hook_jobs.get()) is not None:
            job()
        return future.result()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """The thread ends behind what it was asked to do. Safe to call again, from any thread."""
        with self._guard:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)


def _run(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job
