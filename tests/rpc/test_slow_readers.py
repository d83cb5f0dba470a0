"""Readers that do not read: what the broker holds for them is bounded and counted, and others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from logstore.api.records import FetchRequest
from rpc.observability.meter import MethodNumbers
from rpc.pb import fetch_pb2
from rpc.wire.records import fetch_request, read_fetch_response
from tests.rpc.served import Served

MIB = 1 << 20
LOG = 64  # batches of a MiB
METHOD = "logstore.v1.FetchService/FetchStream"


def stream(channel: grpc.Channel, over: threading.Event) -> grpc.Call:
    """A reader with credit for everything, that has not asked for the first answer yet."""
    request = fetch_request(
        [FetchRequest("t", 0, 0, -1, MIB)],
        isolation="read_committed", min_bytes=1, max_bytes=MIB, max_wait_ms=0,
    )  # fmt: skip

    def requests() -> Iterator[bytes]:
        yield fetch_pb2.FetchStreamRequest(start=request).SerializeToString()
        yield fetch_pb2.FetchStreamRequest(credit_bytes=1 << 40).SerializeToString()
        over.wait(120)

    return channel.stream_stream("/logstore.v1.FetchService/FetchStream")(requests(), timeout=120)


def served_with(tmp_path: Path, **settings: float) -> Served:
    served = Served(tmp_path / "store", fetch_answer_bytes=MIB, **settings)
    served.store.create_topic("t", config={"max.message.bytes": str(2 * MIB)})
    for n in range(LOG):
        served.store.partition("t", 0).append([(None, b"%d" % n + bytes(MIB - 1000))])
    return served


def channels(served: Served, count: int) -> list[grpc.Channel]:
    """Of one connection each."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 4 * MIB)]
    return [grpc.insecure_channel(served.address, options) for _ in range(count)]


def held(served: Served) -> int:
    return served.broker.held_bytes()["fetch-stream"]


def settled(look: Callable[[], int]) -> int:
    """The number, once it has not changed for half a second."""
    until_s, since_s, seen = time.monotonic() + 60, time.monotonic(), look()
    while time.monotonic() - since_s < 0.5 or seen == 0:
        assert time.monotonic() < until_s
        time.sleep(0.02)
        if (found := look()) != seen:
            since_s, seen = time.monotonic(), found
    return seen


def until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_a_reader_that_does_not_read_is_sent_no_more_and_what_waits_is_counted(tmp_path: Path) -> None:
    over = threading.Event()
    with served_with(tmp_path) as served:
        (channel,) = channels(served, 1)
        call = stream(channel, over)
        sent = settled(lambda: served.broker.meter.methods().get(METHOD, MethodNumbers()).sent_bytes)
        assert sent < 10 * MIB  # gRPC's window and an answer, of a log of 64 MiB
        assert 0 < settled(lambda: held(served)) <= MIB
        assert read_all(call) == LOG
        over.set()
        channel.close()
        until(lambda: held(served) == 0)


def read_all(call: grpc.Call) -> int:
    """Answers up to the log's end."""
    for count, data in enumerate(call, 1):
        _, (result,) = read_fetch_response(data)
        if result.next_offset == LOG:
            return count
    raise AssertionError("the stream ended early")


def test_many_of_them_hold_no_more_than_streams_may_and_calls_go_on(tmp_path: Path) -> None:
    over = threading.Event()
    with served_with(tmp_path, fetch_bytes=6 * MIB) as served:
        opened = channels(served, 8)
        calls = [stream(channel, over) for channel in opened]
        assert 0 < settled(lambda: held(served)) <= 3 * MIB
        with served.connect() as client, client.consumer("t", until_end=True) as consumer:
            assert sum(1 for _ in consumer) == LOG
        with ThreadPoolExecutor(8) as readers:  # all come to their end once they read
            assert list(readers.map(read_all, calls, timeout=120)) == [LOG] * 8
        over.set()
        for channel in opened:
            channel.close()
