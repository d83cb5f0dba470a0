"""Looks at what nobody tells of: so often, and so long."""

from __future__ import annotations

from logstore.seams.clock import ManualClock
from rpc.polling import Polling


def test_looks_until_the_time_is_over() -> None:
    clock, pauses = ManualClock(), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(round(seconds * 1000))

    polling = Polling(0.5, 1.25, now_s=clock.monotonic_s, sleep=sleep)
    assert polling.left_s == 1.25
    assert [polling.again() for _ in range(5)] == [True, True, True, False, False]
    assert pauses == [0.5, 0.5, 0.25]
    assert polling.left_s == 0


def test_looks_as_long_as_the_caller_wants() -> None:
    clock = ManualClock()
    polling = Polling(0.5, now_s=clock.monotonic_s, sleep=lambda seconds: clock.advance(10**9))
    assert all(polling.again() for _ in range(5))
