"""A thread that steps when it asked to, or is woken; complaints that are made once."""

from __future__ import annotations

import logging
import threading

import pytest

from logstore.errors import StorageError, StoreClosedError
from logstore.seams.step_thread import Complaints, StepThread


def test_it_steps_when_started_when_woken_and_when_it_asked() -> None:
    steps: list[float | None] = []
    stepped = threading.Semaphore(0)
    waits = iter([None, 0.001, None, None])

    def step() -> float | None:
        steps.append(next(waits))
        stepped.release()
        return steps[-1]

    thread = StepThread("steps", step, enabled=True)
    thread.start()
    assert stepped.acquire(timeout=60)
    thread.wake()
    assert stepped.acquire(timeout=60)
    assert stepped.acquire(timeout=60), "it asked to be called after a millisecond"
    thread.close()
    thread.start()
    assert len(steps) == 3, "after its end it steps no more"


def test_without_a_thread_nothing_steps() -> None:
    thread = StepThread("none", lambda: pytest.fail("it stepped"), enabled=False)
    thread.start()
    thread.close()


def test_a_closed_store_ends_it_and_it_may_close_itself() -> None:
    ended = threading.Event()

    def step() -> float | None:
        thread.close()
        ended.set()
        raise StoreClosedError("closed")

    thread = StepThread("closes", step, enabled=True)
    thread.start()
    assert ended.wait(60)
    thread.close()


def test_a_complaint_is_made_once_for_each_kind_and_place(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints(logging.getLogger("logstore.test"), "looking after")
    for what, why in (("a", "x"), ("a", "x"), ("b", "x"), ("a", "y")):
        complaints.tell(what, StorageError(why))
    assert len(caplog.records) == 3
    assert caplog.records[0].getMessage().startswith("looking after a failed: x")
