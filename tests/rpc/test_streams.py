"""The two streams of the contract, by a client that knows nothing but the contract."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import grpc
import pytest

from logstore.api.records import FetchRequest, ProduceItem
from logstore.format.batch import encode_batch
from logstore.types import Acks
from rpc.framing import split
from rpc.pb import fetch_pb2, produce_pb2
from rpc.wire.records import fetch_request, produce_request, read_fetch_response
from tests.rpc.served import Served

DEADLINE_S = 30


def batch(*values: bytes) -> bytes:
    return encode_batch([(None, value) for value in values], now_ms=1_700_000_000_000)


class Sending:
    """The requests of one stream, given one by one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._queue.get, None)

    def give(self, data: bytes | None) -> None:
        self._queue.put(data)


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    served.store.create_topic("t", partitions=2)
    with grpc.insecure_channel(served.address) as channel:
        yield channel


def produced(
    channel: grpc.Channel, requests: Iterator[bytes] | Sending
) -> Iterator[produce_pb2.ProduceResponse]:
    call = channel.stream_stream("/logstore.v1.ProduceService/ProduceStream")
    for data in call(iter(requests), timeout=DEADLINE_S):
        yield produce_pb2.ProduceResponse.FromString(data)


def values(served: Served, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in served.store.partition("t", partition).records(0)]


def test_a_stream_of_batches_is_appended_and_answered_in_order(served: Served, channel: grpc.Channel) -> None:
    requests = (
        produce_request([ProduceItem("t", 0, batch(b"%d" % n))], "all", 5_000, correlation_id=n)
        for n in range(300)
    )
    answers = list(produced(channel, requests))
    assert [answer.correlation_id for answer in answers] == list(range(300))
    assert [answer.results[0].base_offset for answer in answers] == list(range(300))
    assert values(served) == [b"%d" % n for n in range(300)]


def test_a_refused_batch_does_not_end_the_stream(served: Served, channel: grpc.Channel) -> None:
    requests = [
        produce_request([ProduceItem("t", 9, batch(b"lost"))], 1, 5_000, correlation_id=1),
        produce_request([ProduceItem("t", 0, batch(b"kept"))], "all", 5_000, correlation_id=2),
    ]
    refused, kept = produced(channel, iter(requests))
    assert refused.results[0].error.name == "UnknownPartitionError"
    assert not kept.results[0].HasField("error")
    assert values(served) == [b"kept"]


def test_what_was_sent_before_a_failure_was_seen_is_not_tried(served: Served, channel: grpc.Channel) -> None:
    """Of the partition that failed; the others go on, and so does it once its sender knows."""

    def request(number: int, seen: int, *items: ProduceItem) -> bytes:
        acks: Acks = "all" if number == 5 else 1  # then all of it is shown
        return produce_request(items, acks, 5_000, correlation_id=number, seen_correlation_id=seen)

    refused = ProduceItem("t", 0, batch(b"refused"), expected_offset=77)
    requests = [
        request(1, 0, refused, ProduceItem("t", 1, batch(b"other"))),
        request(2, 0, ProduceItem("t", 1, batch(b"goes on")), ProduceItem("t", 0, batch(b"passed it"))),
        request(3, 0, ProduceItem("t", 0, batch(b"passed it, too"))),
        request(4, 1, ProduceItem("t", 0, batch(b"before the second was seen"))),
        request(5, 4, ProduceItem("t", 0, batch(b"again")), ProduceItem("t", 1, batch(b"last"))),
    ]
    answers = list(produced(channel, iter(requests)))
    assert [[result.error.name for result in answer.results] for answer in answers] == [
        ["OffsetMismatchError", ""],
        ["", "OffsetMismatchError"],
        ["OffsetMismatchError"],
        ["OffsetMismatchError"],
        ["", ""],
    ]
    assert [result.base_offset for result in answers[1].results] == [1, -1]
    assert values(served) == [b"again"]
    assert values(served, 1) == [b"other", b"goes on", b"last"]


def test_a_malformed_request_ends_the_stream_with_its_name(served: Served, channel: grpc.Channel) -> None:
    good = produce_request([ProduceItem("t", 0, batch(b"kept"))], "all", 5_000)
    call = produced(channel, iter([good, b"\x0f" + b"\xff" * 30]))
    assert next(call).results[0].base_offset == 0
    with pytest.raises(grpc.RpcError) as refused:
        next(call)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert values(served) == [b"kept"]


class Reading:
    """A fetch stream: what is asked, and what comes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._sending = Sending()
        self._call = channel.stream_stream("/logstore.v1.FetchService/FetchStream")(
            iter(self._sending), timeout=DEADLINE_S
        )

    def start(self, offset: int, *, number: int, max_bytes: int = 1 << 20) -> None:
        request = fetch_request(
            [FetchRequest("t", 0, offset, -1, max_bytes)],
            isolation="read_committed",
            min_bytes=1,
            max_bytes=max_bytes,
            max_wait_ms=0,
            correlation_id=number,
        )
        self._sending.give(fetch_pb2.FetchStreamRequest(start=request).SerializeToString())

    def credit(self, size: int) -> None:
        self._sending.give(fetch_pb2.FetchStreamRequest(credit_bytes=size).SerializeToString())

    def answer(self) -> tuple[int, int, int]:
        """Correlation id, bytes of records, where to read on."""
        head, (result,) = read_fetch_response(next(self._call))
        return head.correlation_id, len(result.batches), result.next_offset

    def close(self) -> None:
        self._sending.give(None)
        assert list(self._call) == []


def test_a_reader_gets_what_comes_as_long_as_it_has_credit(served: Served, channel: grpc.Channel) -> None:
    log = served.store.partition("t", 0)
    log.append([(None, b"first")])
    reading = Reading(channel)
    reading.start(0, number=1)
    reading.credit(1 << 20)
    assert reading.answer()[::2] == (1, 1)
    log.append([(None, b"second")])
    assert reading.answer()[::2] == (1, 2)
    reading.close()


def test_without_credit_nothing_is_sent_and_a_seek_is_answered_anew(
    served: Served, channel: grpc.Channel
) -> None:
    log = served.store.partition("t", 0)
    for n in range(10):
        log.append([(None, b"%d" % n * 100)])
    size = len(log.read(0, 1))
    reading = Reading(channel)
    reading.start(0, number=1, max_bytes=size)
    reading.credit(2 * size)
    assert [reading.answer() for _ in range(2)] == [(1, size, 1), (1, size, 2)]
    reading.start(8, number=2, max_bytes=size)  # the credit is used up: only now comes more
    reading.credit(size)
    assert reading.answer() == (2, size, 9)
    reading.credit(size)
    assert reading.answer() == (2, size, 10)
    reading.close()


def test_a_stream_that_asks_for_nothing_is_refused(channel: grpc.Channel) -> None:
    call = channel.stream_stream("/logstore.v1.FetchService/FetchStream")
    with pytest.raises(grpc.RpcError) as refused:
        list(call(iter([b""]), timeout=DEADLINE_S))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_records_of_an_answer_are_split_like_those_of_a_call(served: Served, channel: grpc.Channel) -> None:
    served.store.partition("t", 0).append([(None, b"x")])
    request = fetch_request(
        [FetchRequest("t", 0, 0, -1, 1 << 20)],
        isolation="read_uncommitted",
        min_bytes=1,
        max_bytes=1 << 20,
        max_wait_ms=0,
    )
    data = channel.unary_unary("/logstore.v1.FetchService/Fetch")(
        request.SerializeToString(), timeout=DEADLINE_S
    )
    head, records = split(data, fetch_pb2.FetchResponse)
    assert head.partitions[0].size == len(records) > 0
