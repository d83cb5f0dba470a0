"""``RoutedProduce`` and ``RoutedPipeline``: batches to the leaders of their partitions, side by side.

What a leader refuses, or does not answer, is its batches' own error: it may pass, and the producer's retries find the
new leader. A batch whose leader may have taken it is marked as doubtful.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import grpc

from logstore.api.pipelines import PendingProduce
from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import LogStoreError
from logstore.types import Acks, TopicPartition
from replication.errors import NotConfirmedError, NotLeaderError
from rpc.client.channel.connection import Connection, StartedCall
from rpc.client.routing.brokers import NOBODY, Brokers
from rpc.client.routing.leaders import ANYBODY, ROUTING, Leaders
from rpc.client.routing.pipeline import GRACE_S, RemotePipeline, is_known, outcome_of
from rpc.errors import BrokerBusyError, BrokerTimeoutError, BrokerUnavailableError
from rpc.framing import parse
from rpc.pb import produce_pb2
from rpc.wire.records import produce_request, read_produce_response

_LOOK_S: Final = 0.5
"""How often it is looked whether another node leads what an answer is waited for."""
_REDIRECTIONS: Final = 2
"""How often a batch goes on to the leader that a refusal names before its producer hears of it."""
_REDIRECT_S: Final = 1.0
"""Not after so long: what others of the request have answered is not held up for it, and the producer tries again."""


class _Part(NamedTuple):
    """What one node was sent. ``places``: of its batches in the whole request."""

    node: int
    places: Sequence[int]
    items: Sequence[ProduceItem]
    call: StartedCall | None
    error: LogStoreError | None


class RoutedProduce:
    """Thread-safe."""

    def __init__(self, brokers: Brokers, leaders: Leaders) -> None:
        self._brokers = brokers
        self._leaders = leaders

    def produce(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> list[ProduceResult]:
        """As ``DataPlane.produce``."""
        began_s = time.monotonic()
        until_s = began_s + timeout_s
        results = [ProduceResult(-1)] * len(items)
        wanted: Sequence[int] = range(len(items))
        for turn in range(_REDIRECTIONS + 1):
            self._send(items, wanted, results, acks, max(until_s - time.monotonic(), 0.001))
            wanted = redirected(items, wanted, results)
            if not wanted or turn == _REDIRECTIONS or time.monotonic() >= min(until_s, began_s + _REDIRECT_S):
                break
        if any(isinstance(result.error, ROUTING) for result in results):
            self._leaders.refresh()
        return results

    def _send(
        self,
        items: Sequence[ProduceItem],
        wanted: Sequence[int],
        results: list[ProduceResult],
        acks: Acks,
        timeout_s: float,
    ) -> None:
        """Send the batches at the places ``wanted``, and fill in what becomes of them."""
        timeout_s = min(timeout_s, self._brokers.settings.request_timeout_s)
        split = self._leaders.split([items[place] for place in wanted])
        parts = []
        for node, within in split.items():
            places = [wanted[place] for place in within]
            parts.append(self._begin(node, places, [items[place] for place in places], acks, timeout_s))
        for part in parts:
            for place, result in zip(part.places, self._land(part), strict=True):
                # What an earlier leader may have taken stays doubtful, whatever the next one says.
                doubtful = result.error is not None and (result.doubtful or results[place].doubtful)
                results[place] = result._replace(doubtful=doubtful)

    def _begin(
        self,
        node: int,
        places: Sequence[int],
        items: Sequence[ProduceItem],
        acks: Acks,
        timeout_s: float,
    ) -> _Part:
        try:
            connection = self._leaders.connection(node)
            data = produce_request(items, acks, int(timeout_s * 1000))
            call = connection.start("ProduceService/Produce", data, timeout_s + GRACE_S)
        except LogStoreError as error:
            return _Part(node, places, items, None, error)
        return _Part(node, places, items, call, None)

    def _has_moved(self, part: _Part) -> bool:
        self._leaders.refresh()  # an append takes no such time, unless something is amiss
        return self._leaders.is_deposed(part.node, map(_place_of, part.items))

    def _land(self, part: _Part) -> list[ProduceResult]:
        try:
            if part.call is None:
                raise part.error or BrokerUnavailableError("the request was not sent", unreached=True)
            answer = _wait(part.call, lambda: self._has_moved(part))
            results = read_produce_response(parse(answer, produce_pb2.ProduceResponse))
        except LogStoreError as error:
            results = refused(part.items, error)
        return note_results(self._leaders, part.node, part.items, results)


def _wait(call: StartedCall, given_up: Callable[[], bool]) -> bytes:
    """The answer. BrokerTimeoutError: another node leads, this one's answer is not waited for."""
    moved = 0
    while True:
        try:
            return call.result(_LOOK_S)
        except grpc.FutureTimeoutError:
            # A leader that was deposed says so itself, unless it hangs or is cut off.
            moved = moved + 1 if given_up() else 0
            if moved > 1:
                call.cancel()
                raise BrokerTimeoutError(
                    "another node leads the partition; the one that led it does not answer"
                ) from None
        except grpc.FutureCancelledError as error:
            raise BrokerUnavailableError("the call was cancelled") from error


def refused(items: Sequence[ProduceItem], error: LogStoreError) -> list[ProduceResult]:
    """The results of batches whose call failed as a whole."""
    sure = isinstance(error, BrokerBusyError | NotLeaderError) or (
        isinstance(error, BrokerUnavailableError) and error.unreached
    )
    error = outcome_of(error, known=all(map(is_known, items)))
    return [ProduceResult(-1, error=error, doubtful=not sure)] * len(items)


def note_results(
    leaders: Leaders, node: int, items: Sequence[ProduceItem], results: list[ProduceResult]
) -> list[ProduceResult]:
    """Have errors change who is taken for the leader. A leader that is deposed amid an append, or hears of no majority
    in time, does not know what becomes of it: its refusal is doubtful. ContractMismatchError is left to the sender,
    which counts."""
    if len(results) != len(items):
        return results
    for index, (item, result) in enumerate(zip(items, results, strict=True)):
        if result.error is not None:
            leaders.note(_place_of(item), node, result.error)
            deposed = isinstance(result.error, NotLeaderError) and node not in (NOBODY, ANYBODY)
            if deposed or isinstance(result.error, NotConfirmedError):
                results[index] = result._replace(doubtful=True)
    return results


def _place_of(item: ProduceItem) -> TopicPartition:
    return TopicPartition(item.topic, item.partition)


def _names_leader(error: LogStoreError | None) -> bool:
    return isinstance(error, NotLeaderError) and error.leader_id != NOBODY


def redirected(
    items: Sequence[ProduceItem], wanted: Sequence[int], results: Sequence[ProduceResult]
) -> list[int]:
    """The places of what a refusal sends on to another leader: all that a partition was refused, or nothing of it, as
    what is behind a failed batch must not be in before that one."""
    stay = {
        _place_of(items[place])
        for place in wanted
        if results[place].error is not None and not _names_leader(results[place].error)
    }
    return [
        place
        for place in wanted
        if _names_leader(results[place].error) and _place_of(items[place]) not in stay
    ]


class _Begun(NamedTuple):
    """Part of a request that one node was sent, or none: ``pending`` is None then."""

    node: int
    places: Sequence[int]
    items: Sequence[ProduceItem]
    pending: PendingProduce | None


class _Joined:
    """A ``PendingProduce`` of several nodes'."""

    def __init__(self, pipeline: RoutedPipeline, count: int, parts: Sequence[_Begun]) -> None:
        self._pipeline = pipeline
        self._count = count
        self.parts = parts

    def results(self) -> list[ProduceResult]:
        """See ``PendingProduce``. An error of one node is that of its batches alone."""
        return self._pipeline.answer(self, self._count)


class RoutedPipeline:
    """A ``ProducePipeline``: one of each leader's. Of one thread.

    While something of a partition is under way to a node, all else of the partition goes there, too: what is behind a
    failed batch must not reach another leader before that one has gone again.
    """

    window = RemotePipeline.window

    def __init__(self, brokers: Brokers, leaders: Leaders) -> None:
        self._brokers = brokers
        self._leaders = leaders
        self._nodes: dict[int, tuple[Connection, RemotePipeline]] = {}
        self._under_way: dict[TopicPartition, tuple[int, int]] = {}
        self._begun: deque[_Joined] = deque()

    def begin(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> _Joined:
        """See ``ProducePipeline``."""
        timeout_s = min(timeout_s, self._brokers.settings.request_timeout_s)
        split: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            split.setdefault(self._node_of(_place_of(item)), []).append(index)
        parts = []
        for node, places in split.items():
            some = [items[place] for place in places]
            pipeline = self._pipeline(node)
            pending = None if pipeline is None else pipeline.begin(some, acks, timeout_s)
            parts.append(_Begun(node, places, some, pending))
        joined = _Joined(self, len(items), parts)
        self._begun.append(joined)
        return joined

    def _node_of(self, place: TopicPartition) -> int:
        """The node for the next batch of the partition, which is under way there from now on."""
        node, count = self._under_way.get(place, (self._leaders.of(*place), 0))
        self._under_way[place] = node, count + 1
        return node

    def _pipeline(self, node: int) -> RemotePipeline | None:
        """None: nobody is known to lead, or the node cannot be reached."""
        try:
            connection = self._leaders.connection(node)
        except LogStoreError:
            return None
        known = self._nodes.get(node)
        if known is None or (known[0] is not connection and not self._waits_for(node)):
            if known is not None:
                known[1].rest()
            moved = _Moved(self._leaders, self._under_way, node)
            known = self._nodes[node] = connection, RemotePipeline(connection, moved)
        return known[1]

    def _waits_for(self, node: int) -> bool:
        return any(led == node for led, _ in self._under_way.values())

    def answer(self, joined: _Joined, count: int) -> list[ProduceResult]:
        """The results of the oldest request."""
        self._begun.popleft()
        results = [ProduceResult(-1)] * count
        routed = True
        for part in joined.parts:
            for place, result in zip(part.places, self._land(part), strict=True):
                results[place] = result
                routed = routed and not isinstance(result.error, ROUTING)
            for item in part.items:
                self._arrived(_place_of(item))
        if not routed:
            self._leaders.refresh()
        return results

    def _land(self, part: _Begun) -> list[ProduceResult]:
        try:
            if part.pending is None:
                self._leaders.connection(part.node)
                raise NotLeaderError("the leader was not known when the batch was to be sent")
            results = part.pending.results()
            if len(results) != len(part.items):
                raise BrokerUnavailableError(
                    f"the broker answered {len(results)} of {len(part.items)} batches"
                )
        except LogStoreError as error:
            results = refused(part.items, error)
        return note_results(self._leaders, part.node, part.items, results)

    def _arrived(self, place: TopicPartition) -> None:
        node, count = self._under_way[place]
        if count > 1:
            self._under_way[place] = node, count - 1
        else:
            del self._under_way[place]

    def rest(self) -> None:
        """See ``ProducePipeline``."""
        for _, pipeline in self._nodes.values():
            pipeline.rest()


class _Moved:
    """Asked now and then of the request that waits longest: whether what is under way to the node is led by another
    one, for the second time with that same request. A node that answers is waited for."""

    def __init__(self, leaders: Leaders, under_way: dict[TopicPartition, tuple[int, int]], node: int) -> None:
        self._leaders = leaders
        self._under_way = under_way
        self._node = node
        self._before: int | None = None

    def __call__(self, request: int) -> bool:
        places = [place for place, (node, _) in self._under_way.copy().items() if node == self._node]
        if not self._leaders.is_deposed(self._node, places):
            self._before = None
            return False
        before, self._before = self._before, request
        return before == request
