"""The thread of one client: calls in order, and an end of its own."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from logstore.aio.client_thread import ClientThread
from logstore.errors import ClientClosedError

PATIENCE_S = 60.0


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def until_gone(name: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while (found := named(name)) and time.monotonic() < deadline_s:
        found[0].join(0.05)
    assert named(name) == []


def test_calls_are_made_in_their_order_and_none_after_the_end() -> None:
    thread = ClientThread("ordered")
    seen: list[int] = []
    futures = [thread.submit(lambda number=number: seen.append(number)) for number in range(100)]
    thread.close()
    for future in futures:
        future.result(PATIENCE_S)
    assert seen == list(range(100))
    with pytest.raises(ClientClosedError):
        thread.submit(lambda: None)
    until_gone("ordered")


def test_one_that_is_dropped_ends_behind_its_calls() -> None:
    thread = ClientThread("dropped")
    future = thread.submit(lambda: 7)
    assert named("dropped")
    del thread
    gc.collect()
    assert future.result(PATIENCE_S) == 7
    until_gone("dropped")
