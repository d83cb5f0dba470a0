"""``Blocking``: threads for the engine's calls, which may wait for the disk, so that the event loop never does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class Blocking:
    """``threads``: how many calls are under way at once; more wait in their order. What waits for records or for a
    sync takes no thread."""

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, f"logstore-{name}")

    async def run(
        self, call: Callable[Given, Answer], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Answer:
        """The call's answer, or its error. What it logs belongs to the caller's request. A caller that is cancelled
        leaves the call to its end."""
        loop = asyncio.get_running_loop()
        context = copy_context()
        return await loop.run_in_executor(self._pool, lambda: context.run(call, *args, **kwargs))

    def start(self, call: Callable[[], None]) -> None:
        """As ``run``, for a call that tells its outcome in its own way: the loop is not woken up for its end. What it
        raises is a fault of this program, and is logged."""
        self._pool.submit(copy_context().run, _aloud, call)

    def close(self) -> None:
        """Wait for the calls under way; those that have not begun are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _aloud(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        logger.exception("a call that nobody waits for has failed")
