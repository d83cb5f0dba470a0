"""Requests that wait in line: whoever comes to an idle place leads, and serves those that come meanwhile.

A leader takes requests from the front, its own first, works them off together, and hands the lead to the first
of those that are still waiting. So a request waits for at most one group before its own, and no thread serves
others for longer than its own group takes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Subject = TypeVar("Subject")


class Request(Generic[Subject]):
    """``work`` is called by the leader with what it works on; ``since_s``: when it came, by the monotonic clock.

    ``error``: what its caller gets instead of ``reply``. ``unsure``: it was decided on, or wrote, what is not
    durable yet; ``wrote``: it appended something itself; ``served``: ``work`` has come to its end.
    """

    __slots__ = ("_turn", "error", "leads", "reply", "served", "since_s", "unsure", "work", "wrote")

    def __init__(self, work: Callable[[Subject, Request[Subject]], Any], since_s: float) -> None:
        self.work = work
        self.since_s = since_s
        self.reply: Any = None
        self.error: BaseException | None = None
        self.unsure = False
        self.wrote = False
        self.served = False
        self.leads = False
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> None:
        self._turn.acquire()

    def wake(self) -> None:
        self._turn.release()


class CommitQueue(Generic[Subject]):
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request[Subject]] = deque()
        self._led = False

    def join(self, request: Request[Subject]) -> bool:
        """Wait for its turn. True: the caller leads, and its request is the first in line; it has to ``hand_on``
        whatever happens. False: the request was served."""
        with self._lock:
            self._waiting.append(request)
            if not self._led:
                self._led = request.leads = True
                return True
        try:
            request.wait()
        except BaseException:
            self._leave(request)
            raise
        return request.leads

    def _leave(self, request: Request[Subject]) -> None:
        """Its thread was interrupted as it waited."""
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)
            leads = request.leads
        if leads:
            self.hand_on()

    def take(self) -> Request[Subject] | None:
        """The first in line, which is now the leader's to serve and to wake; None: nobody waits."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def hand_on(self) -> None:
        """The leader's group is done."""
        with self._lock:
            if not self._waiting:
                self._led = False
                return
            following = self._waiting[0]
            following.leads = True
        following.wake()
