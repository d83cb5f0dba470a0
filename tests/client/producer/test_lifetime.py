"""Producers and consumers that nobody closes, and those that a fork copies."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.client.consumer.consumer import Consumer
from logstore.client.producer.producer import Producer
from logstore.errors import ForkedStoreError
from tests.client.fake_backend import FakeBackend
from tests.client.records import until, values_of


def test_a_dropped_producer_is_reported_and_sends_all_the_same(
    fake: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    producer: Producer[bytes, bytes] = Producer(fake, linger_ms=60_000)
    producer.send("events", b"held")
    with pytest.warns(ResourceWarning, match="dropped without close"):
        del producer
    assert "dropped without close" in caplog.text
    until(lambda: values_of(fake, "events") == [b"held"], "the thread sends what the producer held")


def test_a_dropped_producer_that_holds_nothing_is_no_news(fake: FakeBackend) -> None:
    producer: Producer[bytes, bytes] = Producer(fake)
    delivery = producer.send("events", b"v")
    delivery.result(60)
    del producer
    assert delivery.result(0).offset == 0


def test_a_delivery_outlives_its_producer(fake: FakeBackend) -> None:
    producer: Producer[bytes, bytes] = Producer(fake, linger_ms=60_000)
    delivery = producer.send("events", b"held")
    with pytest.warns(ResourceWarning):
        del producer
    assert delivery.result(60).offset == 0


def test_a_dropped_group_consumer_is_reported(fake: FakeBackend) -> None:
    consumer: Consumer[bytes, bytes] = Consumer(fake, "events", group="g")
    with pytest.warns(ResourceWarning, match="group 'g'"):
        del consumer


def test_an_interpreter_that_ends_flushes_and_says_so(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, logstore
        store = logstore.open(sys.argv[1])
        store.create_topic("t")
        producer = store.producer(linger_ms=60_000)
        producer.send("t", b"held")
        """
    )
    path = str(tmp_path / "data")
    run = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", script, path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "not closed before the interpreter's end" in run.stderr
    with logstore.open(path) as store:
        assert values_of(store.backend, "t") == [b"held"]


def in_child(call: Callable[[], object]) -> str:
    """What ``call`` raises in a forked child, by name."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = b"nothing"
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - nothing may leave the child
            told = type(error).__name__.encode()
        os.write(writer, told)
        os._exit(0)
    os.close(writer)
    told = os.read(reader, 100)
    os.close(reader)
    os.waitpid(pid, 0)
    return told.decode()


def test_a_forked_childs_producer_refuses_and_the_parents_goes_on(fake: FakeBackend) -> None:
    with Producer(fake, linger_ms=60_000) as producer:
        delivery = producer.send("events", b"parent's")
        with producer._lock:  # as if another thread were inside at the fork
            assert in_child(lambda: producer.send("events", b"child's")) == ForkedStoreError.__name__
        calls: list[Callable[[], object]] = [
            lambda: producer.send_many("events", [(None, b"child's")]),
            producer.flush,
            lambda: delivery.result(),
        ]
        for call in calls:
            assert in_child(call) == ForkedStoreError.__name__
        assert in_child(producer.close) == "nothing"
        assert delivery.result(60).offset == 0
    assert values_of(fake, "events") == [b"parent's"]


def test_a_forked_childs_consumer_refuses(fake: FakeBackend) -> None:
    with Consumer(fake, "events", group="g") as consumer:
        consumer.poll(timeout_s=0)
        assert in_child(lambda: consumer.poll(timeout_s=0)) == ForkedStoreError.__name__
        assert in_child(consumer.close) == "nothing"
        assert consumer.poll(timeout_s=0) == []
