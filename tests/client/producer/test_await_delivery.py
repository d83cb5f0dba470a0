"""``await delivery``: outcomes in a coroutine, without holding up the event loop or losing anything."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

import logstore
from logstore.api.backend import Backend
from logstore.client.producer.producer import Producer
from logstore.errors import DiskFullError, PartitionPoisonedError
from logstore.types import OffsetRange, RecordMetadata
from tests.client.fake_backend import FakeBackend
from tests.client.records import values_of


def test_one_is_awaited_and_many_are_gathered(backend: Backend) -> None:
    async def send(producer: Producer[bytes, bytes]) -> list[RecordMetadata]:
        first = await producer.send("events", b"0")  # sent at once, although the batch would linger
        return [first, *await asyncio.gather(*[producer.send("events", b"%d" % n) for n in range(1, 20)])]

    with Producer(backend, linger_ms=60_000) as producer:
        found = asyncio.run(send(producer))
    assert [metadata.offset for metadata in found] == list(range(20))
    assert values_of(backend, "events") == [b"%d" % number for number in range(20)]


def test_a_group_is_awaited_as_ranges(backend: Backend) -> None:
    async def send(producer: Producer[bytes, bytes]) -> list[OffsetRange]:
        group = producer.send_many("flights", [(b"%d" % number, b"v") for number in range(500)])
        found = await group
        assert await group == found  # again, and at once
        return found

    with Producer(backend, linger_ms=60_000, batch_bytes=1000) as producer:
        found = asyncio.run(send(producer))
    assert sum(row.end_exclusive - row.start for row in found) == 500


def test_the_loop_goes_on_meanwhile(fake: FakeBackend) -> None:
    fake.gate.clear()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while ticks < 50:
            ticks += 1
            await asyncio.sleep(0)
        fake.gate.set()

    async def both(producer: Producer[bytes, bytes]) -> None:
        ticking = asyncio.create_task(tick())
        assert (await producer.send("events", b"v")).offset == 0
        await ticking

    with Producer(fake) as producer:
        asyncio.run(asyncio.wait_for(both(producer), 30))
    assert ticks == 50


def test_a_task_that_is_cancelled_loses_nothing(fake: FakeBackend) -> None:
    fake.gate.clear()

    async def give_up(producer: Producer[bytes, bytes]) -> None:
        delivery = producer.send("events", b"v")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.01)
        assert not delivery.done()
        fake.gate.set()
        assert (await delivery).offset == 0  # the same one, by another task

    with Producer(fake) as producer:
        asyncio.run(give_up(producer))
        assert producer.send("events", b"w").result(60).offset == 1
    assert values_of(fake, "events") == [b"v", b"w"]


def test_a_loop_that_ends_first_loses_nothing(fake: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    fake.gate.clear()

    async def start(producer: Producer[bytes, bytes]) -> None:
        waiting = asyncio.ensure_future(producer.send("events", b"v"))
        await asyncio.sleep(0)
        waiting.cancel()

    with Producer(fake) as producer:
        asyncio.run(start(producer))
        fake.gate.set()
        producer.flush(60)
    assert values_of(fake, "events") == [b"v"]
    assert not caplog.records


def test_a_failure_is_raised_where_it_is_awaited_and_nowhere_else(fake: FakeBackend) -> None:
    fake.faults.append(PartitionPoisonedError("the disk failed"))

    async def fail(producer: Producer[bytes, bytes]) -> None:
        with pytest.raises(PartitionPoisonedError, match="the disk failed"):
            await producer.send("events", b"v")

    with Producer(fake) as producer:
        asyncio.run(fail(producer))  # told: closing raises nothing


def test_a_failure_that_no_task_waits_for_any_more_is_told_at_the_end(fake: FakeBackend) -> None:
    fake.gate.clear()
    fake.faults.append(PartitionPoisonedError("the disk failed"))

    async def give_up(producer: Producer[bytes, bytes]) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send("events", b"v"), 0.01)

    producer = Producer(fake)
    asyncio.run(give_up(producer))
    fake.gate.set()
    with pytest.raises(PartitionPoisonedError, match="the disk failed"):
        producer.close()


def test_an_error_that_passes_is_waited_out(fake: FakeBackend) -> None:
    fake.faults.append(DiskFullError("full"))

    async def send(producer: Producer[bytes, bytes]) -> int:
        return (await producer.send("events", b"v")).offset

    with Producer(fake) as producer:
        assert asyncio.run(send(producer)) == 0


def test_outside_of_a_loop_it_says_so(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=60_000) as producer:
        delivery = producer.send("events", b"v")
        with pytest.raises(RuntimeError, match="no running event loop"):
            next(iter(delivery.__await__()))
        assert delivery.result(60).offset == 0


def test_the_library_does_not_import_asyncio() -> None:
    program = (
        "import sys, logstore\n"
        "with logstore.open(':memory:') as store:\n"
        "    store.create_topic('t')\n"
        "    with store.producer() as producer: producer.send('t', b'v').result(5)\n"
        "sys.exit('asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
    assert logstore.Delivery.__await__
