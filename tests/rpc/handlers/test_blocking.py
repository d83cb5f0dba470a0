"""``Blocking``: calls in threads, a bounded number at once, in their order; what is dropped is told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from logstore.errors import UnknownTopicError
from rpc.handlers.blocking import Blocking

PATIENCE_S = 60.0
WHOSE: ContextVar[str] = ContextVar("whose", default="nobody's")


class Gate:
    """Calls that stay inside until they are let out. ``inside``: how many are; ``most``: were at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.inside = self.most = 0
        self.order: list[int] = []

    def call(self, number: int) -> int:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.order.append(number)
        self.entered.release()
        assert self.open.wait(PATIENCE_S)
        with self._lock:
            self.inside -= 1
        return number

    async def hold(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.entered.acquire, True, PATIENCE_S)


def with_blocking(threads: int, work: Callable[[Blocking], object]) -> None:
    async def run() -> None:
        blocking = Blocking("test", threads)
        try:
            await work(blocking)  # type: ignore[misc]
        finally:
            await asyncio.to_thread(blocking.close)
            blocking.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def test_answers_and_errors_come_to_their_callers() -> None:
    async def work(blocking: Blocking) -> None:
        assert await blocking.run(lambda a, b: a + b, 1, b=2) == 3
        with pytest.raises(UnknownTopicError, match="no such"):
            await blocking.run(_raise, UnknownTopicError("no such"))
        assert await blocking.run(threading.get_ident) != threading.get_ident()

    with_blocking(2, work)


def _raise(error: BaseException) -> None:
    raise error


def test_a_call_belongs_to_its_callers_context() -> None:
    async def work(blocking: Blocking) -> None:
        WHOSE.set("mine")
        assert await blocking.run(WHOSE.get) == "mine"
        await blocking.run(WHOSE.set, "of the thread")
        assert WHOSE.get() == "mine"
        assert await blocking.run(WHOSE.get) == "mine"

    with_blocking(1, work)


def test_as_many_are_under_way_as_may_be_and_the_rest_come_in_order() -> None:
    async def work(blocking: Blocking) -> None:
        gate = Gate()
        asked = [asyncio.create_task(blocking.run(gate.call, number)) for number in range(12)]
        await gate.hold(3)
        assert gate.inside == 3
        gate.open.set()
        assert await asyncio.gather(*asked) == list(range(12))
        assert gate.most == 3
        assert sorted(gate.order[:3]) == [0, 1, 2]

    with_blocking(3, work)


def test_a_caller_that_is_cancelled_leaves_the_call_to_its_end() -> None:
    async def work(blocking: Blocking) -> None:
        gate = Gate()
        task = asyncio.create_task(blocking.run(gate.call, 1))
        await gate.hold(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.inside == 1
        gate.open.set()
        assert await blocking.run(lambda: gate.order) == [1]

    with_blocking(1, work)


def test_what_has_not_begun_is_dropped_at_the_end_and_its_callers_know() -> None:
    async def work(blocking: Blocking) -> None:
        gate, done = Gate(), []
        under_way = asyncio.create_task(blocking.run(gate.call, 1))
        await gate.hold(1)
        waiting = asyncio.create_task(blocking.run(gate.call, 2))
        await asyncio.sleep(0)
        blocking.start(lambda: done.append(3))
        closing = asyncio.create_task(asyncio.to_thread(blocking.close))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not closing.done(), "what is under way is waited for"
        gate.open.set()
        await closing
        assert await under_way == 1
        assert done == []
        with pytest.raises(RuntimeError, match="after shutdown"):
            await blocking.run(gate.call, 4)

    with_blocking(1, work)


def test_a_call_that_nobody_waits_for_fails_aloud(caplog: pytest.LogCaptureFixture) -> None:
    async def work(blocking: Blocking) -> None:
        with caplog.at_level(logging.ERROR):
            blocking.start(lambda: _raise(ValueError("amiss")))
            assert await blocking.run(lambda: 1) == 1
        assert "a call that nobody waits for has failed" in caplog.text
        assert "amiss" in caplog.text

    with_blocking(1, work)


def test_an_answer_for_a_loop_that_is_closed_is_passed_over() -> None:
    blocking, gate = Blocking("test", 1), Gate()

    async def ask() -> None:
        task = asyncio.create_task(blocking.run(gate.call, 1))
        await gate.hold(1)
        assert not task.done()

    asyncio.run(ask())
    gate.open.set()
    blocking.close()
    assert gate.order == [1]
