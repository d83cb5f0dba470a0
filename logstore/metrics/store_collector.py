"""``StoreCollector``: a store's topics, groups and own numbers as Prometheus metrics, made anew by each scrape.

Names are kafka_exporter's where it has them; the store's own begin with ``logstore_``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from logstore.api.backend import Backend
from logstore.api.groups import GroupSummary
from logstore.api.topics import TopicMetadata
from logstore.arguments import whole
from logstore.errors import LogStoreError
from logstore.metrics.prometheus import Collector, CounterMetricFamily, GaugeMetricFamily, Metric
from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

DEFAULT_MAX_PARTITIONS: Final = 1000


class Measured(Protocol):
    """What is looked at: a ``LogStore`` is one."""

    @property
    def backend(self) -> Backend: ...
    def metrics(self) -> dict[str, float]: ...


class StoreCollector(Collector):
    """``max_partitions``: of how many partitions there are series, and of how many places of groups; so many topics
    and so many groups, too. What is left out, last in the order of names, is counted by
    ``logstore_metrics_left_out``. Errors of one topic or group are counted, and the others are told. ``node_id``: of
    the broker in its cluster, which tells offsets of the partitions that it leads."""

    def __init__(
        self,
        store: Measured,
        *,
        max_partitions: int = DEFAULT_MAX_PARTITIONS,
        node_id: int | None = None,
    ) -> None:
        """InvalidArgumentError."""
        self._store = store
        self._most = whole(max_partitions, "max_partitions", 0)
        self._node_id = node_id
        self._failures = 0

    def describe(self) -> list[Metric]:
        """None, so that a registry does not look at the store when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from _own(self._store.metrics())
        look = _Look(self._store.backend, self._most, self._node_id)
        yield from look.topics()
        yield from look.groups()
        yield look.left_out
        self._failures += look.failures
        yield CounterMetricFamily(
            "logstore_metrics_failures",
            "Topics and groups that could not be looked at, over all scrapes.",
            value=self._failures,
        )


def _own(numbers: Mapping[str, float]) -> Iterator[Metric]:
    for name, number in numbers.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        yield kind(name, f"{name} of store.metrics().", value=number)


class _Look:
    """One look at topics and groups. Ends of partitions that are asked for twice are read once."""

    def __init__(self, backend: Backend, most: int, node_id: int | None) -> None:
        self._backend = backend
        self._most = most
        self._node_id = node_id
        self._ends: dict[TopicPartition, int] = {}
        self._topics = backend.topics()
        self.failures = 0
        self.left_out = GaugeMetricFamily(
            "logstore_metrics_left_out", "Series that the bound on their number left out.", labels=["of"]
        )

    def _is_here(self, topic: TopicMetadata, partition: int) -> bool:
        """Whether its offsets are this store's to tell."""
        leads = not topic.leaders or topic.leaders[partition] == self._node_id
        return leads and partition not in topic.missing

    def _is_told(self, place: TopicPartition) -> bool:
        """Whether there is such a partition, and its offsets are this store's to tell."""
        topic = self._topics.get(place.topic)
        return (
            topic is not None and place.partition < topic.partitions and self._is_here(topic, place.partition)
        )

    def topics(self) -> Iterator[Metric]:
        partitions = GaugeMetricFamily("kafka_topic_partitions", "Partitions of the topic.", labels=["topic"])
        newest = GaugeMetricFamily(
            "kafka_topic_partition_current_offset",
            "High watermark: the next offset that readers may see.",
            labels=["topic", "partition"],
        )
        oldest = GaugeMetricFamily(
            "kafka_topic_partition_oldest_offset", "Log start offset.", labels=["topic", "partition"]
        )
        room = self._most
        for name in sorted(self._topics)[: self._most]:
            topic = self._topics[name]
            partitions.add_metric([name], topic.partitions)
            numbers = range(min(topic.partitions, room))
            room -= len(numbers)
            for place, start, end in self._bounds(name, numbers):
                labels = [name, str(place.partition)]
                newest.add_metric(labels, end)
                oldest.add_metric(labels, start)
        total = sum(topic.partitions for topic in self._topics.values())
        self.left_out.add_metric(["topics"], max(0, len(self._topics) - self._most))
        self.left_out.add_metric(["partitions"], max(0, total - self._most))
        yield from (partitions, newest, oldest)

    def groups(self) -> Iterator[Metric]:
        labels = ["consumergroup", "topic", "partition"]
        members = GaugeMetricFamily(
            "kafka_consumergroup_members", "Members of the group.", labels=["consumergroup"]
        )
        current = GaugeMetricFamily("kafka_consumergroup_current_offset", "Committed offset.", labels=labels)
        lag = GaugeMetricFamily(
            "kafka_consumergroup_lag", "Offsets from the committed one to the high watermark.", labels=labels
        )
        lag_sum = GaugeMetricFamily(
            "kafka_consumergroup_lag_sum",
            "The same over the topic, partitions that were left out among them.",
            labels=["consumergroup", "topic"],
        )
        found = sorted(self._list_groups(), key=lambda summary: summary.group)
        room = self._most
        for summary in found[: self._most]:
            members.add_metric([summary.group], len(summary.members))
            sums: dict[str, int] = defaultdict(int)
            for place, committed, behind in self._lags(summary):
                sums[place.topic] += behind
                if room > 0:
                    room -= 1
                    where = [summary.group, place.topic, str(place.partition)]
                    current.add_metric(where, committed)
                    lag.add_metric(where, behind)
            elsewhere = {place.topic for place in summary.offsets if not self._is_told(place)}
            for topic, total in sums.items():
                if topic not in elsewhere:
                    lag_sum.add_metric([summary.group, topic], total)
        places = sum(len(summary.offsets) for summary in found)
        self.left_out.add_metric(["groups"], max(0, len(found) - self._most))
        self.left_out.add_metric(["group_partitions"], max(0, places - self._most))
        yield from (members, current, lag, lag_sum)

    def _list_groups(self) -> list[GroupSummary]:
        try:
            return self._backend.list_groups()
        except LogStoreError as error:
            self._failed("groups", error)
            return []

    def _lags(self, summary: GroupSummary) -> Iterator[tuple[TopicPartition, int, int]]:
        """Partitions with a committed offset, that offset, and the lag."""
        by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
        for place in sorted(summary.offsets):
            if self._is_told(place):
                by_topic[place.topic].append(place)
        for places in by_topic.values():
            for place, end in self._end_offsets(places):
                committed = summary.offsets[place].offset
                yield place, committed, max(0, end - committed)

    def _bounds(self, name: str, numbers: range) -> list[tuple[TopicPartition, int, int]]:
        """Partitions with their log start offsets and high watermarks; none where the topic cannot be looked at."""
        topic = self._topics[name]
        places = [TopicPartition(name, number) for number in numbers if self._is_here(topic, number)]
        try:
            starts = self._backend.list_offsets(places, "earliest", "read_uncommitted")
        except LogStoreError as error:
            self._failed(f"topic {name}", error)
            return []
        return [(place, starts[place].offset or 0, end) for place, end in self._end_offsets(places)]

    def _end_offsets(self, places: list[TopicPartition]) -> list[tuple[TopicPartition, int]]:
        unknown = [place for place in places if place not in self._ends]
        try:
            listed = self._backend.list_offsets(unknown, "latest", "read_uncommitted")
        except LogStoreError as error:
            self._failed(f"topic {places[0].topic}", error)
            listed = {}
        self._ends |= {place: found.offset or 0 for place, found in listed.items()}
        return [(place, self._ends[place]) for place in places if place in self._ends]

    def _failed(self, what: str, error: LogStoreError) -> None:
        """A topic may be deleted while it is looked at: the scrape goes on."""
        self.failures += 1
        logger.debug("metrics leave out %s: %s", what, error)
