"""Quotas end to end: a client id with a quota beside one without, calls and streams; nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from logstore.api.records import FetchRequest, ProduceItem
from logstore.format.batch import encode_batch
from rpc.client.store import RemoteStore
from rpc.errors import BrokerBusyError
from rpc.pb import produce_pb2
from rpc.wire.records import produce_request
from tests.rpc.served import Served

RATE = 40_000
RECORDS, SIZE = 60, 1_000  # 1.5 seconds' worth: half a second behind the burst


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "store", quota_overrides=f"*/slow produce={RATE} fetch={RATE}") as served:
        served.store.create_topic("t")
        yield served


def produce(client: RemoteStore) -> float:
    """Seconds that it took."""
    began_s = time.monotonic()
    with client.producer(batch_bytes=4_000, linger_ms=1) as producer:
        deliveries = [producer.send("t", b"%4d" % n * (SIZE // 4)) for n in range(RECORDS)]
        for delivery in deliveries:
            delivery.result(timeout_s=60)
    return time.monotonic() - began_s


def consume(client: RemoteStore, count: int) -> tuple[float, list[bytes | None]]:
    began_s, found = time.monotonic(), []
    with client.consumer("t", group=client.backend._brokers.settings.client_id) as consumer:
        while len(found) < count:
            assert time.monotonic() < began_s + 60
            found += [record.value for record in consumer.poll(timeout_s=1)]
    return time.monotonic() - began_s, found


def test_a_client_with_a_quota_is_slow_and_whole_and_another_one_is_not(limited: Served) -> None:
    least_s = RECORDS * SIZE / RATE - 1  # the burst is a second's worth
    with limited.connect(client_id="slow") as slow, limited.connect(client_id="free") as free:
        slow_s = produce(slow)
        assert slow_s >= least_s
        busy = limited.broker.refusals()["produce-quota"]
        assert busy > 0 or slow_s > 2 * least_s  # a machine that is slower than the quota does not feel it
        produce(free)
        assert limited.broker.refusals()["produce-quota"] == busy  # a second's worth, and none was refused
        slow_s, slowly = consume(slow, 2 * RECORDS)
        least_s = 2 * RECORDS * SIZE / RATE - 1
        assert slow_s >= least_s
        assert limited.broker.refusals()["fetch-quota"] > 0 or slow_s > 2 * least_s
        assert consume(free, 2 * RECORDS)[1] == slowly
    assert slowly == [b"%4d" % n * (SIZE // 4) for n in range(RECORDS)] * 2
    numbers = limited.broker.meter.methods()["logstore.v1.FetchService/Fetch"]
    assert numbers.worked_s < slow_s / 2  # the delay is a wait


def test_over_the_quota_the_answer_says_when(tmp_path: Path) -> None:
    item = ProduceItem("t", 0, encode_batch([(None, b"x" * 39_000)], now_ms=1))
    with Served(tmp_path / "store", produce_quota_bytes_s=400, quota_burst_s=100) as served:
        served.store.create_topic("t")
        with served.connect() as client:
            client.backend.produce([item], "all", 60)
            with pytest.raises(BrokerBusyError, match="400 bytes a second") as busy:
                client.backend.produce([item], "all", 60)
        assert 0 < busy.value.retry_after_ms <= 100_000
        assert served.store.partition("t", 0).bounds().high_watermark == 1


def test_a_produce_stream_is_read_on_as_its_quota_allows(limited: Served) -> None:
    batch = encode_batch([(None, b"x" * 10_000)], now_ms=1)
    requests = (
        produce_request([ProduceItem("t", 0, batch)], "all", 5_000, correlation_id=n) for n in range(8)
    )
    began_s = time.monotonic()
    with grpc.insecure_channel(limited.address) as channel:
        call = channel.stream_stream("/logstore.v1.ProduceService/ProduceStream")
        answers = call(requests, timeout=60, metadata=(("logstore-client-id", "slow"),))
        offsets = [produce_pb2.ProduceResponse.FromString(data).results[0].base_offset for data in answers]
    assert offsets == list(range(8))
    assert time.monotonic() - began_s >= 8 * len(batch) / RATE - 1


def test_a_fetch_that_cannot_be_given_soon_is_busy_and_the_client_waits(tmp_path: Path) -> None:
    with Served(tmp_path / "store", fetch_quota_bytes_s=300, quota_burst_s=0.5) as served:
        served.store.create_topic("t")
        served.store.partition("t", 0).append([(None, b"x" * 30_000)])
        request = FetchRequest("t", 0, 0, -1, 1 << 20, False)
        with served.connect(request_timeout_s=3.0) as client:

            def fetch() -> int:
                (result,) = client.backend.fetch(
                    [request], isolation="read_committed", min_bytes=1, max_bytes=1 << 20, max_wait_s=0
                )
                return len(result.batches)

            assert fetch() > 30_000  # a batch is sent whole, and paid off
            with pytest.raises(BrokerBusyError) as busy:
                fetch()
            assert busy.value.retry_after_ms > 10_000
