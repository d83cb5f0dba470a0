"""Stores that their callers drop: reported, closed in order, and not before the last that uses them is gone."""

from __future__ import annotations

import gc
import logging
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logstore

PATIENCE_S = 60.0


def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    turn = threading.Event()
    while not met():
        assert time.monotonic() < deadline
        turn.wait(0.01)


@pytest.fixture(autouse=True)
def collected() -> None:
    """What other tests left to the collector does not go, and warn, in the middle of these."""
    gc.collect()


def drop(held: list[Any]) -> None:
    """Close clients, which would warn for themselves, and let all of it be collected."""
    for user in held:
        if not isinstance(user, logstore.LogStore) and hasattr(user, "close"):
            user.close()
    user = None
    held.clear()
    gc.collect()


def test_a_dropped_store_warns_with_its_path_and_is_closed_in_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "store")
    before = set(threading.enumerate())
    store = logstore.open(path)
    store.create_topic("t", config={"retention.bytes": "60000000"})
    store.partition("t", 0).append([(None, b"a")], acks=1)
    context, stores = store._context, [store]
    del store
    mine = [thread for thread in threading.enumerate() if thread not in before]
    assert mine
    with (
        caplog.at_level(logging.WARNING),
        pytest.warns(ResourceWarning, match=r"dropped without close\(\)") as told,
    ):
        drop(stores)
    assert [path in str(one.message) for one in told].count(True) == 1
    assert path in caplog.text
    until(lambda: context.closed and not any(thread.is_alive() for thread in mine))
    with logstore.open(path, lock_timeout_s=PATIENCE_S) as again:
        again.partition("t", 0).append([(None, b"b")])
        assert [record.value for record in again.partition("t", 0).records(0)] == [b"a", b"b"]
        assert again.recovery_report == ()


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.producer(),
        lambda store: store.consumer("t"),
        lambda store: store.consumer("t", group="g"),
        lambda store: store.partition("t", 0),
        lambda store: store.partition("t", 0).records(0),
        lambda store: store.topic("t"),
        lambda store: store.admin,
    ],
    ids=["producer", "consumer", "member", "partition", "records", "topic", "admin"],
)
def test_what_uses_a_store_keeps_it(tmp_path: Path, use: Callable[[Any], Any]) -> None:
    path = str(tmp_path / "store")
    store = logstore.open(path)
    store.create_topic("t")
    store.partition("t", 0).append([(None, b"a")])
    context, users = store._context, [use(store)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del store
        gc.collect()
    assert not context.closed
    with pytest.warns(ResourceWarning, match="dropped"):
        drop(users)
    until(lambda: context.closed)


def test_stores_that_were_ended_or_hold_nothing_that_others_wait_for_do_not_warn(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    closed, abandoned = logstore.open(path), logstore.open(f"{path}2")
    closed.create_topic("t")
    closed.close()
    abandoned.abandon()
    reading, memory = logstore.open(path, mode="r"), logstore.open(":memory:")
    contexts = [reading._context, memory._context]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del closed, abandoned, reading, memory
        gc.collect()
    until(lambda: all(context.closed for context in contexts))
