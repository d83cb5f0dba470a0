"""What runs beside a test ends with its block, and what it raised is told there."""

from __future__ import annotations

import threading

import pytest

from tests.beside import Beside


def test_works_are_stopped_at_the_end_of_the_block() -> None:
    over = threading.Event()
    with Beside(over.wait, over.wait, stop=over.set) as beside:
        assert beside.is_alive
    assert not beside.is_alive


def test_works_that_end_by_themselves_are_waited_for() -> None:
    done: list[int] = []
    Beside(lambda: done.append(1), lambda: done.append(2)).run()
    assert sorted(done) == [1, 2]


def fails() -> None:
    raise OSError("the load met this")


def test_what_a_work_raises_is_raised_at_the_end() -> None:
    with pytest.raises(OSError, match="the load met this"), Beside(fails):
        pass


def test_further_failures_are_noted() -> None:
    with pytest.raises(OSError, match="the load met this") as caught, Beside(fails, fails):
        pass
    assert "the load met this" in caught.value.__notes__[0]


def test_a_failed_test_stops_what_ran_beside_it_and_tells_what_that_met() -> None:
    over = threading.Event()
    beside = Beside(over.wait, fails, stop=over.set)
    with pytest.raises(AssertionError, match="the test's own") as caught, beside:
        raise AssertionError("the test's own")
    assert not beside.is_alive
    assert "the load met this" in caught.value.__notes__[0]


def test_a_work_that_does_not_end_is_an_error() -> None:
    over = threading.Event()
    beside = Beside(over.wait, stop=over.set)
    beside.start()
    with pytest.raises(AssertionError, match="has not ended within 0 s"):
        beside.join(0)
    beside.end()
