"""``Repetitions``: calls that take effect once, however often they come.

A client that does not know whether a call has arrived makes it again, over another connection perhaps; the first one
may arrive behind the second, or be at work still. Both carry the same call id, and get the same answer.
A caller that is gone leaves such a call to its end: what the call opened is then held, and ends by its timeout.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from logstore.errors import LogStoreError

REMEMBERED: Final = 4096
"""Calls of one service; beyond them the oldest are forgotten."""

KEPT_S: Final = 120.0
"""How long a call is remembered once it has an answer: longer than a late one may be on its way."""


class CallKey(NamedTuple):
    """``principal``: one caller cannot ask for the answer of another; ``call_id`` "": a call that is never repeated."""

    principal: str
    method: str
    call_id: str


class Repetitions:
    """Of the event loop alone."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._answers: OrderedDict[CallKey, asyncio.Task[bytes]] = OrderedDict()
        self._ended_s: dict[CallKey, float] = {}
        self._at_work: set[asyncio.Task[bytes]] = set()

    async def once(self, key: CallKey, make: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """What ``make()`` answers, which is called unless a call of this key is at work or remembered. Its error, too,
        unless that is one to try again behind."""
        task = self._answers.get(key)
        if task is None:
            task = asyncio.ensure_future(make())
            self._at_work.add(task)
            task.add_done_callback(partial(self._note_end, key))
            if key.call_id:
                self._answers[key] = task
                self._forget_old()
        return await asyncio.shield(task)

    def _note_end(self, key: CallKey, task: asyncio.Task[bytes]) -> None:
        self._at_work.discard(task)
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or (isinstance(failure, LogStoreError) and failure.retriable):
            if self._answers.get(key) is task:
                del self._answers[key]
        elif key in self._answers:
            self._ended_s[key] = self._clock_s()

    def _forget_old(self) -> None:
        """Those that ended long ago, and the oldest beyond the bound; those at work stay."""
        now_s = self._clock_s()
        while self._answers:
            oldest = next(iter(self._answers))
            ended_s = self._ended_s.get(oldest)
            if ended_s is None or (len(self._answers) <= REMEMBERED and now_s - ended_s < KEPT_S):
                return
            del self._answers[oldest], self._ended_s[oldest]

    async def settle(self, timeout_s: float) -> None:
        """Wait for calls whose callers are gone."""
        if self._at_work:
            await asyncio.wait(tuple(self._at_work), timeout=timeout_s)
