"""Streams outlive the moment in which they were allowed: each message asks again."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import grpc
import pytest

from logstore.api.records import FetchRequest, ProduceItem
from logstore.format.batch import encode_batch
from rpc.handlers.caller import Resource
from rpc.pb import common_pb2, fetch_pb2
from rpc.wire.errors import TRAILER
from rpc.wire.records import fetch_request, produce_request
from tests.rpc.security.secured import Secured, rule
from tests.rpc.security.test_access import until, waits_for_records

BATCH = encode_batch([(None, b"v")], now_ms=1_700_000_000_000)
READ_T, WRITE_T = (rule("alice", operation, Resource.TOPIC, "t") for operation in ("read", "write"))


@pytest.fixture
def served(secured: Secured) -> Secured:
    secured.store.create_topic("t")
    return secured


class Stream:
    """One of alice's."""

    def __init__(self, served: Secured, channel: grpc.Channel, path: str) -> None:
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        metadata = (("authorization", f"Bearer {served.token_of('alice')}"),)
        call = channel.stream_stream(f"/logstore.v1.{path}")
        self.answers: Iterator[bytes] = call(iter(self._messages.get, None), timeout=30, metadata=metadata)

    def give(self, data: bytes) -> None:
        self._messages.put(data)

    def refusal(self) -> str:
        with pytest.raises(grpc.RpcError) as ended:
            next(self.answers)
        self._messages.put(None)
        return common_pb2.Error.FromString(dict(ended.value.trailing_metadata())[TRAILER]).name


def to_produce() -> bytes:
    return produce_request([ProduceItem("t", 0, BATCH)], "all", 5000)


@pytest.mark.parametrize("taken", ["the right", "the user"])
def test_a_stream_of_appends(served: Secured, taken: str) -> None:
    served.allow(WRITE_T)
    with served.channel() as channel:
        stream = Stream(served, channel, "ProduceService/ProduceStream")
        stream.give(to_produce())
        next(stream.answers)
        if taken == "the right":
            served.forbid(WRITE_T)
        else:
            served.access.remove_user("alice")
        stream.give(to_produce())
        expected = "AccessDeniedError" if taken == "the right" else "AuthenticationError"
        assert stream.refusal() == expected
    assert served.store.partition("t", 0).log_end_offset == 1


@pytest.mark.parametrize("taken", ["the right", "the user"])
def test_a_stream_of_records_that_waits(served: Secured, taken: str) -> None:
    served.allow(READ_T)
    with served.channel() as channel:
        stream = Stream(served, channel, "FetchService/FetchStream")
        wanted = fetch_request(
            [FetchRequest("t", 0, 0, -1, 1 << 20)],
            isolation="read_committed",
            min_bytes=1,
            max_bytes=1 << 20,
            max_wait_ms=0,
        )
        stream.give(fetch_pb2.FetchStreamRequest(start=wanted).SerializeToString())
        stream.give(fetch_pb2.FetchStreamRequest(credit_bytes=1 << 20).SerializeToString())
        until(lambda: waits_for_records(served))
        if taken == "the right":
            served.forbid(READ_T)
        else:
            served.access.remove_user("alice")
        served.store.partition("t", 0).append([(None, b"v")])
        expected = "AccessDeniedError" if taken == "the right" else "AuthenticationError"
        assert stream.refusal() == expected
