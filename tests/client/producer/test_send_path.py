"""The quick path of ``send``: both twins do the same, whatever they are given; its lock; deliveries nobody follows."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.api.records import ProduceResult
from logstore.client.producer import delivery, send_path
from logstore.client.producer.delivery import Delivery
from logstore.client.producer.producer import Producer
from logstore.client.producer.send_lock import send_lock
from logstore.client.producer.send_path import open_for
from logstore.errors import DiskFullError, LogStoreError
from logstore.seams.clock import ManualClock
from logstore.types import Record
from tests.client.fake_backend import FakeBackend
from tests.client.producer.test_accumulator import made, route_of
from tests.client.records import until
from tests.native.twins import python_twin

PYTHON_PATH = python_twin(send_path.__name__)
PYTHON_PATH.Delivery = python_twin(delivery.__name__).Delivery  # type: ignore[attr-defined]  # of the second copy

TOPICS = {"plain": 3, "one": 1, "murmur2": 3, "crc32": 3, "turns": 2, "compacted": 2}


class PythonProducer(Producer[Any, Any]):
    """A producer whose quick path is Python's, whatever is built."""

    _lock = None  # type: ignore[assignment]  # in place of what the compiled twin has under this name
    _set_lock = PYTHON_PATH.SendPath._set_lock
    send = PYTHON_PATH.SendPath.send
    send_now = PYTHON_PATH.SendPath.send_now


class OfBytes(bytes):
    """A class derived from bytes: taken, but not quickly."""


class OfText(str):
    """A class derived from str."""

    __slots__ = ()


def backend_of_kinds() -> FakeBackend:
    backend = FakeBackend()
    for name, partitions in TOPICS.items():
        config = {"max.message.bytes": "700"}
        if name in {"murmur2", "crc32"}:
            config["partitioner"] = name
        elif name == "turns":
            config["partitioner"] = "round_robin"
        elif name == "compacted":
            config["cleanup.policy"] = "compact"
        backend.create_topic(name, partitions, config)
    return backend


content = (
    st.none()
    | st.binary(max_size=60)
    | st.binary(min_size=500, max_size=720)
    | st.binary(max_size=9).map(OfBytes)
    | st.sampled_from([bytearray(b"b"), memoryview(b"m"), "text", 7, (), Ellipsis])
)
name = (
    st.text(max_size=5) | st.just(OfText("n")) | st.sampled_from([b"n", None, "\ud800", "\u00e9\U0001f600"])
)
pair = (
    st.tuples(name, content)
    | st.lists(content, max_size=3)
    | st.just(b"ab")
    | st.tuples(name, content, content)
)
headers = (
    st.none()
    | st.lists(pair, max_size=3)
    | st.lists(pair, max_size=3).map(tuple)
    | st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=3)
    | st.sampled_from([7, {"a": b"1"}, {"ab": b"1"}, (), "", "ab", b"ab"])
)
call = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([*TOPICS, *TOPICS, "absent", None, 7, b"plain", OfText("plain"), ["plain"]]),
        "value": content,
        "key": content,
        "headers": headers,
        "iterated": st.booleans(),
        "timestamp_ms": st.none() | st.none() | st.integers(-5, 2**63) | st.just(True) | st.just("now"),
        "partition": st.none() | st.none() | st.integers(-1, 3) | st.just(True),
        "now": st.booleans(),
    }
)  # fmt: skip


def outcome_of(producer: Producer[Any, Any], asked: dict[str, Any]) -> Any:
    """The delivery, or the error with its words; None where ``send_now`` might have to wait."""
    asked = dict(asked)
    topic, value, now, iterated = (asked.pop(field) for field in ("topic", "value", "now", "iterated"))
    try:
        if now:
            return producer.send_now(topic, value, key=asked["key"])
        if iterated and isinstance(asked["headers"], list | tuple):
            asked["headers"] = iter(asked["headers"])
        return producer.send(topic, value, **asked)
    except (LogStoreError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def conversation(
    kind: type[Producer[Any, Any]], calls: list[dict[str, Any]]
) -> tuple[list[Any], list[list[Record]]]:
    """What each call came to, and what the partitions hold in the end. No thread takes part."""
    backend = backend_of_kinds()
    producer = kind(backend, clock=ManualClock(), batch_bytes=400, acks=1)
    producer._sender.notice = lambda queue, now_s: None  # type: ignore[method-assign]
    for topic in ("plain", "one", "murmur2"):
        producer.send(topic, b"the first is never quick", key=b"")
    said = [outcome_of(producer, asked) for asked in calls]
    assert producer.metrics()["buffered_bytes"] > 0
    producer.flush()
    said = [
        (outcome.done(), outcome.result(), outcome.exception(), repr(outcome))
        if hasattr(outcome, "done")
        else outcome
        for outcome in said
    ]
    held = [backend.logs[place].records(*place) for place in sorted(backend.logs)]
    assert producer.metrics()["buffered_bytes"] == 0
    producer.close()
    return said, held  # fmt: skip


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(call, max_size=25))
def test_both_twins_do_the_same(calls: list[dict[str, Any]]) -> None:
    assert conversation(Producer, calls) == conversation(PythonProducer, calls)


@pytest.mark.parametrize("kind", [Producer, PythonProducer])
def test_many_threads_lose_and_double_nothing(kind: type[Producer[Any, Any]]) -> None:
    backend = backend_of_kinds()
    each, threads = 2000, 6
    kept: list[list[Any]] = [[] for _ in range(threads)]
    with kind(backend, batch_bytes=600, linger_ms=0, acks=1) as producer:

        def work(number: int) -> None:
            for place in range(each):
                key = None if place % 3 else b"%d" % number
                kept[number].append(producer.send("plain", b"%d-%d" % (number, place), key=key))

        working = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()
        producer.flush()
        found = [delivery.result()[:3] for part in kept for delivery in part]
    stored = {
        (record.topic, record.partition, record.offset): record.value
        for place in backend.logs
        if place[0] == "plain"
        for record in backend.logs[place].records(*place)
    }
    sent = [b"%d-%d" % (number, place) for number in range(threads) for place in range(each)]
    assert len(stored) == len(found) == each * threads
    assert [stored[where] for where in found] == sent


@pytest.mark.parametrize("kind", [Producer, PythonProducer])
def test_a_producer_that_was_never_made_refuses(kind: type[Producer[Any, Any]]) -> None:
    """As in a subclass that sends before it has called ``Producer.__init__``."""
    unmade = kind.__new__(kind)
    with pytest.raises((AttributeError, TypeError)):
        unmade.send("plain", b"x")
    with pytest.raises((AttributeError, TypeError)):
        unmade.send_now("plain", b"x")
    with pytest.raises(AttributeError):
        Delivery.__new__(Delivery).done()


def test_the_lock_keeps_others_out() -> None:
    lock = send_lock()
    counted = 0

    def work() -> None:
        nonlocal counted
        for _ in range(3000):
            with lock:
                seen = counted
                counted = seen + 1

    working = [threading.Thread(target=work) for _ in range(4)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    assert counted == 12_000
    assert lock.acquire()
    assert lock.locked()
    assert not lock.acquire(False)
    lock.release()
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        lock.release()


def test_a_signal_ends_the_wait_for_the_lock() -> None:
    lock = send_lock()
    armed: list[bool] = []
    ended = threading.Event()

    def interrupt(*_: object) -> None:
        if armed.pop() if armed else False:
            raise InterruptedError("enough")

    def alarm() -> None:
        while not ended.wait(0.01):
            signal.pthread_kill(main, signal.SIGUSR1)

    def wait_for_it() -> None:
        armed.append(True)
        lock.acquire()

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=alarm)
    lock.acquire()
    thread.start()
    try:
        with pytest.raises(InterruptedError, match="enough"):
            wait_for_it()
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    lock.release()
    with lock:
        assert lock.locked()


def test_a_failed_batch_is_not_kept_alive_by_its_own_delivery() -> None:
    """The error's traceback leads to the caller's frame, and that to the delivery, which is not followed."""
    backend = backend_of_kinds()
    backend.faults.append(DiskFullError("no room"))
    with Producer(backend, disk_full_timeout_ms=0, acks=1) as producer:

        def failing() -> weakref.ref[Any]:
            sent = producer.send("one", b"x")
            with pytest.raises(DiskFullError):
                sent.result()
            return weakref.ref(sent._batch)

        batch = failing()
        producer.send("one", b"y").result()
        producer._accumulator.failed.clear()
    gc.collect()
    assert batch() is None


@pytest.mark.parametrize("kind", [Producer, PythonProducer])
def test_callbacks_and_coroutines_get_the_outcome(kind: type[Producer[Any, Any]]) -> None:
    backend = backend_of_kinds()
    with kind(backend, acks=1) as producer:
        told: list[Any] = []
        sent = producer.send("one", b"x")
        sent.add_callback(told.append)
        assert asyncio.run(awaiting(sent)).offset == 0
        until(lambda: told == [sent], "the callback")
        sent.add_callback(told.append)
        assert told == [sent, sent]
        with pytest.raises(LogStoreError, match="callback"):
            sent.add_callback(7)  # type: ignore[arg-type]


async def awaiting(sent: Delivery) -> Any:
    return await sent


@given(
    sizes=st.lists(st.integers(0, 260), min_size=1, max_size=12),
    batch_bytes=st.integers(150, 400),
    limit=st.integers(200, 400),
    lands=st.booleans(),
)
def test_a_row_opens_a_batch_as_append_does(
    sizes: list[int], batch_bytes: int, limit: int, lands: bool
) -> None:
    """Batches, their sizes and what they hold of the buffer are those of ``Accumulator.append``."""
    sides = [(made(batch_bytes=batch_bytes, buffer_bytes=700), route_of(1, limit)) for _ in range(2)]
    for size in sizes:
        seen = []
        for (accumulator, route), opens in zip(sides, (True, False), strict=True):
            queue, row, alone = route.queues[0], (None, bytes(size)), size + 84
            if opens:
                placed = open_for(accumulator, queue, row, size, alone, 1.0)
            else:
                placed = accumulator.append(queue, row, size, alone, False, 1.0)
            batches = [
                (list(batch.rows), batch.size, batch.cap, batch.reserved, batch.room, batch.created_s)
                for batch in accumulator.unfinished()
            ]
            told = None if placed is None else placed[1]
            seen.append((told, batches, accumulator.opened, accumulator.buffer.held_bytes))
            if placed is None or lands:
                accumulator.draining = True
                flight = accumulator.take_ready(1.0)
                if flight:
                    accumulator.land(queue, [ProduceResult(0)] * len(flight), 1.0)
        assert seen[0] == seen[1]
