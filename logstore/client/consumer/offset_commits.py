"""``OffsetCommits``: a consumer's way to its committed offsets, waited for or in the background, in one order."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from logstore.api.backend import Backend
from logstore.api.groups import GroupMembership
from logstore.client.consumer.assignment import Assignment
from logstore.client.consumer.fetch_state import FetchState
from logstore.errors import InvalidArgumentError, StaleGenerationError
from logstore.seams.clock import Clock
from logstore.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

_THREAD_IDLE_S: Final = 5.0  # then it ends; a consumer that is never closed leaves none behind

Points: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[[Points, Exception | None], object]
"""Called with the offsets and the error, None once they are durable; by the thread that polls, commits or closes."""


class _Request(NamedTuple):
    """One ``commit_async``, by the member and under the generation of its time."""

    points: Points
    callback: CommitCallback | None
    member: GroupMembership | None
    epoch: int


class _Done(NamedTuple):
    request: _Request
    error: Exception | None


class OffsetCommits:
    """``member``, ``epoch``: under which a shared group's consumer commits. Belongs to the consumer's thread; the
    background's is its own, made with the first ``commit_async`` and ended by ``close``.

    A commit never overtakes an earlier one: a waited-for one waits for those in the background first.
    """

    def __init__(
        self,
        backend: Backend,
        group: str | None,
        assignment: Assignment,
        clock: Clock,
        interval_s: float | None,
    ) -> None:
        self._backend = backend
        self._group = group
        self._assignment = assignment
        self._states: Mapping[TopicPartition, FetchState] = assignment.states
        self._clock = clock
        self._interval_s = interval_s
        self._next_commit_s = clock.monotonic_s() + (interval_s or 0)
        self.member: GroupMembership | None = None
        self.epoch = -1
        self._sent: dict[TopicPartition, tuple[int, int]] = {}  # into transactions, the newest ones
        self._lost: set[TopicPartition] = set()  # gone, with records handed out and no offset behind them
        self._changed = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._done: deque[_Done] = deque()
        self._busy = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def need_group(self, call: str) -> str:
        """InvalidArgumentError without a group."""
        if self._group is None:
            raise InvalidArgumentError(f"{call} on a consumer without a group", hint="pass group=NAME")
        return self._group

    # --- waited for ---

    def commit(self, points: Points) -> None:
        """Durable when it returns, and so is what was given to ``commit_async`` before."""
        self.flush()
        if points:
            self._write(_Request(points, None, self.member, self.epoch))
            self._note(points)

    def changed(
        self, point: Callable[[FetchState], OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions that are not committed as they are, of topics that were not deleted since."""
        points = {}
        for where, state in self._assignment.standing().items():
            at = point(state)
            if state.committed != (at.offset, at.leader_epoch):
                points[where] = at
        return points

    def is_due(self) -> bool:
        """Whether it is time for an automatic commit; if so, the next is an interval away."""
        interval_s = self._interval_s
        if interval_s is None:
            return False
        now_s = self._clock.monotonic_s()
        if now_s < self._next_commit_s:
            return False
        self._next_commit_s = now_s + interval_s
        return True

    def before_revocation(self, going: Collection[TopicPartition]) -> None:
        """Commits are automatic: commit what was handed out of partitions that go to another member."""
        if self._interval_s is None:
            return
        points = self.changed(FetchState.commit_point)
        self.commit({where: points[where] for where in going if where in points})

    # --- in transactions ---

    def to_send(
        self, point: Callable[[FetchState], OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a transaction commits, as ``changed``. StaleGenerationError, once: partitions are gone whose records
        may be in the transaction, and whose next owner begins before them."""
        if self._lost:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self._lost))
            self._lost.clear()
            raise StaleGenerationError(
                f"group {self._group!r}: {names} went to another member after records were handed out, and before "
                "their offsets were sent: a transaction with what came of them would count them twice",
                hint="abort the transaction; send offsets before the next poll, or in on_revoked",
            )
        points = self.changed(point)
        self._sent.update({where: (at.offset, at.leader_epoch) for where, at in points.items()})
        return points

    def note_gone(self, places: Collection[TopicPartition]) -> None:
        """These partitions are about to be dropped, as they are."""
        for where in places:
            state = self._states[where]
            at = state.commit_point()
            sent = self._sent.pop(where, None)
            if (at.offset, at.leader_epoch) not in (state.committed, sent) and at.offset > state.started_at:
                self._lost.add(where)

    def forget_gone(self) -> None:
        """A transaction was aborted, and everything is read again."""
        self._lost.clear()
        self._sent.clear()

    def _write(self, request: _Request) -> None:
        if request.member is not None:
            request.member.commit(request.points, request.epoch)
        else:
            self._backend.commit_offsets(self.need_group("commit()"), request.points)

    def _note(self, points: Points) -> None:
        for where, point in points.items():
            known = self._states.get(where)
            if known is not None:
                known.committed = (point.offset, point.leader_epoch)

    # --- in the background ---

    def commit_async(self, points: Points, callback: CommitCallback | None) -> None:
        request = _Request(points, callback, self.member, self.epoch)
        with self._changed:
            self._waiting.append(request)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="logstore-commits", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait for the background, and call its callbacks."""
        if self._waiting or self._busy:
            with self._changed:
                self._changed.wait_for(lambda: not self._waiting and not self._busy)
        self.call_back()

    def call_back(self) -> bool:
        """Tell of what is done by now; whether there was anything."""
        told = bool(self._done)
        while self._done:
            request, error = self._done.popleft()
            if error is None:
                self._note(request.points)
            elif request.callback is None:
                logger.warning("group %r: an asynchronous commit failed: %s", self._group, error)
            if request.callback is not None:
                request.callback(request.points, error)
        return told

    def close(self) -> None:
        """Finish what is in the background, and end its thread. Safe to call again."""
        with self._changed:
            self._closing = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join()
        self.call_back()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing, _THREAD_IDLE_S)
                if not self._waiting:
                    self._thread = None
                    return
                requests = list(self._waiting)
                self._busy = True
                self._waiting.clear()
            done: list[_Done] = []
            try:
                done = self._write_all(requests)
            finally:
                with self._changed:
                    self._done += done
                    self._busy = False
                    self._changed.notify_all()

    def _write_all(self, requests: list[_Request]) -> list[_Done]:
        """All in one if that can be: of several offsets for a partition the last counts."""
        last = requests[-1]
        if all((request.member, request.epoch) == (last.member, last.epoch) for request in requests):
            merged: dict[TopicPartition, OffsetAndMetadata] = {}
            for request in requests:
                merged |= request.points
            error = self._attempt(last._replace(points=merged))
            if error is None or len(requests) == 1:
                return [_Done(request, error) for request in requests]
        return [_Done(request, self._attempt(request)) for request in requests]

    def _attempt(self, request: _Request) -> Exception | None:
        try:
            self._write(request)
        except Exception as error:  # noqa: BLE001 - a callback waits for an answer, whatever went wrong
            return error
        return None
