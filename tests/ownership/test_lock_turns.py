"""Turns: a holder that comes back at once cannot keep another process out, here in memory and in real files."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path

import pytest

from logstore.errors import TopicLockedError
from logstore.ownership.lock_mechanism import LockMechanism, WholeFileLocks, choose_mechanism
from logstore.ownership.locks import FileLocks, LockTable, MemoryLocks
from logstore.seams.clock import ManualClock


def test_whoever_has_the_turn_is_next_although_the_holder_comes_back() -> None:
    clock, table = ManualClock(), LockTable()
    holder = MemoryLocks(table, clock=clock, sleep=lambda s: clock.advance(1))
    taken: list[str] = []

    def holder_returns(seconds: float) -> None:
        clock.advance(1)
        if holder.held(3):
            holder.release(3)
            with pytest.raises(TopicLockedError, match="waited"):
                holder.acquire_in_turn(3, 0.005, "the slot")  # at once, but it is the other's turn
            taken.append("refused")

    waiter = MemoryLocks(table, clock=clock, sleep=holder_returns)
    holder.acquire_in_turn(3, 0, "the slot")
    waiter.acquire_in_turn(3, 1, "the slot")
    assert waiter.held(3)
    assert taken == ["refused"]
    waiter.release(3)
    holder.acquire_in_turn(3, 0, "the slot")  # and the turn is over


def test_a_turn_that_times_out_is_given_up() -> None:
    clock, table = ManualClock(), LockTable()
    first, second = (MemoryLocks(table, clock=clock, sleep=lambda s: clock.advance(1)) for _ in range(2))
    first.acquire_in_turn(3, 0, "the slot")
    with pytest.raises(TopicLockedError, match="the slot is locked by pid"):
        second.acquire_in_turn(3, 0.01, "the slot")
    first.release(3)
    first.acquire_in_turn(3, 0, "the slot")


@pytest.mark.parametrize("mechanism", [choose_mechanism, WholeFileLocks])
def test_two_processes_that_are_always_busy_alternate(tmp_path: Path, mechanism: type[LockMechanism]) -> None:
    path = str(tmp_path / "locks")
    counts = [0, 0]
    overtaken: list[
        int
    ] = []  # how often the other had it while one waited; a thread that is held up may see many
    until = time.monotonic() + 60
    enough, both = threading.Event(), threading.Barrier(2)

    def work(number: int) -> None:
        locks = FileLocks(path, mechanism=mechanism)
        both.wait(60)
        while not enough.is_set() and time.monotonic() < until:
            before = counts[1 - number]
            locks.acquire_in_turn(1, 60, "the slot")
            overtaken.append(counts[1 - number] - before)
            counts[number] += 1
            time.sleep(0.0002)  # what a write holds it for
            locks.release(1)
            if min(counts) >= 30:
                enough.set()
        locks.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert min(counts) >= 30
    assert statistics.median(overtaken) <= 2
