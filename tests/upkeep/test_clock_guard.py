"""Wall time is believed only while it goes with monotonic time, over the processes of one boot."""

from __future__ import annotations

import logging

import pytest

from logstore.directory.maintenance_note import note_path
from logstore.seams.clock import ManualClock
from logstore.seams.faults import FaultKind
from logstore.seams.fs import replace_file
from logstore.upkeep.clock_guard import ClockGuard
from tests.upkeep.test_cleaner import Desk


class Machine:
    """A store's folder and a clock; each guard is another process's."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.clock: ManualClock = self.desk.clock

    def guard(self) -> ClockGuard:
        return ClockGuard(self.desk.open()._context)


def test_the_first_look_waits_and_steady_time_goes_on() -> None:
    machine = Machine()
    guard = machine.guard()
    assert not guard.steady()
    machine.clock.advance(500)
    assert not guard.steady(), "two looks at one moment are one"
    machine.clock.advance(30_000)
    assert guard.steady()
    machine.clock.advance(30_000)
    machine.clock.jump_wall(500)
    assert guard.steady(), "a clock that is slewed is no clock that jumped"
    assert guard.jump_ms == 0


def test_the_first_look_goes_back_to_when_the_store_was_opened() -> None:
    machine = Machine()
    guard = machine.guard()
    machine.clock.advance(5000)
    assert guard.steady()


def test_a_jump_before_the_first_look_is_seen() -> None:
    machine = Machine()
    guard = machine.guard()
    machine.clock.advance(5000)
    machine.clock.jump_wall(10_000_000)
    assert not guard.steady()
    assert guard.jump_ms == 10_000_000
    machine.clock.jump_wall(-10_000_000)
    assert guard.steady()


@pytest.mark.parametrize("jump_ms", [10_000_000, -10_000_000])
def test_a_jump_holds_until_the_clock_is_back(jump_ms: int) -> None:
    machine = Machine()
    guard = machine.guard()
    guard.steady()
    machine.clock.advance(30_000)
    machine.clock.jump_wall(jump_ms)
    assert not guard.steady()
    assert guard.jump_ms == jump_ms
    machine.clock.advance(30_000)
    assert not guard.steady(), "steady again, but still in the wrong place"
    machine.clock.jump_wall(-jump_ms)
    assert guard.steady()
    assert guard.jump_ms == 0


def test_a_later_process_goes_on_from_what_an_earlier_one_saw() -> None:
    machine = Machine()
    assert not machine.guard().steady()
    machine.clock.advance(5000)
    assert machine.guard().steady()
    machine.clock.advance(86_400_000)
    assert machine.guard().steady()


def test_a_clock_set_between_two_processes_costs_a_pass(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.guard().steady()
    machine.clock.advance(5000)
    machine.clock.jump_wall(10**10)
    with caplog.at_level(logging.WARNING):
        assert not machine.guard().steady()
    assert "waits for a pass" in caplog.text
    machine.clock.advance(5000)
    assert machine.guard().steady()


def test_nothing_is_known_across_a_restart_of_the_machine_or_of_a_damaged_note() -> None:
    machine = Machine()
    machine.guard().steady()
    machine.clock.advance(5000)
    machine.clock.reboot("another")
    assert not machine.guard().steady()
    machine.clock.advance(5000)
    replace_file(machine.desk.fs, note_path("/s"), b"{}")
    assert not machine.guard().steady()
    machine.clock.advance(5000)
    assert machine.guard().steady()


def test_a_note_that_cannot_be_written_costs_the_next_process_a_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    guard = machine.guard()
    machine.desk.fs.faults.on("create", FaultKind.ENOSPC, path_ends="note.tmp")
    with caplog.at_level(logging.WARNING):
        assert not guard.steady()
    assert "wait a pass" in caplog.text
    machine.clock.advance(5000)
    assert guard.steady()
    assert not machine.guard().steady()
