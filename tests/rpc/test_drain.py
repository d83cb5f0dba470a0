"""A stop of the broker: streams that wait for something end at once, and are told why; what is under way goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from logstore.api.records import FetchRequest, ProduceItem
from logstore.format.batch import encode_batch
from rpc.pb import fetch_pb2
from rpc.wire.records import fetch_request, produce_request
from tests.rpc.served import Served, wait

DRAIN_S = 120.0
AT_ONCE_S = DRAIN_S / 2


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "store")
    served.store.create_topic("t")
    yield served
    served.close()


class Open:
    """The requests of a stream: those given, and then nothing, without an end."""

    def __init__(self, *requests: object) -> None:
        self._requests = requests
        self.over = threading.Event()

    def __iter__(self) -> Iterator[object]:
        yield from self._requests
        self.over.wait(DRAIN_S)


def stop(served: Served) -> float:
    began_s = time.monotonic()
    wait(served.broker.stop(DRAIN_S), DRAIN_S + 30)
    return time.monotonic() - began_s


def test_a_watch_of_health_is_told_and_ends(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=DRAIN_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        assert stop(served) < AT_ONCE_S
        assert [answer.status for answer in watch] == [health_pb2.HealthCheckResponse.NOT_SERVING]


def test_a_watch_of_a_service_that_is_not_there_says_so_once(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        request = health_pb2.HealthCheckRequest(service="none")
        watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=DRAIN_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        assert stop(served) < AT_ONCE_S
        assert [answer.status for answer in watch] == [health_pb2.HealthCheckResponse.NOT_SERVING]


def test_a_reflection_stream_ends(served: Served) -> None:
    requests = Open(reflection_pb2.ServerReflectionRequest(list_services=""))
    with grpc.insecure_channel(served.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        answers = stub.ServerReflectionInfo(iter(requests), timeout=DRAIN_S)
        names = [one.name for one in next(answers).list_services_response.service]
        assert "logstore.v1.FetchService" in names
        assert stop(served) < AT_ONCE_S
        assert list(answers) == []
        requests.over.set()


def batch(value: bytes) -> bytes:
    return encode_batch([(None, value)], now_ms=1)


def produce_one() -> bytes:
    return produce_request([ProduceItem("t", 0, batch(b"kept"))], "all", 5_000)


def read_from_start() -> bytes:
    request = fetch_request(
        [FetchRequest("t", 0, 0, -1, 1 << 20)],
        isolation="read_committed", min_bytes=1, max_bytes=1 << 20, max_wait_ms=0,
    )  # fmt: skip
    return fetch_pb2.FetchStreamRequest(start=request).SerializeToString()


@pytest.mark.parametrize(
    ("path", "first", "answers"),
    [
        ("ProduceService/ProduceStream", produce_one, 1),
        ("ProduceService/ProduceStream", None, 0),
        ("FetchService/FetchStream", None, 0),
        ("FetchService/FetchStream", read_from_start, 0),  # no credit
    ],
)
def test_an_idle_stream_ends_and_says_why(
    served: Served, path: str, first: Callable[[], bytes] | None, answers: int
) -> None:
    requests = Open() if first is None else Open(first())
    with grpc.insecure_channel(served.address) as channel:
        call = channel.stream_stream(f"/logstore.v1.{path}")(iter(requests), timeout=DRAIN_S)
        for _ in range(answers):
            next(call)
        begun(served, path)
        assert stop(served) < AT_ONCE_S
        with pytest.raises(grpc.RpcError) as refused:
            next(call)
        requests.over.set()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "the broker stops" in (refused.value.details() or "")


def begun(served: Served, path: str) -> None:
    """Until the broker has a call of the method."""
    until_s = time.monotonic() + 60
    while f"logstore.v1.{path}" not in served.broker.meter.methods():
        assert time.monotonic() < until_s
        time.sleep(0.01)


@pytest.mark.parametrize("path", ["ProduceService/Produce", "FetchService/Fetch", "TopicService/GetMetadata"])
def test_a_call_whose_request_never_comes_holds_a_stop_no_longer_than_the_drain(
    served: Served, path: str
) -> None:
    requests = Open()
    with grpc.insecure_channel(served.address) as channel:
        # On the wire the same as a method of one request.
        call = channel.stream_unary(f"/logstore.v1.{path}").future(iter(requests), timeout=DRAIN_S * 4)
        begun(served, path)
        wait(served.broker.stop(0.2), DRAIN_S)
        assert isinstance(call.exception(DRAIN_S), grpc.RpcError)
        requests.over.set()


def test_a_reader_that_never_reads_holds_a_stop_no_longer_than_the_drain(served: Served) -> None:
    for _ in range(8):
        served.store.partition("t", 0).append([(None, bytes(1 << 19))])
    credit = fetch_pb2.FetchStreamRequest(credit_bytes=1 << 40).SerializeToString()
    requests = Open(read_from_start(), credit)
    with grpc.insecure_channel(served.address) as channel:
        call = channel.stream_stream("/logstore.v1.FetchService/FetchStream")(
            iter(requests), timeout=DRAIN_S * 4
        )
        begun(served, "FetchService/FetchStream")
        wait(served.broker.stop(0.2), DRAIN_S)
        with pytest.raises(grpc.RpcError):
            list(call)
        requests.over.set()
