"""``Calls``: the threads in which the calls of an asyncio store wait, so that the event loop never does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from logstore.errors import ClientClosedError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Submit(Protocol):
    """Has ``work`` called in a thread, soon. ClientClosedError after the end."""

    def __call__(self, work: Callable[[], T]) -> Future[T]: ...


class Calls:
    """At most ``threads`` at once; further calls wait for their turn. One per store."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="logstore-aio")

    def submit(self, work: Callable[[], T]) -> Future[T]:
        try:
            return self._executor.submit(work)
        except RuntimeError as error:
            raise ClientClosedError("this store is closed", hint="open it again") from error

    def close(self) -> None:
        """Calls that are under way come to their end; no new ones begin."""
        self._executor.shutdown(wait=False)


async def outcome(future: Future[T]) -> T:
    """The call's result. A task that is cancelled meanwhile gives up waiting: a call that has not begun is not made,
    one that has comes to its end, and an error of it is logged."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(_tell)
        raise


def _tell(future: Future[Any]) -> None:
    try:
        error = future.exception()
    except CancelledError:
        return  # it was never made
    if error is not None:
        logger.warning("a call whose task was cancelled failed: %s", error)


async def to_the_end(future: Future[T]) -> T:
    """The call's result, waited for also by a task that is cancelled meanwhile, which learns of that afterwards."""
    cancelled: asyncio.CancelledError | None = None
    waiting = asyncio.wrap_future(future)
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        _tell(future)
        raise cancelled
    return waiting.result()


async def made(future: Future[T], submit: Submit, discard: Callable[[T], object]) -> T:
    """What the call makes. If the task is cancelled meanwhile, it is discarded, in a thread."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(lambda done: _discard(done, submit, discard))
        raise


def _discard(future: Future[T], submit: Submit, discard: Callable[[T], object]) -> None:
    if future.cancelled() or future.exception() is not None:
        return  # nothing was made
    submit(partial(discard, future.result())).add_done_callback(_tell)


class Waits:
    """An asyncio twin: ``_twin`` is the synchronous object, ``_submit`` how its calls are made."""

    _twin: Any
    _submit: Submit

    async def _call(self, work: Callable[[], T]) -> T:
        return await outcome(self._submit(work))


class InThread(Generic[P, T]):
    """A coroutine method of a ``Waits``: the synchronous method of the same name and arguments, called in a thread."""

    def __init__(self, method: Callable[Concatenate[Any, P], T]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Waits, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Waits | None, owner: type) -> Self | Callable[P, Coroutine[Any, Any, T]]:
        if instance is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
            return instance._call(partial(self.method, instance._twin, *args, **kwargs))

        return call
