"""Who holds a store's locks, seen without taking any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logstore.errors import ForkedStoreError, ReadOnlyStoreError, StorageError, StoreClosedError
from logstore.ownership.lock_mechanism import RangeLocks, WholeFileLocks
from logstore.ownership.lock_view import LockView
from logstore.ownership.locks import FileLocks


@pytest.mark.parametrize("mechanism", [RangeLocks, WholeFileLocks])
def test_the_holder_is_seen(tmp_path: Path, mechanism: type[RangeLocks] | type[WholeFileLocks]) -> None:
    path = str(tmp_path / "locks")
    locks = FileLocks(path, mechanism=mechanism)

    def look(path: str) -> RangeLocks | WholeFileLocks:
        return RangeLocks(path, 0, writable=False) if mechanism is RangeLocks else WholeFileLocks(path, 0)

    view = LockView(path, mechanism=look)
    assert view.holder(3) is None
    locks.acquire(3, 0, "slot 3")
    found = view.holder(3)
    assert found is not None
    assert found.pid == os.getpid()
    assert view.holder(4) is None
    assert not view.held(3)
    locks.release(3)
    assert view.holder(3) is None
    locks.close()


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    view = LockView(str(tmp_path / "none" / "locks"))
    assert view.holder(0) is None
    assert list(tmp_path.iterdir()) == []


def test_a_view_takes_nothing(tmp_path: Path) -> None:
    view = LockView(str(tmp_path / "locks"))
    with pytest.raises(ReadOnlyStoreError, match="topic 't' cannot be locked"):
        view.acquire(1, 0, "topic 't'")
    with pytest.raises(ReadOnlyStoreError):
        view.try_acquire(1)
    with pytest.raises(ReadOnlyStoreError):
        view.release(1)


def test_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "locks")
    with pytest.raises(StorageError, match="no regular file"):
        LockView(str(tmp_path / "locks")).holder(0)


def test_closed_and_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = LockView(str(tmp_path / "locks"))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert view.forked
    with pytest.raises(ForkedStoreError):
        view.holder(0)
    monkeypatch.undo()
    view.abandon()
    with pytest.raises(StoreClosedError):
        view.holder(0)
