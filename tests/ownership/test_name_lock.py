"""Lock files of names: gone with their last holder, swept after a kill, and never a second holder in between."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import logstore
from logstore.errors import ProducerBusyError
from logstore.ownership.lock_mechanism import LockMechanism, RangeLocks, WholeFileLocks
from logstore.ownership.locks import FileLocks
from logstore.ownership.name_lock import sweep
from logstore.seams.clock import SystemClock
from logstore.seams.fs import PRIVATE

MECHANISMS = [pytest.param(RangeLocks, id="ofd"), pytest.param(WholeFileLocks, id="flock")]
NAME = "producer-" + "0" * 32


def _names(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root / ".locks") if name not in ("topics", "members"))


def test_names_leave_no_files_behind(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with logstore.open(root) as store:
        store.create_topic("t")
        with store.producer(name="n") as named, store.producer(transactional_id="id") as copier:
            named.send("t", b"x").result()
            with copier.transaction() as transaction:
                transaction.send("t", b"y")
            assert [name.split("-")[0] for name in _names(root)] == ["producer", "transaction"]
            assert store.admin.list_producers()[0].holder is not None
            with pytest.raises(ProducerBusyError, match="pid"):
                store.producer(name="n")
        assert _names(root) == []
        assert store.admin.list_producers()[0].holder is None
        assert _names(root) == [], "to look at a name makes no file"


def test_what_a_kill_left_is_swept_and_what_is_held_is_not(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with logstore.open(root) as store:
        store.create_topic("t")
        with store.producer(name="held") as named:
            kept = _names(root)
            for number in range(20):
                (root / ".locks" / f"transaction-{number:032x}").write_bytes(b"left")
            (root / ".locks" / "cleaner-readme").write_bytes(b"not ours")
            with logstore.open(root) as other, pytest.raises(ProducerBusyError):
                other.producer(name="held")
            assert _names(root) == ["cleaner-readme", *kept]
            assert named.send("t", b"x").result().offset == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_file_removed_between_open_and_lock_is_made_anew(
    tmp_path: Path, mechanism: type[LockMechanism]
) -> None:
    path = str(tmp_path / NAME)
    first, second = (FileLocks(path, mechanism=mechanism, disposable=True) for _ in range(2))
    assert first.try_acquire(0)
    assert not second.try_acquire(0)
    first.release(0)  # and removes the file that the second has open
    assert second.try_acquire(0)
    third = FileLocks(path, mechanism=mechanism, disposable=True)
    assert not third.try_acquire(0), "the second one's lock is on the file that others find"
    for locks in (third, second, first):
        locks.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_one_holder_at_a_time_beside_sweeps(tmp_path: Path, mechanism: type[LockMechanism]) -> None:
    path = str(tmp_path / NAME)
    inside, most, rounds, failures = 0, 0, [0, 0, 0], []
    done = threading.Event()

    def hold(number: int) -> None:
        nonlocal inside, most
        try:
            while rounds[number] < 40:
                locks = FileLocks(path, mechanism=mechanism, disposable=True)
                if locks.try_acquire(0):
                    inside += 1
                    most = max(most, inside)
                    locks.check(now=True)
                    inside -= 1
                    rounds[number] += 1
                    locks.release(0)
                locks.close()
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            failures.append(error)

    def sweeping() -> None:
        while not done.is_set():
            sweep(str(tmp_path), SystemClock(), PRIVATE)

    holders = [threading.Thread(target=hold, args=(number,)) for number in range(3)]
    sweeper = threading.Thread(target=sweeping)
    for thread in (*holders, sweeper):
        thread.start()
    for thread in holders:
        thread.join(60)
    done.set()
    sweeper.join(60)
    assert not failures
    assert most == 1
    assert rounds == [40, 40, 40]
