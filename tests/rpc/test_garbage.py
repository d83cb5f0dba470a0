"""Bytes that are no messages, or odd ones, to every method of the contract: a named error or an answer, and the broker
goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from rpc.pb import common_pb2
from rpc.wire.errors import TRAILER
from tests.rpc import fuzz
from tests.rpc.odd_bodies import METHODS, bodies
from tests.rpc.served import Served


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("garbage") / "store", max_wait_s=0.05)
    served.store.create_topic("t")
    yield served
    served.close()


def test_every_method_is_meant() -> None:
    assert len(METHODS) > 40
    assert "/logstore.v1.ProduceService/Produce" in METHODS


@pytest.mark.parametrize("path", METHODS)
def test_odd_bodies(path: str, shared: Served) -> None:
    method = METHODS[path]
    source = random.Random(path)
    streamed = method.client_streaming
    with grpc.insecure_channel(shared.address) as channel:
        call = channel.stream_stream(path) if streamed else channel.unary_unary(path)
        for body in bodies(GetMessageClass(method.input_type), source):
            try:
                if streamed:
                    for _ in call(iter([body]), timeout=30):
                        pass
                else:
                    call(body, timeout=30)
            except grpc.RpcError as error:
                check_named(error, body)
    with shared.connect() as client:
        client.create_topic("t", exist_ok=True)
        with client.producer() as producer:
            assert producer.send("t", b"still there").result(timeout_s=30).offset >= 0


def check_named(error: grpc.RpcError, body: bytes) -> None:
    trailers = dict(error.trailing_metadata() or ())
    assert TRAILER in trailers, f"{body!r}: {error.code()} {error.details()}"
    told = common_pb2.Error.FromString(trailers[TRAILER])
    assert told.name != "InvariantError", f"{body!r}: {told.message}"


def test_a_short_campaign(capfd: pytest.CaptureFixture[str]) -> None:
    """As ``python -m tests.rpc.fuzz`` does it with more, at a broker in a process of its own."""
    assert fuzz.run(seed=1, count=400) == 0
    assert "0 unnamed" in capfd.readouterr().out
