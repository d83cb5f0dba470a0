"""``RoutedPartition``: the way of markers and questions to a partition's leader, whichever node that is by then.

Markers are written when they are waited for: those of one transaction to all partitions of a leader in one call, to all
leaders at a time. Where a leader has moved they follow it, as a marker that is there already gets no second one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial

from logstore.config import TopicConfig
from logstore.errors import LogStoreError, NotAvailableYetError
from logstore.log.append_validation import CheckedBatch
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.partition.open_transactions import OpenTransaction
from logstore.partition.partition import PendingAppend, Told
from logstore.types import Acks, TopicPartition
from replication.coordination.partition_calls import MarkerRequest, PartitionCalls
from replication.coordination.routing import (
    AGAIN,
    CALL_S,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Routing,
    check_known,
)
from replication.errors import NotLeaderError
from replication.raft.types import NO_NODE, NodeId


class Router:
    """Thread-safe."""

    def __init__(self, routing: Routing, calls: PartitionCalls) -> None:
        self._routing = routing
        self.calls = calls

    # --- markers ---

    def write(self, appends: Sequence[RoutedAppend]) -> None:
        """Have all of them decided: those that may wait are tried again until the thread's time is up."""
        store = self._routing.store
        clock = store.clock
        deadline_s, pause_s = clock.monotonic_s() + store.lock_timeout_s, FIRST_PAUSE_S
        left = list(appends)
        hints: dict[TopicPartition, NodeId] = {}
        while left:
            store.check_usable()
            self._write_once(left, hints, max(deadline_s - clock.monotonic_s(), 0.001))
            again = [one for one in left if isinstance(one.error, AGAIN) and one.may_wait]
            for one in left:
                one.done = one not in again
            left_s = deadline_s - clock.monotonic_s()
            if not again or left_s <= 0:
                for one in again:
                    one.done = True
                return
            hints = {
                one.request.place: one.error.leader_id
                for one in again
                if isinstance(one.error, NotLeaderError) and one.error.leader_id != NO_NODE
            }
            left = again
            self._routing.pause(min(pause_s, left_s))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _write_once(
        self, appends: Sequence[RoutedAppend], hints: Mapping[TopicPartition, NodeId], left_s: float
    ) -> None:
        by_leader: dict[NodeId, list[RoutedAppend]] = {}
        for one in appends:
            place = one.request.place
            by_leader.setdefault(hints.get(place, self._routing.leader_of(place)), []).append(one)
        works = [partial(self._write_at, node, of, left_s) for node, of in by_leader.items()]
        beside = works[1:] if self._routing.store.threads else []
        threads = [threading.Thread(target=work, name="logstore-markers") for work in beside]
        for thread in threads:
            thread.start()
        try:
            for work in works[:1] if beside else works:
                work()
        finally:
            for thread in threads:
                thread.join()

    def _write_at(self, node: NodeId, appends: Sequence[RoutedAppend], left_s: float) -> None:
        requests = [one.request for one in appends]
        errors: Sequence[LogStoreError | None]
        try:
            check_known(node)
            if node == self._routing.node_id:
                errors = self.calls.mark_here(requests)
            else:
                errors = self.calls.mark(node, requests, min(left_s, CALL_S))
        except LogStoreError as error:
            errors = [error] * len(appends)
        for one, failure in zip(appends, errors, strict=True):
            one.error = failure

    # --- questions ---

    def producers(self, place: TopicPartition, ids: Sequence[int]) -> dict[int, ProducerEntry]:
        """What the partition's leader knows of them. NotLeaderError, LeaderNotReadyError, PeerUnavailableError."""
        calls = self.calls
        return self._routing.ask(
            place,
            lambda: calls.producers_here(place, ids),
            lambda node, left_s: calls.producers(node, place, ids, left_s),
        )

    def is_keyed(self, place: TopicPartition) -> bool:
        """Whether the partition's first record has a key. Errors as ``producers``."""
        calls = self.calls
        return self._routing.ask(
            place,
            lambda: calls.keyed_here(place),
            lambda node, left_s: calls.is_keyed(node, place, left_s),
        )

    def first_open(self, place: TopicPartition) -> OpenTransaction | None:
        """The first transaction that the partition holds open. Errors as ``producers``."""
        calls = self.calls
        return self._routing.ask(
            place,
            lambda: calls.open_here(place),
            lambda node, left_s: calls.first_open(node, place, left_s),
        )


class RoutedAppend:
    """A ``PendingAppend`` of one marker. ``may_wait``: where nobody leads the partition now, until somebody does."""

    base_offset = next_offset = append_time_ms = -1

    def __init__(self, router: Router, request: MarkerRequest, may_wait: bool) -> None:
        self._router = router
        self.request = request
        self.may_wait = may_wait
        self.done = False
        self.error: LogStoreError | None = None

    def wait_with(self, others: Sequence[PendingAppend]) -> None:
        self._router.write([one for one in others if isinstance(one, RoutedAppend) and not one.done])

    def then(self, tell: Told) -> None:
        if not self.done:
            self.wait_with((self,))
        tell(self.error)


class RoutedPartition:
    """A ``PartitionWriter`` of what coordinators write. Thread-safe."""

    def __init__(self, router: Router, place: TopicPartition, topic_id: str, config: TopicConfig) -> None:
        self._router = router
        self._topic_id = topic_id
        self._place = place
        self.topic, self.partition = place
        self.where = f"{place.topic}-{place.partition}"
        self.config = config

    def append(
        self,
        batches: Sequence[CheckedBatch],
        acks: Acks = "all",
        *,
        expected_offset: int | None = None,
        now_ms: int | None = None,
        until_s: float | None = None,
    ) -> PendingAppend:
        del batches, acks, expected_offset, now_ms, until_s
        raise NotAvailableYetError(
            f"records for {self.where} go to its leader by its clients", hint="produce to the leader"
        )

    def append_marker(
        self, marker: Marker, *, once: bool = False, open_since: int = -1, wait: bool = True
    ) -> RoutedAppend:
        """Written when it is waited for; ``wait``: until somebody leads the partition."""
        request = MarkerRequest(self._place, self._topic_id, marker, once, open_since)
        return RoutedAppend(self._router, request, wait)

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]:
        return self._router.producers(self._place, producer_ids)
