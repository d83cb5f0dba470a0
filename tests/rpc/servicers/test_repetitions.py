"""Calls that take effect once: unit tests of the memory, and each kind of opening at a broker whose caller is gone."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from logstore.errors import InvalidArgumentError, LogStoreError, ProducerBusyError
from rpc.client.store import RemoteStore
from rpc.errors import BrokerBusyError
from rpc.pb import groups_pb2, offsets_pb2, producers_pb2, topics_pb2, transactions_pb2
from rpc.servicers.repetitions import KEPT_S, REMEMBERED, REMEMBERED_BYTES, CallKey, Repetitions
from rpc.servicers.service import CALL_ID, Service
from tests.rpc.served import Served

PATIENCE_S = 60.0


class Made:
    """What calls make: one number each."""

    def __init__(self, *errors: LogStoreError | None) -> None:
        self.count = 0
        self.errors = list(errors)
        self.gate: asyncio.Event | None = None

    async def __call__(self) -> bytes:
        self.count += 1
        if self.gate is not None:
            await self.gate.wait()
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return b"%d" % self.count


def key(number: object, principal: str = "User:a") -> CallKey:
    return CallKey(principal, "JoinGroup", str(number))


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_a_repetition_has_the_first_answer() -> None:
    async def work() -> None:
        calls, made = Repetitions(), Made()
        assert [await calls.once(key(1), made) for _ in range(3)] == [b"1"] * 3
        assert await calls.once(key(2), made) == b"2"
        assert await calls.once(key(1, "User:b"), made) == b"3"
        assert [await calls.once(key(""), made) for _ in range(2)] == [b"4", b"5"]

    run(work)


def test_a_repetition_joins_what_is_at_work_and_outlives_the_first_caller() -> None:
    async def work() -> None:
        calls, made = Repetitions(), Made()
        made.gate = asyncio.Event()
        first = asyncio.create_task(calls.once(key(1), made))
        second = asyncio.create_task(calls.once(key(1), made))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        made.gate.set()
        assert await second == b"1"
        assert first.cancelled()
        await calls.settle(PATIENCE_S)
        assert made.count == 1

    run(work)


def test_errors_are_remembered_unless_they_are_to_be_tried_again_behind() -> None:
    async def work() -> None:
        calls = Repetitions()
        made = Made(BrokerBusyError("busy", retry_after_ms=1), InvalidArgumentError("no"))
        with pytest.raises(BrokerBusyError):
            await calls.once(key(1), made)
        for _ in range(2):
            with pytest.raises(InvalidArgumentError):
                await calls.once(key(1), made)
        assert made.count == 2

    run(work)


def test_what_is_remembered_is_bounded_by_count_bytes_and_time() -> None:
    async def work() -> None:
        now_s = [0.0]
        calls, made = Repetitions(lambda: now_s[0]), Made()
        for number in range(REMEMBERED + 10):
            await calls.once(key(number), made)
        assert len(calls._ended) == REMEMBERED
        assert await calls.once(key(REMEMBERED + 9), made) == b"%d" % (REMEMBERED + 10)
        now_s[0] = KEPT_S + 1
        await calls.once(key("later"), made)
        assert set(calls._ended) == {key("later")}

        async def large() -> bytes:
            return bytes(REMEMBERED_BYTES // 4)

        for number in range(20):
            await calls.once(key(f"large {number}"), large)
        assert len(calls._ended) == 4
        assert calls._bytes <= REMEMBERED_BYTES

    run(work)


def test_a_call_that_works_for_long_keeps_no_others_from_being_forgotten() -> None:
    async def work() -> None:
        calls, slow, made = Repetitions(), Made(), Made()
        slow.gate = asyncio.Event()
        long = asyncio.create_task(calls.once(key("long"), slow))
        await asyncio.sleep(0)
        for number in range(REMEMBERED + 50):
            await calls.once(key(number), made)
        assert len(calls._ended) == REMEMBERED
        slow.gate.set()
        assert await long == await calls.once(key("long"), slow) == b"1"

    run(work)


def test_a_remembered_error_does_not_hold_the_request() -> None:
    """Else a caller could fill the broker's memory with large requests that are refused."""

    class Request:
        pass

    async def work() -> None:
        calls = Repetitions()
        request = Request()
        alive = weakref.ref(request)

        async def refuse(data: Request) -> bytes:
            raise InvalidArgumentError(f"no: {type(data).__name__}")

        with pytest.raises(InvalidArgumentError) as caught:
            await calls.once(key(1), partial(refuse, request))
        del request, caught
        await asyncio.sleep(0)  # the loop is done with the task
        await asyncio.sleep(0)
        gc.collect()
        assert alive() is None
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="no: Request"):
                await calls.once(key(1), Made())

    run(work)


# --- at a broker ---


@pytest.fixture
def served() -> Iterator[Served]:
    with Served(":memory:", lease_timeout_s=1.0) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[RemoteStore]:
    with served.connect() as client:
        client.create_topic("t", 2)
        yield client


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.address) as channel:
        yield channel


def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)


JOIN = groups_pb2.JoinGroupRequest(
    group="g", topics=["t"], session_timeout_ms=1000, heartbeat_interval_ms=100, max_poll_interval_ms=300_000
)


def is_free(client: RemoteStore, kind: str) -> bool:
    if kind == "join_group":
        return not client.admin.describe_group("g").members
    if kind == "init_transactions":
        return all(one.holder is None for one in client.admin.list_transactions())
    try:
        client.producer(name="n").close()
    except ProducerBusyError:
        return False
    return True


@pytest.mark.parametrize(
    ("engine_call", "path", "request_"),
    [
        ("join_group", "GroupService/JoinGroup", JOIN),
        ("init_producer", "ProducerService/OpenProducer", producers_pb2.OpenProducerRequest(name="n")),
        (
            "init_transactions",
            "TransactionService/InitTransactions",
            transactions_pb2.InitTransactionsRequest(transactional_id="tx", timeout_ms=60_000),
        ),
    ],
)
def test_what_is_opened_for_a_caller_that_is_gone_ends_by_its_timeout(
    served: Served,
    client: RemoteStore,
    channel: grpc.Channel,
    monkeypatch: pytest.MonkeyPatch,
    engine_call: str,
    path: str,
    request_: Message,
) -> None:
    """The caller goes while the engine is at work for it."""
    engine = served.store.backend
    entered, go_on, done, gone = (threading.Event() for _ in range(4))
    ends = Service._call_ends

    def note_end(service: Service, call: Any) -> None:
        ends(service, call)
        if call.cancelled:
            gone.set()

    monkeypatch.setattr(Service, "_call_ends", note_end)
    original = getattr(engine, engine_call)

    def slow(*args: Any, **named: Any) -> Any:
        entered.set()
        go_on.wait(PATIENCE_S)
        try:
            return original(*args, **named)
        finally:
            done.set()

    monkeypatch.setattr(engine, engine_call, slow)
    call = channel.unary_unary(f"/logstore.v1.{path}").future(request_.SerializeToString())
    assert entered.wait(PATIENCE_S)
    call.cancel()
    with pytest.raises(grpc.FutureCancelledError):
        call.result()
    assert gone.wait(PATIENCE_S), "the broker hears of it"
    go_on.set()
    assert done.wait(PATIENCE_S)
    monkeypatch.undo()
    until(lambda: is_free(client, engine_call), f"{engine_call}: what was opened is free again")


def ask(channel: grpc.Channel, path: str, request: Message, call_id: str) -> bytes:
    answer: bytes = channel.unary_unary(f"/logstore.v1.{path}")(
        request.SerializeToString(), metadata=((CALL_ID, call_id),), timeout=PATIENCE_S
    )
    return answer


def test_a_repeated_call_opens_nothing_twice(client: RemoteStore, channel: grpc.Channel) -> None:
    first, second = (ask(channel, "GroupService/JoinGroup", JOIN, "one") for _ in range(2))
    assert first == second
    assert len(client.admin.describe_group("g").members) == 1
    opened = producers_pb2.OpenProducerRequest(name="n")
    answers = {ask(channel, "ProducerService/OpenProducer", opened, "one") for _ in range(2)}
    assert len(answers) == 1
    made = topics_pb2.CreateTopicRequest(name="fresh", partitions=1)
    answers = {ask(channel, "TopicService/CreateTopic", made, "one") for _ in range(2)}
    assert len(answers) == 1
    with pytest.raises(grpc.RpcError):
        ask(channel, "TopicService/CreateTopic", made, "another call")


def test_a_late_repetition_takes_back_nothing(client: RemoteStore, channel: grpc.Channel) -> None:
    def commit(offset: int, call_id: str) -> None:
        request = offsets_pb2.CommitOffsetsRequest(group="g")
        request.offsets.add(topic="t", partition=0, offset=offset, leader_epoch=-1)
        ask(channel, "OffsetService/CommitOffsets", request, call_id)

    with client.producer() as producer:
        producer.send_many("t", [(None, b"v")] * 20, partition=0)
    commit(5, "one")
    commit(9, "two")
    commit(5, "one")
    assert [point.offset for point in client.committed_offsets("g").values()] == [9]
    delete = topics_pb2.DeleteTopicRequest(name="t")
    ask(channel, "TopicService/DeleteTopic", delete, "delete")
    client.create_topic("t", 1)
    ask(channel, "TopicService/DeleteTopic", delete, "delete")
    assert client.list_topics() == ["t"]
