"""A broker's part in its cluster as metrics: what it leads, and offsets of that alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import logstore
from logstore.api.topics import TopicMetadata
from logstore.metrics import StoreCollector
from logstore.metrics.prometheus import Metric
from replication.cluster_status import PartitionStatus, ReplicaStatus
from replication.transport import METADATA_GROUP, GroupId
from rpc.observability.cluster_collector import ClusterCollector
from tests.rpc.test_cluster_command import SomeView

KEPT_UP = (ReplicaStatus(1, 9, 0, True), ReplicaStatus(2, 9, 0, True))
LAGS = (ReplicaStatus(1, 9, 0, True), ReplicaStatus(2, 2, 7, False))


def samples(found: list[Metric]) -> dict[tuple[str, ...], float]:
    """By name and the values of labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value for metric in found for sample in metric.samples
    }


def test_what_a_broker_leads_is_told_with_what_lags() -> None:
    led = [
        PartitionStatus(METADATA_GROUP, 1, 3, 9, KEPT_UP),
        PartitionStatus(GroupId("id-t", 4), 1, 3, 9, LAGS),
        PartitionStatus(GroupId("id-gone", 0), 1, 3, 9, KEPT_UP),
    ]
    collector = ClusterCollector(SomeView(), lambda: led, {"id-t": "t"}.get, 10)
    found = samples(list(collector.collect()))
    assert found["kafka_brokers",] == 2
    assert found["logstore_cluster_brokers",] == 3
    assert found["logstore_cluster_controller",] == 0
    assert found["logstore_cluster_led",] == 3
    assert found["logstore_cluster_under_replicated",] == 1
    assert found["kafka_topic_partition_in_sync_replica", "__cluster_metadata", "0"] == 2
    assert found["kafka_topic_partition_under_replicated_partition", "t", "4"] == 1
    assert found["kafka_topic_partition_in_sync_replica", "t", "4"] == 1
    assert found["logstore_cluster_replica_lag", "t", "4"] == 7
    assert not any("id-gone" in labels for labels in found)
    assert ClusterCollector(SomeView(), lambda: led, {"id-t": "t"}.get, 0).describe() == []


def test_offsets_are_told_of_partitions_that_the_broker_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logstore.open(tmp_path) as store:
        store.create_topic("t", partitions=3)
        for number in range(3):
            store.partition("t", number).append([(b"k", b"v")])
        with store.consumer("t", group="g", until_end=True) as consumer:
            assert len(list(consumer)) == 3
            consumer.commit()
        listed = store.backend.topics()

        def topics() -> dict[str, TopicMetadata]:
            return {
                name: replace(topic, leaders=(1, 2, 1)[: topic.partitions]) for name, topic in listed.items()
            }

        monkeypatch.setattr(store.backend, "topics", topics)
        here = samples(list(StoreCollector(store, node_id=1).collect()))
        assert {key[2] for key in here if key[:2] == ("kafka_topic_partition_current_offset", "t")} == {
            "0",
            "2",
        }
        assert ("kafka_consumergroup_lag", "g", "t", "0") in here
        assert ("kafka_consumergroup_lag", "g", "t", "1") not in here
        assert ("kafka_consumergroup_lag_sum", "g", "t") not in here, "a part is no sum"
        assert here["logstore_metrics_failures_total",] == 0
        monkeypatch.undo()
        assert ("kafka_consumergroup_lag_sum", "g", "t") in samples(list(StoreCollector(store).collect()))
