"""``ClusterCollector``: a broker's part in its cluster as Prometheus metrics.

Names are kafka_exporter's where it has them. Each broker tells of the partitions that it leads: over all brokers every
partition that has a leader is there once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from logstore.metrics.prometheus import Collector, GaugeMetricFamily, Metric
from replication.cluster.view import ClusterView
from replication.cluster_status import PartitionStatus
from replication.transport import METADATA_GROUP, METADATA_TOPIC

_LABELS: Final = ["topic", "partition"]


class ClusterCollector(Collector):
    """``led``: what this broker leads; ``name_of``: a topic's by its id, None: there is none; ``most``: of how many
    partitions there are series."""

    def __init__(
        self,
        view: ClusterView,
        led: Callable[[], Sequence[PartitionStatus]],
        name_of: Callable[[str], str | None],
        most: int,
    ) -> None:
        self._view = view
        self._led = led
        self._name_of = name_of
        self._most = most

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        view, led = self._view, self._led()
        brokers = view.brokers()
        alive = sum(one.alive for one in brokers)
        yield GaugeMetricFamily("kafka_brokers", "Brokers that were heard of a moment ago.", value=alive)
        yield GaugeMetricFamily("logstore_cluster_brokers", "Brokers of the cluster.", value=len(brokers))
        is_controller = view.controller() == view.node_id
        yield GaugeMetricFamily(
            "logstore_cluster_controller", "1 at the broker that controls the cluster.", value=is_controller
        )
        yield GaugeMetricFamily("logstore_cluster_led", "Partitions that this broker leads.", value=len(led))
        yield GaugeMetricFamily(
            "logstore_cluster_under_replicated",
            "Partitions that this broker leads with a replica that has not kept up.",
            value=sum(_is_under_replicated(one) for one in led),
        )
        yield from self._partitions(led)

    def _partitions(self, led: Sequence[PartitionStatus]) -> Iterator[Metric]:
        leader = GaugeMetricFamily("kafka_topic_partition_leader", "The broker that leads.", labels=_LABELS)
        replicas = GaugeMetricFamily("kafka_topic_partition_replicas", "Replicas.", labels=_LABELS)
        in_sync = GaugeMetricFamily(
            "kafka_topic_partition_in_sync_replica", "Replicas that have kept up.", labels=_LABELS
        )
        under = GaugeMetricFamily(
            "kafka_topic_partition_under_replicated_partition",
            "1 where a replica has not kept up.",
            labels=_LABELS,
        )
        lag = GaugeMetricFamily(
            "logstore_cluster_replica_lag", "Offsets that the last replica lacks.", labels=_LABELS
        )
        for one in led[: self._most]:
            is_metadata = one.group == METADATA_GROUP
            name = METADATA_TOPIC if is_metadata else self._name_of(one.group.topic_id)
            if name is None:
                continue  # deleted a moment ago
            labels = [name, str(one.group.partition)]
            leader.add_metric(labels, one.leader)
            replicas.add_metric(labels, len(one.replicas))
            in_sync.add_metric(labels, sum(replica.in_sync for replica in one.replicas))
            under.add_metric(labels, _is_under_replicated(one))
            lag.add_metric(labels, max((replica.lag for replica in one.replicas), default=0))
        yield from (leader, replicas, in_sync, under, lag)


def _is_under_replicated(status: PartitionStatus) -> bool:
    return not all(replica.in_sync for replica in status.replicas)
