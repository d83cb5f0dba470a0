"""``SyncChoice``: together, but where that took far longer than one by one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.seams import file_syncs
from logstore.seams.file_syncs import FileSyncs
from logstore.seams.sync_choice import SyncChoice

SLOW_S = 30.0


def apart_for(choice: SyncChoice) -> int:
    """How many calls go one by one from now on."""
    count = 0
    while not choice.together(100):
        choice.took_apart(100, 0.1)
        count += 1
    return count


def test_many_files_go_together_and_one_goes_alone() -> None:
    choice = SyncChoice()
    assert choice.together(2)
    assert not choice.together(1)
    assert not choice.together(0)


def test_what_was_slow_is_left_for_longer_each_time_and_tried_again() -> None:
    choice = SyncChoice()
    pauses = []
    for _ in range(8):
        choice.took_together(100, SLOW_S)
        pauses.append(apart_for(choice))
    assert pauses == [1, 2, 4, 8, 16, 32, 32, 32]
    choice.took_together(100, 0.01)
    assert apart_for(choice) == 0
    choice.took_together(100, SLOW_S)
    assert apart_for(choice) == 1


def test_slow_is_measured_by_what_the_files_would_take() -> None:
    choice = SyncChoice()
    for _ in range(100):
        choice.took_apart(1, 0.1)  # a slow disk
    choice.took_together(100, 30.0)
    assert choice.together(100)
    choice.took_together(100, 50.0)
    assert not choice.together(100)


def test_a_moment_is_never_slow() -> None:
    choice = SyncChoice()
    for _ in range(100):
        choice.took_apart(1, 0.00001)
    choice.took_together(2, 0.2)
    assert choice.together(2)


def test_the_calls_are_chosen_by_what_they_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    times: Iterator[float] = iter([0.0, SLOW_S, SLOW_S, SLOW_S + 0.001, 40.0, 40.001])

    def together(*of: object) -> None:
        del of
        calls.append("together")

    def alone(fd: int) -> None:
        del fd
        calls.append("alone")

    monkeypatch.setattr(file_syncs, "_CALLS", object())
    monkeypatch.setattr(file_syncs, "_sync_together", together)
    monkeypatch.setattr(file_syncs, "sync_descriptor", alone)
    syncs = FileSyncs(lambda: next(times))
    fds = [os.open(tmp_path / name, os.O_CREAT | os.O_RDWR) for name in ("a", "b")]
    try:
        for _ in range(3):
            syncs.sync([(fd, "") for fd in fds])
    finally:
        for fd in fds:
            os.close(fd)
    assert calls == ["together", "alone", "alone", "together"]
