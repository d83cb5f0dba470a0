"""``RoutedFetches``: fetches of one consumer from the leaders of its partitions, side by side.

A fetch is over when one leader has news. What still waits at the others stays under way, and is part of the next fetch
that asks them for the same. A partition whose leader is away, or another one now, is asked for again at the new one; it
has no news meanwhile, and an error only after ``request_timeout_s``.

A client with a rack is sent by the leader to an in-sync replica there, and reads from that one until it fails, or for a
minute; then the leader is asked again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from logstore.api.cancellation import CancelHandle
from logstore.api.records import FetchRequest, FetchResult
from logstore.errors import LogStoreError
from logstore.types import Isolation, TopicPartition
from rpc.client.channel.connection import StartedCall
from rpc.client.routing.brokers import Brokers
from rpc.client.routing.fetch_ahead import FetchSettings, RemoteFetchAhead, nothing
from rpc.client.routing.leaders import ROUTING, Leaders
from rpc.client.routing.near import NearReplicas
from rpc.errors import BrokerBusyError, ContractMismatchError
from rpc.wire.records import read_fetch_response

_LOOK_S: Final = 0.25
"""How often it is looked whether another node leads what is waited for."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
_NEAR_WAIT_S: Final = 10.0
"""How long a replica that is not the leader is asked to wait for more: it is read no more once it does not answer."""
_HANGS_S: Final = 1.0
_LEAST_BYTES: Final = 1 << 20
"""Of one leader's answer, however many there are."""

FetchData = Callable[[Sequence[FetchRequest], FetchSettings, float], bytes]
"""The message of a fetch that waits for so many seconds."""


@dataclass(slots=True, eq=False)
class _Part:
    """A call under way to one node. ``until_s``: when the broker answers at the latest; ``moved``: how often another
    node was found to lead what it asks for."""

    node: int
    requests: Sequence[FetchRequest]
    settings: FetchSettings
    call: StartedCall
    until_s: float
    moved: int = 0

    @property
    def wanted(self) -> tuple[frozenset[FetchRequest], Isolation, int]:
        return frozenset(self.requests), self.settings.isolation, self.settings.min_bytes


@dataclass(slots=True)
class _Trouble:
    """A partition that has no leader to ask: since when, and when it is tried again. Of ``time.monotonic``."""

    since_s: float
    error: LogStoreError
    again_s: float = 0.0
    pause_s: float = field(default=_FIRST_PAUSE_S)


class RoutedFetches:
    """``FetchCalls`` of one consumer, or of one fetch. Of one thread, but for cancellations."""

    def __init__(self, brokers: Brokers, leaders: Leaders, near: NearReplicas, data: FetchData) -> None:
        self._brokers = brokers
        self._leaders = leaders
        self._near = near
        self._data = data
        self._waiting: list[_Part] = []
        self._troubles: dict[TopicPartition, _Trouble] = {}

    @property
    def patience_s(self) -> float:
        return self._brokers.settings.request_timeout_s

    def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        isolation: Isolation,
        min_bytes: int,
        max_bytes: int,
        max_wait_s: float,
        cancel: CancelHandle | None = None,
    ) -> list[FetchResult]:
        """See ``FetchCalls``. A partition without a leader has no news, and an error only after a while."""
        settings = FetchSettings(isolation, min_bytes, max_bytes)
        return self._joined(self.begin_fetch(requests, settings, max_wait_s), cancel)

    def fetch_certain(
        self,
        requests: Sequence[FetchRequest],
        settings: FetchSettings,
        max_wait_s: float,
        cancel: CancelHandle | None,
    ) -> list[FetchResult]:
        """As ``DataPlane.fetch``: a partition without a leader is waited for, and in the end has its error."""
        try:
            return self._joined(JoinedFetch(self, requests, settings, max_wait_s, certain=True), cancel)
        finally:
            self.close()

    def _joined(self, joined: JoinedFetch, cancel: CancelHandle | None) -> list[FetchResult]:
        if cancel is not None:
            cancel.on_cancel(joined.cancel)
        try:
            return joined.result(None)
        except grpc.FutureCancelledError:
            return [nothing(request) for request in joined.requests]
        finally:
            if cancel is not None:
                cancel.on_cancel(None)

    def begin_fetch(
        self, requests: Sequence[FetchRequest], settings: FetchSettings, max_wait_s: float
    ) -> JoinedFetch:
        """See ``FetchCalls``."""
        return JoinedFetch(self, requests, settings, max_wait_s)

    def close(self) -> None:
        """Drop what is under way."""
        waiting, self._waiting = self._waiting, []
        for part in waiting:
            part.call.cancel()

    # --- for a joined fetch ---

    def start(
        self,
        requests: Sequence[FetchRequest],
        settings: FetchSettings,
        until_s: float,
        tell: Callable[[Any], object],
    ) -> list[_Part]:
        """Ask the leaders, or replicas nearby, or go on waiting for those that were asked before. What cannot be asked
        is in trouble."""
        split = self._split(requests)
        share = max(settings.max_bytes // max(len(split), 1), min(settings.max_bytes, _LEAST_BYTES))
        parts = []
        for node, places in split.items():
            some = [requests[place] for place in places]
            part = self._taken_up(node, some, settings) or self._begin(
                node, some, settings._replace(max_bytes=share), until_s
            )
            if part is not None:
                part.call.add_done_callback(tell)
                parts.append(part)
        return parts

    def _split(self, requests: Sequence[FetchRequest]) -> dict[int, list[int]]:
        """The places in ``requests`` of what each node is asked for."""
        if not self._near.rack:
            return self._leaders.split(requests)
        split: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            place = _place_of(request)
            near = None if request.reverse else self._near.of(place)
            split.setdefault(self._leaders.of(*place) if near is None else near, []).append(index)
        return split

    def _is_near(self, request: FetchRequest, node: int) -> bool:
        return bool(self._near.rack) and self._near.of(_place_of(request)) == node

    def _taken_up(self, node: int, requests: Sequence[FetchRequest], settings: FetchSettings) -> _Part | None:
        """What is under way to the node, if it asks for the same; else it is dropped."""
        wanted = frozenset(requests), settings.isolation, settings.min_bytes
        found = None
        for part in [part for part in self._waiting if part.node == node]:
            self._waiting.remove(part)
            if part.wanted == wanted and found is None:
                found = part
            else:
                part.call.cancel()
        return found

    def _begin(
        self, node: int, requests: Sequence[FetchRequest], settings: FetchSettings, until_s: float
    ) -> _Part | None:
        now_s = time.monotonic()
        if any(self._is_near(request, node) for request in requests):
            until_s = min(until_s, now_s + _NEAR_WAIT_S)
        wait_s = max(until_s - now_s, 0.0)
        rack_for = self._near.rack_for
        asked = (
            [one._replace(rack=rack_for(_place_of(one))) for one in requests] if self._near.rack else requests
        )
        try:
            connection = self._leaders.connection(node)
            data = self._data(asked, settings, wait_s)
            call = connection.start("FetchService/Fetch", data, wait_s + self.patience_s)
        except LogStoreError as error:
            if not isinstance(error, ROUTING):
                raise
            for request in requests:
                self.failed(request, node, error)
            return None
        return _Part(node, requests, settings, call, until_s)

    def keep(self, part: _Part) -> None:
        """It waits on, for the next fetch."""
        self._waiting.append(part)

    def read(self, part: _Part) -> list[FetchResult | None]:
        """What the node has answered; None: nothing that counts, the partition is in trouble."""
        try:
            found = read_fetch_response(part.call.result(0))[1]
        except grpc.FutureCancelledError:
            return [None] * len(part.requests)
        except LogStoreError as error:
            if not isinstance(error, ROUTING):
                raise
            for request in part.requests:
                self.failed(request, part.node, error)
            return [None] * len(part.requests)
        if len(found) != len(part.requests):
            raise ContractMismatchError(f"{len(found)} results came for {len(part.requests)} partitions")
        results: list[FetchResult | None] = []
        for request, result in zip(part.requests, found, strict=True):
            if isinstance(result.error, ROUTING):
                self.failed(request, part.node, result.error)
                results.append(None)
            elif result.preferred_replica >= 0:
                self._near.prefer(_place_of(request), result.preferred_replica)
                results.append(None)
            else:
                self._troubles.pop(_place_of(request), None)
                results.append(result)
        return results

    def failed(self, request: FetchRequest, node: int, error: LogStoreError) -> None:
        """The partition cannot be read at the node. Where that was not the leader, the leader is asked at once."""
        place, now_s = _place_of(request), time.monotonic()
        if self._near.give_up(place, node):
            return
        self._leaders.note(place, node, error)
        trouble = self._troubles.setdefault(place, _Trouble(now_s, error))
        trouble.error = error
        least_s = error.retry_after_ms / 1000 if isinstance(error, BrokerBusyError) else 0.0
        trouble.again_s = now_s + max(trouble.pause_s, least_s)
        trouble.pause_s = min(trouble.pause_s * 2, _LONGEST_PAUSE_S)
        self._leaders.refresh()

    def trouble(self, request: FetchRequest) -> _Trouble | None:
        return self._troubles.get(_place_of(request))

    def is_moved(self, part: _Part) -> bool:
        """Whether another node leads what the part waits for, for the second time: one that was deposed says so itself,
        unless it hangs. A replica that is not to lead has to answer in time."""
        near = [request for request in part.requests if self._is_near(request, part.node)]
        if near:
            if time.monotonic() < part.until_s + _HANGS_S:
                return False
            for request in near:
                self._near.give_up(_place_of(request), part.node)
            return True
        deposed = self._leaders.is_deposed(part.node, map(_place_of, part.requests))
        part.moved = part.moved + 1 if deposed else 0
        return part.moved > 1


class JoinedFetch:
    """A fetch from all leaders: what ``FetchCalls.begin_fetch`` gives. ``wait_s`` 0: what is there now is asked for,
    and each leader's answer waited for. ``certain``: it is not over before each leader has been asked."""

    def __init__(
        self,
        fetches: RoutedFetches,
        requests: Sequence[FetchRequest],
        settings: FetchSettings,
        wait_s: float,
        *,
        certain: bool = False,
    ) -> None:
        self._fetches = fetches
        self.requests = requests
        self._certain = certain
        self._inside = False  # ``result`` is at work, and deals with a cancellation
        self._settings = settings
        self._until_s = time.monotonic() + wait_s
        self._waits = wait_s > 0
        self._news = threading.Event()
        self._cancelled = False
        self._results: dict[FetchRequest, FetchResult] = {}
        self._parts: list[_Part] = []
        self._astray: list[FetchRequest] = []
        self._looked_s = time.monotonic()
        self._start(requests)

    def _start(self, requests: Sequence[FetchRequest]) -> None:
        parts = self._fetches.start(requests, self._settings, self._until_s, lambda _: self._news.set())
        self._parts += parts
        asked = {request for part in parts for request in part.requests}
        self._astray += [request for request in requests if request not in asked]

    def done(self) -> bool:
        """Whether ``result`` would not wait."""
        if not self._cancelled:
            self._step()
        return self._cancelled or self._is_over(time.monotonic())

    def cancel(self) -> None:
        """End the wait. Any thread."""
        self._cancelled = True
        self._news.set()
        if not self._inside:
            self._keep_waiting()

    def result(self, timeout_s: float | None = None) -> list[FetchResult]:
        """The results, in the order of the requests. grpc.FutureTimeoutError: nothing yet, it goes on;
        grpc.FutureCancelledError; errors that no other leader would pass by."""
        self._inside = True
        try:
            return self._wait(timeout_s)
        finally:
            self._inside = False

    def _wait(self, timeout_s: float | None) -> list[FetchResult]:
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._news.clear()
            if self._cancelled:
                self._keep_waiting()
                raise grpc.FutureCancelledError
            self._step()
            now_s = time.monotonic()
            if self._is_over(now_s):
                self._keep_waiting()
                return [self._results.get(one) or self._without(one, now_s) for one in self.requests]
            if end_s is not None and now_s >= end_s:
                raise grpc.FutureTimeoutError
            self._news.wait(self._pause_s(now_s, end_s))

    def _pause_s(self, now_s: float, end_s: float | None) -> float:
        until = [now_s + _LOOK_S]
        if self._waits:
            until.append(self._until_s)
        if end_s is not None:
            until.append(end_s)
        troubles = map(self._fetches.trouble, self._astray)
        until += [trouble.again_s for trouble in troubles if trouble is not None]
        return max(min(until) - now_s, 0.001)

    def _step(self) -> None:
        """Take what has come, and ask again for what has no leader."""
        now_s = time.monotonic()
        looks = now_s - self._looked_s >= _LOOK_S
        if looks:
            self._looked_s = now_s
        for part in list(self._parts):
            if part.call.done():
                self._parts.remove(part)
                # One that was taken up from an earlier fetch has waited for less long than this one means to.
                early = self._waits and part.until_s < self._until_s - _LOOK_S
                for request, result in zip(part.requests, self._fetches.read(part), strict=True):
                    if result is None or (early and not _is_news(request, result)):
                        self._astray.append(request)
                    else:
                        self._results[request] = result
            elif looks and self._fetches.is_moved(part):
                self._parts.remove(part)
                part.call.cancel()
                self._astray += part.requests
        due = [request for request in self._astray if self._is_due(request, now_s)]
        if due and not self._is_over(now_s):
            self._astray = [request for request in self._astray if request not in due]
            self._start(due)

    def _is_due(self, request: FetchRequest, now_s: float) -> bool:
        trouble = self._fetches.trouble(request)
        return trouble is None or now_s >= trouble.again_s

    def _is_over(self, now_s: float) -> bool:
        """Whether there is news, or all has been asked for, or the time is over."""
        late = any(self._is_late(request, now_s) for request in self._astray)
        if self._certain and self._astray and not late:
            return False
        if not self._waits:
            return not self._unasked()
        if late or any(_is_news(request, result) for request, result in self._results.items()):
            return True
        over = now_s >= self._until_s and not self._certain
        return over or not (self._parts or self._astray)

    def _unasked(self) -> list[_Part]:
        """Calls whose answers a fetch that does not wait has to have: not those that wait at the end of a log."""
        return [part for part in self._parts if part.until_s <= self._until_s]

    def _is_late(self, request: FetchRequest, now_s: float) -> bool:
        trouble = self._fetches.trouble(request)
        return trouble is not None and now_s - trouble.since_s >= self._fetches.patience_s

    def _without(self, request: FetchRequest, now_s: float) -> FetchResult:
        """Of a partition without an answer: no news, or the error of one that has had no leader for too long."""
        trouble = self._fetches.trouble(request)
        if trouble is not None and self._is_late(request, now_s):
            return nothing(request)._replace(error=trouble.error)
        return nothing(request)

    def _keep_waiting(self) -> None:
        parts, self._parts = self._parts, []
        for part in parts:
            self._fetches.keep(part)


def _is_news(request: FetchRequest, result: FetchResult) -> bool:
    return bool(len(result.batches)) or result.error is not None or result.next_offset != request.offset


def _place_of(request: FetchRequest) -> TopicPartition:
    return TopicPartition(request.topic, request.partition)


class RoutedFetchAhead(RemoteFetchAhead):
    """A ``FetchAhead`` over ``RoutedFetches``."""

    def __init__(self, fetches: RoutedFetches, revision: Callable[[], int]) -> None:
        super().__init__(fetches, revision)
        self._fetches = fetches

    def close(self) -> None:
        """See ``FetchAhead``."""
        super().close()
        self._fetches.close()
