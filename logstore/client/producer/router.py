"""``Router``: a producer's topics, the partition of each record, and how a ``send_many`` falls into batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from logstore.api.backend import Backend
from logstore.arguments import refuse_internal
from logstore.client.partitioner import (
    Bucket,
    Partitioner,
    checked_partition,
    chunks_by_key,
    empty_buckets,
)
from logstore.client.producer.accumulator import Accumulator
from logstore.client.producer.pending import PartitionQueue
from logstore.client.producer.route import TopicRoute
from logstore.errors import ClientClosedError, InvalidArgumentError
from logstore.format.rows import (
    RECORD_OVERHEAD,
    TIMESTAMP_OVERHEAD,
    CheckedRows,
    Chunk,
    cut,
)
from logstore.seams.clock import Clock

PlannedChunk: TypeAlias = tuple[int | None, Chunk]
"""With the partition; None: wherever null keys go when the chunk's turn comes."""


class Router:
    """``quick``: routes of topics whose partition ``send`` may choose on its own; emptied for good by
    ``forget``, so that a closed producer needs no question on the way."""

    def __init__(
        self, backend: Backend, accumulator: Accumulator, clock: Clock, partitioner: Partitioner | None
    ) -> None:
        self._backend = backend
        self._accumulator = accumulator
        self._settings = accumulator.settings
        self._clock = clock
        self._partitioner = partitioner
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._routes: dict[str, TopicRoute] = {}
        self.quick: dict[str, TopicRoute] = {}
        self.closed = False

    def forget(self) -> None:
        """The producer is closed (lock held), or a copy of it in a forked child."""
        self.closed = True
        self._routes.clear()
        self.quick.clear()

    def route(self, topic: str) -> TopicRoute:
        """The topic's route, as new as the backend's metadata. UnknownTopicError, ClientClosedError; an internal
        topic's: InvalidTopicError."""
        version = self._backend.metadata_version()
        if not isinstance(topic, str):
            raise InvalidArgumentError(f"a topic is named by text, not by {type(topic).__name__}")
        route = self._routes.get(topic)
        if route is not None and route.version == version:
            return route
        metadata = self._backend.topic(topic)
        refuse_internal(topic, metadata.internal)
        first = self._clock.wall_ms()  # short-lived producers should not all begin with partition 0
        new = TopicRoute(metadata, version, self._settings.compression, first)
        with self._accumulator.lock:
            if self.closed:
                raise closed_error()
            queues = []
            for partition in range(metadata.partitions):
                queue = self._queues.get((topic, partition))
                if queue is None:
                    queue = self._queues[topic, partition] = PartitionQueue(new, partition)
                queue.route = new
                queues.append(queue)
            new.set_queues(queues, first if route is None else route.sticky.partition)
            self._routes[topic] = new
            if self._partitioner is None and not new.round_robin:
                self.quick[topic] = new
            else:
                self.quick.pop(topic, None)
        return new

    def partition_of(
        self, route: TopicRoute, key: bytes | None, value: bytes | None, given: int | None
    ) -> int | None:
        """The record's partition: the one ``given``, the caller's partitioner's, or the topic's; None:
        wherever null keys go. UnknownPartitionError."""
        count = len(route.queues)
        if given is not None:
            return checked_partition(given, route.name, count, "the caller")
        if self._partitioner is not None:
            chosen = self._partitioner(route.name, key, value, count)
            return checked_partition(chosen, route.name, count, "the partitioner")
        if key is None and not route.round_robin:
            return None
        with self._accumulator.lock:
            return route.choose(key)

    def goes_by_key(self, route: TopicRoute) -> bool:
        """Whether a record's key alone says its partition, or that it is where null keys go."""
        return self._partitioner is None and not route.round_robin

    def limit(self, route: TopicRoute) -> tuple[int, str]:
        """The largest batch that a single record may make, and the setting that says so."""
        if self._settings.buffer_bytes < route.max_message_bytes:
            return self._settings.buffer_bytes, "buffer_bytes"
        return route.max_message_bytes, route.size_setting

    # --- many rows ---

    def parts(self, checked: CheckedRows, sizes: list[int]) -> list[list[Any]]:
        """The rows in parts that the buffer can take whole, by estimate."""
        most = self._settings.buffer_bytes // 4
        if sum(sizes) + len(sizes) * (RECORD_OVERHEAD + TIMESTAMP_OVERHEAD) <= most:
            return [checked.rows]
        chunks = cut(checked.rows, sizes, checked.timestamped, most, self._settings.buffer_bytes)
        return [chunk.rows for chunk in chunks]

    def plan(
        self, route: TopicRoute, checked: CheckedRows, sizes: list[int], given: int | None
    ) -> list[PlannedChunk]:
        """The batches to be, each row in the partition that ``partition_of`` says, in the order given."""
        cap = min(self._settings.batch_bytes, route.max_message_bytes)

        def chunks(rows: list[Any], sizes: list[int]) -> Iterable[Chunk]:
            return cut(rows, sizes, checked.timestamped, cap, route.max_message_bytes)

        rows = checked.rows
        if given is not None:
            partition = self.partition_of(route, None, None, given)
            return [(partition, chunk) for chunk in chunks(rows, sizes)]
        by_row = self._partitioner is not None or route.round_robin
        if not checked.some_keys and not by_row:
            return [(None, chunk) for chunk in chunks(rows, sizes)]
        dealt: Iterable[Iterable[Chunk]]
        if not checked.null_keys and not by_row:
            count = len(route.queues)
            limit = route.max_message_bytes
            dealt = chunks_by_key(route.partitioner, rows, sizes, count, checked.timestamped, cap, limit)
        else:
            dealt = [chunks(bucket.rows, bucket.sizes) for bucket in self._buckets(route, rows, sizes, cap)]
        return [(partition, chunk) for partition, found in enumerate(dealt) for chunk in found]

    def _buckets(
        self, route: TopicRoute, rows: list[Any], sizes: list[int], batch_bytes: int
    ) -> list[Bucket]:
        """Rows by partition, in order. Those without a key go on to another partition with each batchful."""
        count = len(route.queues)
        buckets = empty_buckets(count)
        sticky = route.sticky.partition
        filled = 0
        for row, size in zip(rows, sizes, strict=True):
            chosen = self.partition_of(route, row[0], row[1], None)
            if chosen is None:
                filled += size
                if filled > batch_bytes:
                    filled = size
                    sticky = (sticky + 1) % count
                chosen = sticky
            buckets[chosen].rows.append(row)
            buckets[chosen].sizes.append(size)
        return buckets


def closed_error() -> ClientClosedError:
    return ClientClosedError("this producer is closed", hint="make another one: store.producer()")
