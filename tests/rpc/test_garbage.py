"""Bytes that are no messages, or odd ones, to every method of the contract: a named error or an answer, and the broker
goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rpc.pb import (
    cluster_pb2,
    common_pb2,
    fetch_pb2,
    groups_pb2,
    offsets_pb2,
    produce_pb2,
    producers_pb2,
    records_pb2,
    security_pb2,
    topics_pb2,
    transactions_pb2,
)
from rpc.wire.errors import TRAILER
from tests.rpc.served import Served

FILES = (
    cluster_pb2,
    fetch_pb2,
    groups_pb2,
    offsets_pb2,
    produce_pb2,
    producers_pb2,
    records_pb2,
    security_pb2,
    topics_pb2,
    transactions_pb2,
)
METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
TEXTS = ("", "t", "g", "..", "a/b", "x" * 300, "\x00", "\U0001f41b", "__consumer_offsets")
NUMBERS = (0, 1, -1, 7, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
ROUNDS = 5


def odd(kind: type[Message], source: random.Random, depth: int = 0) -> Message:
    """A message of odd values."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if source.random() < 0.3 or depth > 3:
            continue
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            inner = odd(GetMessageClass(field.message_type), source, depth + 1)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
            continue
        value: object
        if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            text = source.choice(TEXTS)
            value = text.encode() if field.type == field.TYPE_BYTES else text
        elif field.type == field.TYPE_BOOL:
            value = source.random() < 0.5
        elif field.type == field.TYPE_ENUM:
            value = source.choice((0, 1, 99))
        else:
            small = field.type in (field.TYPE_INT32, field.TYPE_SINT32)
            value = source.choice([n for n in NUMBERS if not small or -(2**31) <= n < 2**31])
            if field.name.endswith("wait_ms"):
                value = min(int(str(value)), 20)  # a wait of a minute is a right answer, too
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


def bodies(kind: type[Message], source: random.Random) -> Iterator[bytes]:
    for _ in range(ROUNDS):
        yield source.randbytes(source.randint(1, 60))
        whole = odd(kind, source).SerializeToString()
        yield whole
        if whole:
            yield whole[: source.randrange(len(whole))]
            at = source.randrange(len(whole))
            yield whole[:at] + bytes([whole[at] ^ 1 << source.randrange(8)]) + whole[at + 1 :]


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
