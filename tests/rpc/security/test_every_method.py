"""Every method of the contract asks: with an authorizer that denies all, each is refused, or stands on a short list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from logstore.api.records import ProduceItem
from logstore.format.batch import encode_batch
from rpc.errors import AccessDeniedError
from rpc.handlers.caller import Caller, Operation, Resource
from rpc.pb import common_pb2, fetch_pb2, produce_pb2
from rpc.security.rules import GRANTABLE
from rpc.security.security import Security
from rpc.wire.errors import TRAILER
from rpc.wire.records import produce_request
from tests.rpc.served import Served
from tests.rpc.test_garbage import METHODS

OPEN: Final = {
    "ClusterService/GetCluster": "what the broker can do: the first call of every client",
    "LoginService/StartLogin": "what makes a caller known",
    "LoginService/FinishLogin": "what makes a caller known",
    "LeaseService/KeepLeases": "of leases that the same principal has opened, by ids that cannot be guessed",
    "LeaseService/ReleaseLeases": "the same",
    "TransactionService/ReleaseTransactions": "the same",
}
"""Methods that a caller without rights may call, and why."""

NOTHING: Final = {
    "TopicService/GetMetadata",
    "TopicService/WatchMetadata",
    "GroupService/ListGroups",
    "TransactionService/ListTransactions",
}
"""Lists of what the caller may see: empty."""

UNKNOWN: Final = {
    "ProducerService/GetProducerId": "UnknownLeaseError",
    "ProducerService/GetLastSequence": "UnknownLeaseError",
    "ProducerService/GetSpread": "UnknownLeaseError",
    "TransactionService/BeginTransaction": "UnknownLeaseError",
    "TransactionService/AddPartitionsToTransaction": "UnknownLeaseError",
    "TransactionService/SendOffsets": "UnknownLeaseError",
    "TransactionService/PrepareTransaction": "UnknownLeaseError",
    "TransactionService/EndTransaction": "UnknownLeaseError",
    "RecordService/WaitOperation": "UnknownOperationError",
    "RecordService/CancelOperation": "UnknownOperationError",
}
"""What needs something that the same principal was allowed to open."""


class DenyAll:
    """An ``Authorizer`` that notes what it was asked."""

    def __init__(self) -> None:
        self.asked: set[tuple[Resource, Operation]] = set()

    def check(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        self.asked.add((resource, operation))
        raise AccessDeniedError(f"{caller.principal} may nothing")

    def check_any(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        self.check(caller, operation, resource, "")

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        self.asked.add((resource, operation))
        return False


@pytest.fixture(scope="module")
def denying() -> Iterator[tuple[Served, DenyAll]]:
    deny = DenyAll()
    with Served(":memory:", security=Security(authorizer=deny), max_wait_s=0.05) as served:
        served.store.create_topic("t")
        with served.store.consumer("t", group="g") as consumer:
            consumer.poll(timeout_s=0)
            consumer.commit({("t", 0): 0})
        with served.store.producer(transactional_id="x") as producer, producer.transaction() as tx:
            tx.send("t", b"v")
        yield served, deny


TEXTS: Final = {
    "group": "g",
    "topic": "t",
    "name": "t",
    "transactional_id": "x",
    "lease_id": "l",
    "assignor": "sticky",
    "operation": "read",
    "resource": "topic",
    "pattern": "literal",
    "principal": "User:a",
}
NUMBERS: Final = (
    "timeout_ms", "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms", "total",
)  # fmt: skip


def plausible(kind: type[Message]) -> Message:
    """A message whose names are those of things that are there."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if field.name in TEXTS and field.type == field.TYPE_STRING and not field.is_repeated:
            setattr(message, field.name, TEXTS[field.name])
        elif field.name == "topics" and field.type == field.TYPE_STRING:
            getattr(message, field.name).append("t")
        elif field.name in NUMBERS:
            setattr(message, field.name, 1000)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            inner = plausible(GetMessageClass(field.message_type))
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            elif field.containing_oneof is None or field.name == "start":
                getattr(message, field.name).CopyFrom(inner)
    return message


def bodies(path: str) -> list[bytes]:
    kind = GetMessageClass(METHODS[path].input_type)
    if kind is produce_pb2.ProduceRequest:
        return [
            produce_request(
                [ProduceItem("t", 0, encode_batch([(b"k", b"v")], now_ms=1_700_000_000_000))], 1, 1000
            )
        ]
    if kind is fetch_pb2.FetchStreamRequest:
        return [
            plausible(kind).SerializeToString(),
            fetch_pb2.FetchStreamRequest(credit_bytes=1000).SerializeToString(),
        ]
    return [plausible(kind).SerializeToString()]


def outcome(channel: grpc.Channel, path: str) -> tuple[str, bytes]:
    """The error's name, or "" and the answer."""
    try:
        if METHODS[path].client_streaming:
            found = list(channel.stream_stream(path)(iter(bodies(path)), timeout=60))
            return "", b"".join(found)
        return "", channel.unary_unary(path)(bodies(path)[0], timeout=60)
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        return common_pb2.Error.FromString(trailers[TRAILER]).name, b""


@pytest.mark.parametrize("path", METHODS)
def test_it_asks(path: str, denying: tuple[Served, DenyAll]) -> None:
    served, _ = denying
    short = path.removeprefix("/logstore.v1.")
    if short.startswith("LoginService"):
        assert short in OPEN  # this broker has no users
        return
    with grpc.insecure_channel(served.address) as channel:
        name, answer = outcome(channel, path)
    if short in OPEN:
        assert name in ("", "UnsupportedFeatureError")
    elif short in NOTHING:
        found = GetMessageClass(METHODS[path].output_type).FromString(answer)
        rows = [field for field, _ in found.ListFields() if field.is_repeated]
        assert (name, rows) in (("", []), ("UnknownTopicError", []))
    else:
        assert name == UNKNOWN.get(short, "AccessDeniedError")


def test_the_lists_name_methods_that_there_are() -> None:
    short = {path.removeprefix("/logstore.v1.") for path in METHODS}
    assert short >= OPEN.keys() | NOTHING | UNKNOWN.keys()
    assert len(short) > 50


def test_rules_can_grant_what_is_asked_for(denying: tuple[Served, DenyAll]) -> None:
    served, deny = denying
    with grpc.insecure_channel(served.address) as channel:
        for path in METHODS:
            if not path.startswith("/logstore.v1.LoginService"):
                outcome(channel, path)
    assert {(resource, operation) for resource, operation in deny.asked} <= {
        (resource, operation) for resource, operations in GRANTABLE.items() for operation in operations
    }
    assert len(deny.asked) > 12
