"""``Fetcher``: asks the backend for what a consumer's partitions lack, and whose turn it is to be handed out."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

from logstore.api.backend import Backend
from logstore.api.pipelines import FetchAhead, Pipelining
from logstore.api.records import FetchRequest, FetchResult
from logstore.client.consumer.assignment import Assignment
from logstore.client.consumer.fetch_state import FetchState
from logstore.client.consumer.settings import ConsumerSettings
from logstore.client.consumer.wakeup import Wakeup
from logstore.errors import LogStoreError, OffsetOutOfRangeError
from logstore.seams.clock import Clock

logger = logging.getLogger(__name__)

# While some partitions have records at hand, the others are asked again this often: a long backlog in one
# must not hold up what arrives in another.
FAIR_REFETCH_S = 0.01
# An error that may pass is raised when it has stood for this long. A segment file that is gone never comes back, and
# a consumer that waits without end (iteration, a poll of an hour) must not hide it.
PATIENCE_S = 2.0
# A partition in that state is asked again this often while others have records at hand.
_ASK_AGAIN_S = 0.25


class Fetcher:
    """Belongs to the consumer's thread. ``ready``: partitions with records at hand, in turn; it may name some
    that have none any more."""

    def __init__(
        self, backend: Backend, assignment: Assignment, settings: ConsumerSettings, clock: Clock
    ) -> None:
        # Where answers take their time, the next ones are fetched ahead.
        self._ahead = backend.fetch_ahead() if isinstance(backend, Pipelining) else None
        self._source: FetchAhead | Backend = self._ahead or backend
        self._assignment = assignment
        self._settings = settings
        self._clock = clock
        self._last_fetch_s = 0.0
        self.wakeup = Wakeup()
        self.ready: deque[FetchState] = deque()
        self.fetches = 0
        self.fetched_bytes = 0

    def next_ready(self) -> FetchState | None:
        """The partition whose turn it is; None if nothing is at hand."""
        ready = self.ready
        while ready:
            state = ready[0]
            if state.waiting and not state.paused and self._assignment.states.get(state.where) is state:
                return state
            ready.popleft()
            state.queued = False
        return None

    def offer(self, state: FetchState) -> None:
        """Let the partition have its turn, if it has records at hand."""
        if state.waiting and not state.queued:
            state.queued = True
            self.ready.append(state)

    def fetch(self, wait_s: float) -> LogStoreError | None:
        """One fetch for all partitions with nothing at hand; waits up to ``wait_s`` if there is nothing new.

        Gives an error that may pass. Raises others, with the partition's position left where it was, and
        what other partitions brought kept.
        """
        states = [
            state
            for state in self._assignment.states.values()
            if not state.paused and not state.waiting and not state.at_end
        ]
        if not states:
            self.nap(wait_s)
            return None
        # Each fetch begins with another partition: the byte limit must not always favour the same.
        turn = self.fetches % len(states)
        return self._fetch_for(states[turn:] + states[:turn], wait_s)

    def refetch_others(self, now_s: float) -> None:
        """Ask for partitions that ran dry while others have a backlog, now and then, without waiting."""
        if now_s - self._last_fetch_s < FAIR_REFETCH_S or len(self.ready) >= len(self._assignment.states):
            return
        states = [
            state
            for state in self._assignment.states.values()
            if not (state.paused or state.waiting or state.at_end or state.failed)
            or (state.may_pass and now_s >= state.ask_again_s and not state.paused)
        ]
        if states:
            self._fetch_for(states, 0)

    def _fetch_for(self, states: list[FetchState], wait_s: float) -> LogStoreError | None:
        settings = self._settings
        requests: list[FetchRequest] = [state.request(settings.max_partition_fetch_bytes) for state in states]
        results: Sequence[FetchResult | None]
        with self.wakeup.waiting() as handle:
            results = self._source.fetch(
                requests,
                isolation=settings.isolation,
                min_bytes=settings.fetch_min_bytes,
                max_bytes=settings.fetch_max_bytes,
                max_wait_s=wait_s,
                cancel=handle,
            )
        self.fetches += 1
        self._last_fetch_s = self._clock.monotonic_s()
        fatal: LogStoreError | None = None
        passing: LogStoreError | None = None
        for state, result in zip(states, results, strict=True):
            if result is None:
                continue
            self.fetched_bytes += len(result.batches)
            try:
                state.take(result)
            except OffsetOutOfRangeError as error:
                if not self._reset(state, error):
                    fatal = fatal or error
            except LogStoreError as error:
                if error.retriable and self._is_patient(state):
                    passing = passing or error
                else:
                    fatal = fatal or error
            self.offer(state)
        if fatal is not None:
            raise fatal
        return passing

    def _is_patient(self, state: FetchState) -> bool:
        """Whether the error that the partition's fetch gave, one that may pass, is to be waited out. When it has
        stood for ``PATIENCE_S`` it is raised, and the wait begins anew."""
        now_s = self._last_fetch_s
        if not state.may_pass:
            state.may_pass = True
            state.failing_since_s = now_s
        elif now_s - state.failing_since_s >= PATIENCE_S:
            state.may_pass = False
            return False
        state.ask_again_s = now_s + _ASK_AGAIN_S
        return True

    def _reset(self, state: FetchState, error: OffsetOutOfRangeError) -> bool:
        """Go where ``on_reset`` says. False: it says that this is an error."""
        to = self._settings.on_reset
        if to == "error":
            return False
        offset = self._assignment.listed([state.where], to)[state.where].offset or 0
        logger.warning("%s; on_reset=%s goes to offset %d", error.message, to, offset)
        state.seek(offset)
        return True

    def nap(self, seconds: float) -> None:
        """Wait, unless ``wakeup`` is triggered."""
        if seconds <= 0:
            return
        woken = threading.Event()
        with self.wakeup.waiting() as handle:
            handle.on_cancel(woken.set)
            woken.wait(seconds)

    def close(self) -> None:
        """Drop what is on its way. Any thread, once no fetch is under way."""
        if self._ahead is not None:
            self._ahead.close()
