"""``in_threads``: an iterator whose items are read in threads, a bounded number ahead of the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from logstore.aio.calls import Submit, outcome

Item = TypeVar("Item")


async def in_threads(submit: Submit, make: Callable[[], Iterator[Item]], at_once: int) -> AsyncIterator[Item]:
    """The items of ``make()``, which is called in a thread as the iteration is, ``at_once`` items a call. Where the
    loop stops early the iterator is closed, in a thread, too."""
    iterator = await outcome(submit(make))
    try:
        while items := await outcome(submit(partial(_next, iterator, at_once))):
            for item in items:
                yield item
    finally:
        close: Callable[[], Any] | None = getattr(iterator, "close", None)
        if close is not None:
            submit(close)


def _next(iterator: Iterator[Item], count: int) -> list[Item]:
    return list(islice(iterator, count))
