"""Wall time is believed only while it goes with monotonic time."""

from __future__ import annotations

from logstore.upkeep.clock_guard import ClockGuard


def test_the_first_look_waits_and_steady_time_goes_on() -> None:
    guard = ClockGuard()
    assert not guard.steady(1000, 5.0)
    assert guard.steady(31_000, 35.0)
    assert guard.steady(61_500, 65.0), "a clock that is slewed is no clock that jumped"
    assert guard.jump_ms == 0


def test_a_jump_holds_until_the_clock_is_back() -> None:
    guard = ClockGuard()
    guard.steady(0, 0.0)
    assert not guard.steady(10_000_000, 30.0)
    assert guard.jump_ms == 10_000_000 - 30_000
    assert not guard.steady(10_030_000, 60.0), "steady again, but still in the wrong place"
    assert guard.steady(90_000, 90.0)
    assert guard.jump_ms == 0


def test_a_step_back_is_a_jump_too() -> None:
    guard = ClockGuard()
    guard.steady(10_000_000, 0.0)
    assert not guard.steady(0, 30.0)
