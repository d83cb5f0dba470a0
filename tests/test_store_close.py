"""Closing a store ends what it lent, whichever thread that belongs to."""

from __future__ import annotations

import threading

import logstore
from logstore.errors import ClientClosedError, LogStoreError, StoreClosedError


def test_a_consumer_waiting_in_its_own_thread_ends_and_frees_its_group(tmp_path: object) -> None:
    path = f"{tmp_path}/store"
    store = logstore.open(path)
    store.create_topic("t")
    polling = threading.Event()
    ended: list[LogStoreError] = []

    def wait_for_records() -> None:
        consumer = store.consumer("t", group="g")
        polling.set()
        try:
            while True:
                consumer.poll(timeout_s=600)
        except LogStoreError as error:
            ended.append(error)

    thread = threading.Thread(target=wait_for_records)
    thread.start()
    assert polling.wait(60)
    store.close()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(ended[0], StoreClosedError | ClientClosedError)
    with logstore.open(path) as again, again.consumer("t", group="g", until_end=True) as consumer:
        assert consumer.poll() == []


def test_the_housekeeper_of_a_retained_topic_ends_without_a_word(tmp_path: object) -> None:
    """Its thread looks for topics at any moment of the closing; what it raised would fail this test."""
    for number in range(20):
        with logstore.open(f"{tmp_path}/{number}") as store:
            store.create_topic("t", config={"retention.bytes": "60000"})
