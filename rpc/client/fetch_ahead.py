"""``RemoteFetchAhead``: a consumer's fetches at a broker, with the next one under way while it works through the last.

Only what the broker has already is fetched ahead (an answer that ended below the high watermark), so no call waits for
records on a consumer's behalf without the consumer.
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
    def begin_fetch(self, requests: Sequence[FetchRequest], settings: FetchSettings) -> Any:
        """The call, as a ``grpc.Future`` of the answer's bytes. LogStoreError."""
        ...


class _Asked(NamedTuple):
    """A call under way."""

    requests: Sequence[FetchRequest]
    call: Any
    began_s: float


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
        asked = self._asked
        if asked is not None and not set(asked.requests).isdisjoint(requests):
            self._take(asked, cancel)
        results = self._at_hand(requests)
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
        if self._asked is not None and self._asked.began_s < oldest_s:
            self._asked.call.cancel()
            self._asked = None
        for place in [place for place, held in self._held.items() if held.came_s < oldest_s]:
            del self._held[place]

    def _take(self, asked: _Asked, cancel: CancelHandle | None) -> None:
        """Wait for the call under way, and keep what it brings; where it fails, the consumer's own call tells why."""
        self._asked = None
        if cancel is not None:
            cancel.on_cancel(asked.call.cancel)
        try:
            results = read_fetch_response(asked.call.result())[1]
        except (grpc.RpcError, grpc.FutureCancelledError, LogStoreError):
            return  # asked again, without looking ahead
        finally:
            if cancel is not None:
                cancel.on_cancel(None)
        now_s = self._now_s()
        for request, result in zip(asked.requests, results, strict=False):
            if result.error is None and len(result.batches):
                self._held[TopicPartition(request.topic, request.partition)] = _Held(request, result, now_s)

    def _at_hand(self, requests: Sequence[FetchRequest]) -> list[FetchResult | None] | None:
        """The results, if some are here. What is here for another position of a partition is dropped."""
        results: list[FetchResult | None] = []
        for request in requests:
            held = self._held.pop(TopicPartition(request.topic, request.partition), None)
            results.append(None if held is None or held.request != request else held.result)
        return results if any(result is not None for result in results) else None

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
        try:
            ahead = settings._replace(max_bytes=settings.max_bytes - held_bytes)
            self._asked = _Asked(wanted, self._calls.begin_fetch(wanted, ahead), self._now_s())
        except LogStoreError:
            pass  # the consumer's own call meets the same, and tells


def nothing(request: FetchRequest) -> FetchResult:
    """A result without news."""
    return FetchResult(request.topic, request.partition, b"", request.offset, -1, -1, -1)
