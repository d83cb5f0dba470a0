"""Requests that wait in line: a thread that comes to an idle queue leads, and serves those that come meanwhile.

A leader takes requests from the front, its own first, works them off together, and hands the lead to the first
of those that are still waiting. So a request waits for at most one group before its own, and no thread serves
others for longer than its own group takes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from logstore.errors import TopicLockedError

Subject = TypeVar("Subject")
Wait = Callable[[threading.Lock], None]
"""Takes the lock, which is released once the request leads or was served."""


def _until_woken(turn: threading.Lock) -> None:
    turn.acquire()


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

    def wait(self, wait: Wait) -> None:
        wait(self._turn)

    def wake(self) -> None:
        self._turn.release()


class CommitQueue(Generic[Subject]):
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request[Subject]] = deque()
        self._led = False

    def join(self, request: Request[Subject], wait: Wait = _until_woken) -> bool:
        """Wait for its turn. True: the caller leads, and its request is the first in line; it has to ``hand_on``
        whatever happens. False: the request was served. ``wait`` may end with a TopicLockedError, and does for a
        request that no leader has taken up by then; one that is being served has its outcome soon."""
        with self._lock:
            self._waiting.append(request)
            if not self._led:
                self._led = request.leads = True
                return True
        try:
            self._await(request, wait)
        except TopicLockedError:
            raise  # it is out of the line
        except BaseException:
            self._leave(request)
            raise
        return request.leads

    def _await(self, request: Request[Subject], wait: Wait) -> None:
        try:
            request.wait(wait)
        except TopicLockedError:
            if self._left_untouched(request):
                raise
            request.wait(_until_woken)

    def _left_untouched(self, request: Request[Subject]) -> bool:
        """Take it out of the line, unless it leads by now or is being served."""
        with self._lock:
            if request.leads or request not in self._waiting:
                return False
            self._waiting.remove(request)
            return True

    def _leave(self, request: Request[Subject]) -> None:
        """Its thread was interrupted as it waited."""
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)
            leads = request.leads
        if leads:
            self.hand_on()

    def take(self) -> Request[Subject] | None:
        """The first in line, which is now the leader's to serve and to wake; None: the line is empty."""
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
