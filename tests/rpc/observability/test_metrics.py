"""A broker's /metrics: calls, bytes, errors, what is under way; where it may listen; its end."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logstore.errors import UnknownTopicError
from rpc.errors import BrokerConfigError
from rpc.observability.metrics import serve_metrics
from rpc.settings import BrokerSettings
from tests.rpc.broker_process import BrokerUnderTest
from tests.rpc.served import Served

Series = dict[tuple[str, ...], float]


def scrape(address: str) -> Series:
    """By name and label values, in the order of the labels' names."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_calls_bytes_and_errors_of_a_broker_beside_its_store(tmp_path: Path) -> None:
    with Served(tmp_path / "store", metrics_listen="127.0.0.1:0", max_wait_s=5) as served:
        server = serve_metrics(served.broker.settings, served.store, served.broker)
        assert server is not None
        with served.connect() as client:
            client.create_topic("t")
            with client.producer() as producer:
                producer.send("t", b"x" * 1000).result(timeout_s=30)
            with pytest.raises(UnknownTopicError):
                client.backend.describe_topic("none")
            noted = (  # a call is counted once its answer is on its way
                ("logstore_broker_requests_in_flight", "TopicService/WatchMetadata"),
                ("logstore_broker_requests_total", "ProduceService/Produce"),
                ("logstore_broker_request_seconds_count", "ProduceService/Produce"),
                ("logstore_broker_errors_total", "UnknownTopicError", "TopicService/DescribeTopic"),
            )
            until_s, found = time.monotonic() + 60, dict[tuple[str, ...], float]()
            while any(found.get(one) != 1 for one in noted):
                assert time.monotonic() < until_s, found
                found = scrape(f"127.0.0.1:{server.port}")
        assert found["kafka_brokers",] == 1
        assert found["kafka_topic_partition_current_offset", "0", "t"] == 1
        assert found["logstore_broker_requests_total", "ProduceService/Produce"] == 1
        assert found["logstore_broker_received_bytes_total", "ProduceService/Produce"] > 1000
        assert found["logstore_broker_sent_bytes_total", "ProduceService/Produce"] > 0
        assert found["logstore_broker_errors_total", "UnknownTopicError", "TopicService/DescribeTopic"] == 1
        assert found["logstore_broker_request_seconds_count", "ProduceService/Produce"] == 1
        assert found["logstore_broker_request_seconds_bucket", "+Inf", "ProduceService/Produce"] == 1
        assert found["logstore_broker_held_bytes", "produce"] == 0
        assert found["logstore_broker_refusals_total", "produce-budget"] == 0
        assert found["process_open_fds",] > 0
        server.close()


def test_a_fetch_that_waits_is_not_at_work(served: Served) -> None:
    served.store.create_topic("t")
    with served.connect() as client, client.consumer("t", group="g") as consumer:
        consumer.poll(timeout_s=0.4)
    numbers = served.broker.meter.methods()["logstore.v1.FetchService/Fetch"]
    assert numbers.ended >= 1
    assert numbers.worked_s < 0.3


def test_the_process_says_where_and_ends_it_with_the_broker(tmp_path: Path) -> None:
    broker = BrokerUnderTest(tmp_path / "store", "--set", "metrics_listen=127.0.0.1:0")
    try:
        assert broker.process.stderr is not None
        line = broker.process.stderr.readline()
        found = re.search(r"http://(127\.0\.0\.1:\d+)/metrics", line)
        assert found is not None, line
        assert scrape(found[1])["kafka_brokers",] == 1
        assert broker.end()[0] == 0
        with pytest.raises(URLError):
            scrape(found[1])
    finally:
        broker.dispose()


def test_off_by_default_and_beyond_loopback_only_by_name(served: Served) -> None:
    assert serve_metrics(served.broker.settings, served.store, served.broker) is None
    with pytest.raises(BrokerConfigError, match=r"metrics_listen.*can be reached from other machines"):
        BrokerSettings(data="x", metrics_listen="0.0.0.0:9308")
    BrokerSettings(data="x", metrics_listen="0.0.0.0:9308", insecure_metrics_beyond_loopback=True)
    for told, given in (
        ("metrics_listen='here' is not HOST:PORT", {"metrics_listen": "here"}),
        ("metrics_partitions=-1", {"metrics_partitions": -1}),
    ):
        with pytest.raises(BrokerConfigError, match=told):
            BrokerSettings(data="x", **given)  # type: ignore[arg-type]
