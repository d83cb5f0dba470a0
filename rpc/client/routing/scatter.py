"""``Scatter``: calls of small messages that each partition's leader answers, sent side by side and joined."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message

from logstore.errors import ClientClosedError, LogStoreError
from logstore.types import TopicPartition
from replication.errors import NotLeaderError
from rpc.client.routing.brokers import NOBODY, Brokers
from rpc.client.routing.leaders import ROUTING, Leaders
from rpc.errors import BrokerUnavailableError
from rpc.framing import parse

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
_TRY_S: Final = 10.0
Answer = TypeVar("Answer", bound=Message)
Value = TypeVar("Value")


class Scatter:
    """Thread-safe."""

    def __init__(self, brokers: Brokers, leaders: Leaders) -> None:
        self._brokers = brokers
        self._leaders = leaders
        self._closing = threading.Event()

    def call(
        self,
        path: str,
        places: Collection[TopicPartition],
        ask: Callable[[Collection[TopicPartition]], Message],
        kind: type[Answer],
        take: Callable[[Answer], Mapping[TopicPartition, Value]],
    ) -> dict[TopicPartition, Value]:
        """``take`` of what the leaders answer to what ``ask`` makes of their places, in the order of ``places``. A
        place whose leader is away, or another one now, is asked for again until ``request_timeout_s`` is over."""
        only = self._brokers.only
        if only is not None:
            return dict(take(only.call(path, ask(places), kind)))
        until_s = self._brokers.until_s(self._brokers.settings.request_timeout_s)
        found: dict[TopicPartition, Value] = {}
        pause_s = _FIRST_PAUSE_S
        left: list[TopicPartition] = list(dict.fromkeys(places))
        while True:
            error = self._once(path, left, ask, lambda data: found.update(take(parse(data, kind))), until_s)
            left = [place for place in left if place not in found]
            if error is None:
                return {place: found[place] for place in places if place in found}
            self._leaders.refresh()
            if not isinstance(error, NotLeaderError) or error.leader_id == NOBODY or pause_s > _FIRST_PAUSE_S:
                wait_s = pause_s * random.uniform(0.5, 1.0)
                if time.monotonic() + wait_s >= until_s:
                    raise error
                if self._closing.wait(wait_s):
                    raise ClientClosedError("the client is closed") from error
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _once(
        self,
        path: str,
        places: list[TopicPartition],
        ask: Callable[[Collection[TopicPartition]], Message],
        take: Callable[[bytes], None],
        until_s: float,
    ) -> LogStoreError | None:
        """One try with each leader. The last error that another try may pass by; others are raised, once all have
        answered."""
        calls = []
        routing: LogStoreError | None = None
        refusal: LogStoreError | None = None
        limit_s = min(max(until_s - time.monotonic(), 0.001), _TRY_S)
        for node, within in self._leaders.split(places).items():
            some = [places[index] for index in within]
            try:
                connection = self._leaders.connection(node)
                calls.append((node, some, connection.start(path, ask(some).SerializeToString(), limit_s)))
            except ROUTING as error:
                routing = error
                self._note(some, node, error)
        for node, some, call in calls:
            try:
                take(call.result())
            except grpc.FutureCancelledError as error:
                routing = BrokerUnavailableError(f"the call was cancelled: {error!r}")
            except ROUTING as error:
                routing = error
                self._note(some, node, error)
            except LogStoreError as error:
                refusal = error
        if refusal is not None:
            raise refusal
        return routing

    def _note(self, places: Collection[TopicPartition], node: int, error: LogStoreError) -> None:
        for place in places:
            self._leaders.note(place, node, error)

    def close(self) -> None:
        """End the pauses between tries."""
        self._closing.set()
