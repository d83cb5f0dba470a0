"""A store's metrics: kafka_exporter's names and values, bounded series, failures of one topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

import logstore
from logstore.errors import InvalidArgumentError, StoreClosedError, UnknownTopicError
from logstore.metrics import StoreCollector
from logstore.types import OffsetAndMetadata, TopicPartition


@pytest.fixture
def store(tmp_path: Path) -> Iterator[logstore.LogStore]:
    with logstore.open(tmp_path / "store") as opened:
        opened.create_topic("orders", partitions=2)
        for n in range(5):
            opened.partition("orders", 0).append([(None, b"%d" % n)])
        yield opened


def scrape(store: logstore.LogStore, **settings: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(StoreCollector(store, **settings))
    return registry


def test_topics_and_groups_have_the_names_that_dashboards_know(store: logstore.LogStore) -> None:
    store.backend.delete_records({TopicPartition("orders", 0): 1})
    store.backend.commit_offsets("readers", {TopicPartition("orders", 0): OffsetAndMetadata(3)})
    found = scrape(store)
    place = {"topic": "orders", "partition": "0"}
    assert found.get_sample_value("kafka_topic_partitions", {"topic": "orders"}) == 2
    assert found.get_sample_value("kafka_topic_partition_current_offset", place) == 5
    assert found.get_sample_value("kafka_topic_partition_oldest_offset", place) == 1
    group = {"consumergroup": "readers"}
    assert found.get_sample_value("kafka_consumergroup_members", group) == 0
    assert found.get_sample_value("kafka_consumergroup_current_offset", {**group, **place}) == 3
    assert found.get_sample_value("kafka_consumergroup_lag", {**group, **place}) == 2
    assert found.get_sample_value("kafka_consumergroup_lag_sum", {**group, "topic": "orders"}) == 2
    with store.consumer("orders", group="readers") as consumer:
        consumer.poll(timeout_s=0)
        assert scrape(store).get_sample_value("kafka_consumergroup_members", group) == 1


def test_the_store_own_numbers_are_all_there_with_their_kinds(store: logstore.LogStore) -> None:
    found, text = scrape(store), generate_latest(scrape(store)).decode()
    for name, value in store.metrics().items():
        assert found.get_sample_value(name) == value, name
        assert f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n" in text


def test_series_are_bounded_and_what_is_left_out_is_counted(store: logstore.LogStore) -> None:
    store.create_topic("p", partitions=8)
    for n in range(4):
        store.backend.commit_offsets(
            f"g{n}",
            {TopicPartition("p", 0): OffsetAndMetadata(0), TopicPartition("p", 1): OffsetAndMetadata(0)},
        )
    topics = store.backend.topics()
    found = scrape(store, max_partitions=3)
    series = {
        name: sum(sample.name == name for metric in found.collect() for sample in metric.samples)
        for name in (
            "kafka_topic_partition_current_offset",
            "kafka_consumergroup_lag",
            "kafka_consumergroup_members",
        )
    }
    assert set(series.values()) == {3}

    def left_out(what: str) -> float | None:
        return found.get_sample_value("logstore_metrics_left_out", {"of": what})

    assert left_out("topics") == len(topics) - 3
    assert left_out("partitions") == sum(topic.partitions for topic in topics.values()) - 3
    assert (left_out("groups"), left_out("group_partitions")) == (1, 5)
    with pytest.raises(InvalidArgumentError, match="max_partitions"):
        StoreCollector(store, max_partitions=-1)


def test_a_topic_that_cannot_be_looked_at_leaves_the_others(
    store: logstore.LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("gone")
    listed = store.backend.list_offsets

    def list_offsets(places, spec, isolation):  # type: ignore[no-untyped-def]
        if any(place.topic == "gone" for place in places):
            raise UnknownTopicError("there is no topic 'gone'")
        return listed(places, spec, isolation)

    monkeypatch.setattr(store.backend, "list_offsets", list_offsets)
    registry = scrape(store)
    for scrapes in (1, 2):
        (failures,) = [
            sample.value
            for metric in registry.collect()
            for sample in metric.samples
            if sample.name == "logstore_metrics_failures_total"
        ]
        assert failures == scrapes
    assert registry.get_sample_value("kafka_topic_partitions", {"topic": "gone"}) == 1
    place = {"topic": "orders", "partition": "1"}
    assert registry.get_sample_value("kafka_topic_partition_current_offset", place) == 0


def test_a_closed_store_is_an_error(store: logstore.LogStore) -> None:
    registry = scrape(store)
    store.close()
    with pytest.raises(StoreClosedError):
        list(registry.collect())
