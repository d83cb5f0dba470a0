"""Clocks: the system's and the one moved by hand."""

from __future__ import annotations

import builtins
import time
from typing import Any

import pytest

from logstore.seams.clock import ManualClock, SystemClock


def test_system_clock_tells_wall_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    told = SystemClock().wall_ms()
    assert before <= told <= time.time_ns() // 1_000_000


def test_system_clock_monotonic_time_does_not_go_back() -> None:
    clock = SystemClock()
    told = [clock.monotonic_s() for _ in range(100)]
    assert told == sorted(told)


def test_boot_id_is_the_same_for_every_clock_of_one_boot() -> None:
    clock = SystemClock()
    assert clock.boot_id() == clock.boot_id() == SystemClock().boot_id() != ""


def test_boot_id_falls_back_to_the_boot_time_where_the_kernel_tells_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str, *_arguments: Any, **_settings: Any) -> None:
        raise FileNotFoundError(2, "no such file", path)

    monkeypatch.setattr(builtins, "open", refuse)
    assert SystemClock().boot_id().startswith("boottime-")


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(wall_ms=1_000)
    assert (clock.wall_ms(), clock.monotonic_s()) == (1_000, 0.0)
    clock.advance(1_500)
    assert (clock.wall_ms(), clock.monotonic_s()) == (2_500, 1.5)


def test_manual_clock_jump_leaves_monotonic_time_alone() -> None:
    clock = ManualClock(wall_ms=1_000)
    clock.jump_wall(-400)
    assert (clock.wall_ms(), clock.monotonic_s()) == (600, 0.0)


def test_manual_clock_reboot_changes_the_boot_id() -> None:
    clock = ManualClock(boot_id="first")
    clock.reboot("second")
    assert clock.boot_id() == "second"
