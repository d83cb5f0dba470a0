"""``with topic.using(): ...``: the topic is owned inside, and cannot be released under you."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Generic, Protocol, TypeVar

inside = threading.local()  # .topics: how many ``using`` blocks this thread is in


class Usable(Protocol):
    def enter(self) -> None: ...
    def leave(self, counts_as_use: bool = True) -> None: ...


Used = TypeVar("Used", bound=Usable)


class Using(Generic[Used]):
    """May be nested, also over several topics: a thread that is inside one is let into another even while that
    waits to be released, so that two threads never wait for each other."""

    __slots__ = ("_counts", "_topic")

    def __init__(self, topic: Used, counts: bool) -> None:
        self._topic = topic
        self._counts = counts

    def __enter__(self) -> Used:
        self._topic.enter()
        return self._topic

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._topic.leave(self._counts)


class Unshared:
    """A topic that no other process writes while it is owned."""

    shared = False

    def breathe(self) -> None:
        """No process waits for the end of a slice: one that wants the topic waits for its release."""


class CleaningUnderWay(Protocol):
    """Work on an owned topic that goes on between two visits: a cleaning. It is told before the topic goes."""

    def keeps_topic(self) -> bool:
        """Whether processes that wait for the topic shall wait on: for a bounded time, and only where the work was
        ended early again and again."""
        ...

    def end_early(self) -> None:
        """The topic is about to be given up or deleted: end what is under way. Raises nothing."""
        ...
