"""``Repetitions``: calls that take effect once, however often they come.

A client that does not know whether a call has arrived makes it again, over another connection perhaps; the first one
may arrive behind the second, or be at work still. Both carry the same call id, and get the same answer.
A caller that is gone leaves such a call to its end: what the call opened is then held, and ends by its timeout.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from logstore.errors import LogStoreError

REMEMBERED: Final = 4096
"""Calls of one service that have ended; beyond them the oldest are forgotten."""

REMEMBERED_BYTES: Final = 16 << 20
"""Of their answers."""

KEPT_S: Final = 120.0
"""How long a call is remembered once it has an answer: longer than a late one may be on its way."""


class CallKey(NamedTuple):
    """``principal``: one caller cannot ask for the answer of another; ``call_id`` "": a call that is never repeated."""

    principal: str
    method: str
    call_id: str


class Outcome(NamedTuple):
    """What a call was answered, or its error: a copy without the frames that it passed, which hold the request."""

    ended_s: float
    answer: bytes
    error: LogStoreError | None


class Repetitions:
    """Of the event loop alone. Calls at work are bounded as the broker's calls are, those that have ended by count,
    bytes and time."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._at_work: dict[CallKey, asyncio.Task[bytes]] = {}
        self._unrepeated: set[asyncio.Task[bytes]] = set()
        self._ended: OrderedDict[CallKey, Outcome] = OrderedDict()
        self._bytes = 0

    async def once(self, key: CallKey, make: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """What ``make()`` answers, which is called unless a call of this key is at work or remembered. Its error, too,
        unless that is one to try again behind."""
        ended = self._ended.get(key)
        if ended is not None:
            if ended.error is not None:
                raise copy.copy(ended.error)
            return ended.answer
        task = self._at_work.get(key)
        if task is None:
            task = asyncio.ensure_future(make())
            if key.call_id:
                self._at_work[key] = task
                task.add_done_callback(partial(self._note_end, key))
            else:
                self._unrepeated.add(task)
                task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[bytes]) -> None:
        self._unrepeated.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that is gone asks for it no more

    def _note_end(self, key: CallKey, task: asyncio.Task[bytes]) -> None:
        del self._at_work[key]
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None and (not isinstance(failure, LogStoreError) or failure.retriable):
            return
        answer = b"" if failure is not None else task.result()
        self._ended[key] = Outcome(self._clock_s(), answer, copy.copy(failure))
        self._bytes += len(answer)
        self._forget_old()

    def _forget_old(self) -> None:
        now_s = self._clock_s()
        while self._ended:
            key, oldest = next(iter(self._ended.items()))
            many = len(self._ended) > REMEMBERED or self._bytes > REMEMBERED_BYTES
            if not many and now_s - oldest.ended_s < KEPT_S:
                return
            del self._ended[key]
            self._bytes -= len(oldest.answer)

    async def settle(self, timeout_s: float) -> None:
        """Wait for calls whose callers are gone."""
        if left := [*self._at_work.values(), *self._unrepeated]:
            await asyncio.wait(left, timeout=timeout_s)
