"""``RemoteFetchAhead``: a consumer's fetches at a broker, with the next one under way while it works through the last.

What the broker has already (an answer ended below the high watermark) is fetched ahead. At the end of the log a call
that waits for more stays under way when the consumer's own wait is over, and is the next one's: idle consumers ask
once a minute, however often they poll.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import grpc

from logstore.api.cancellation import CancelHandle
from logstore.api.records import FetchRequest, FetchResult
from logstore.client.consumer.fetch_state import epoch_starts
from logstore.errors import LogStoreError
from logstore.types import Isolation, TopicPartition
from rpc.wire.records import read_fetch_response

_KEPT_S: Final = 30.0
"""What was fetched ahead and is not asked for within this is dropped."""
_WAIT_S: Final = 60.0
"""How long a call waits for more: as long as a broker lets it, by default."""


class FetchSettings(NamedTuple):
    """How a consumer fetches."""

    isolation: Isolation
    min_bytes: int
    max_bytes: int


class FetchCalls(Protocol):
    """What is asked of the broker."""

    def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        isolation: Isolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_s: float,
        cancel: CancelHandle | None = None,
    ) -> list[FetchResult]: ...
    def begin_fetch(
        self, requests: Sequence[FetchRequest], settings: FetchSettings, max_wait_s: float
    ) -> Any:
        """The call, as a ``grpc.Future`` of the answer's bytes, or of the results. LogStoreError."""
        ...


class _Asked(NamedTuple):
    """A call under way. ``waits``: for what the broker may not have yet."""

    requests: Sequence[FetchRequest]
    call: Any
    began_s: float
    waits: bool


class _Held(NamedTuple):
    """An answer that is here."""

    request: FetchRequest
    result: FetchResult
    came_s: float


class RemoteFetchAhead:
    """A ``FetchAhead``. ``revision``: of the broker's topics: one that was made anew has other records under the same
    offsets."""

    def __init__(
        self, calls: FetchCalls, revision: Callable[[], int], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._calls = calls
        self._revision = revision
        self._now_s = now_s
        self._settings: tuple[FetchSettings, int] | None = None
        self._asked: _Asked | None = None
        self._held: dict[TopicPartition, _Held] = {}

    def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        isolation: Isolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_s: float,
        cancel: CancelHandle | None = None,
    ) -> list[FetchResult | None]:
        """See ``FetchAhead``."""
        settings = FetchSettings(isolation, min_bytes, max_bytes)
        self._drop_stale(settings)
        results = self._of_calls(requests, settings, max_wait_s, cancel)
        if results is None:
            results = list(
                self._calls.fetch(
                    requests,
                    isolation=isolation,
                    min_bytes=min_bytes,
                    max_bytes=max_bytes,
                    max_wait_s=max_wait_s,
                    cancel=cancel,
                )
            )
        if self._asked is None:
            self._look_ahead(requests, results, settings)
        return results

    def _of_calls(
        self,
        requests: Sequence[FetchRequest],
        settings: FetchSettings,
        max_wait_s: float,
        cancel: CancelHandle | None,
    ) -> list[FetchResult | None] | None:
        """What a call under way brings in time, or one that is begun for it. None: the consumer's own call is to
        tell."""
        asked = self._asked
        if asked is not None and asked.waits and not set(requests).issubset(asked.requests):
            asked.call.cancel()  # it would keep others waiting
            asked = self._asked = None
        if asked is not None and not set(asked.requests).isdisjoint(requests):
            if asked.waits and max_wait_s <= 0 and not asked.call.done():
                return None  # what is there now is asked for
            if not self._take(asked, max_wait_s if asked.waits else None, cancel):
                return [None] * len(requests)
            asked = None
        found = self._at_hand(requests)
        cancelled = cancel is not None and cancel.cancelled
        if found is not None or asked is not None or max_wait_s <= 0 or cancelled:
            return found
        if any(request.reverse for request in requests):
            return None
        begun = self._begin(requests, settings, _WAIT_S)
        if begun is None:
            return None
        return self._at_hand(requests) if self._take(begun, max_wait_s, cancel) else [None] * len(requests)

    def close(self) -> None:
        """See ``FetchAhead``."""
        asked, self._asked = self._asked, None
        self._held.clear()
        if asked is not None:
            asked.call.cancel()

    def _drop_stale(self, settings: FetchSettings) -> None:
        now = settings, self._revision()
        if now != self._settings:
            self.close()
            self._settings = now
        oldest_s = self._now_s() - _KEPT_S
        asked = self._asked
        if asked is not None and asked.began_s < oldest_s - (_WAIT_S if asked.waits else 0):
            asked.call.cancel()
            self._asked = None
        for place in [place for place, held in self._held.items() if held.came_s < oldest_s]:
            del self._held[place]

    def _take(self, asked: _Asked, wait_s: float | None, cancel: CancelHandle | None) -> bool:
        """Wait for the call under way, and keep what it brings; where it fails, the consumer's own call tells why.
        False: it is still under way."""
        if cancel is not None:
            cancel.on_cancel(asked.call.cancel)
        try:
            results = _results_of(asked.call.result(wait_s))
        except grpc.FutureTimeoutError:
            return False
        except (grpc.RpcError, grpc.FutureCancelledError, LogStoreError):
            self._asked = None
            return True  # asked again, by the consumer
        finally:
            if cancel is not None:
                cancel.on_cancel(None)
        self._asked = None
        now_s = self._now_s()
        for request, result in zip(asked.requests, results, strict=False):
            if result.error is None:
                self._held[TopicPartition(request.topic, request.partition)] = _Held(request, result, now_s)
        return True

    def _at_hand(self, requests: Sequence[FetchRequest]) -> list[FetchResult | None] | None:
        """The results, if some with records are here. What is here for another position of a partition is dropped."""
        results: list[FetchResult | None] = []
        for request in requests:
            held = self._held.pop(TopicPartition(request.topic, request.partition), None)
            results.append(None if held is None or held.request != request else held.result)
        return results if any(result is not None and len(result.batches) for result in results) else None

    def _look_ahead(
        self, requests: Sequence[FetchRequest], results: Sequence[FetchResult | None], settings: FetchSettings
    ) -> None:
        """Ask for what the consumer will ask for when it has worked through ``results``, if the broker has more by
        now; and for partitions that were left out, or have nothing yet, with it."""
        wanted, more = [], False
        for request, result in zip(requests, results, strict=True):
            if result is None:
                wanted.append(request)
            elif result.error is None and not request.reverse:
                committed = settings.isolation == "read_committed"
                end = result.last_stable_offset if committed else result.high_watermark
                if len(result.batches) and result.next_offset < end:
                    epoch = epoch_starts(result.batches)[-1].epoch
                    wanted.append(request._replace(offset=result.next_offset, leader_epoch=epoch))
                    more = True
                elif not len(result.batches):
                    wanted.append(request)
        held_bytes = sum(len(held.result.batches) for held in self._held.values())
        if not more or held_bytes > settings.max_bytes // 2:
            return
        self._begin(wanted, settings._replace(max_bytes=settings.max_bytes - held_bytes), 0.0)

    def _begin(
        self, requests: Sequence[FetchRequest], settings: FetchSettings, wait_s: float
    ) -> _Asked | None:
        """Begin a call. None: it cannot be; the consumer's own meets the same, and tells."""
        try:
            call = self._calls.begin_fetch(requests, settings, wait_s)
        except LogStoreError:
            return None
        self._asked = begun = _Asked(requests, call, self._now_s(), wait_s > 0)
        return begun


def _results_of(answer: bytes | list[FetchResult]) -> list[FetchResult]:
    return answer if isinstance(answer, list) else read_fetch_response(answer)[1]


def nothing(request: FetchRequest) -> FetchResult:
    """A result without news."""
    return FetchResult(request.topic, request.partition, b"", request.offset, -1, -1, -1)
