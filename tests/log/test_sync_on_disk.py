"""A sync of a log whose file is the operating system's own: the same through the compiled path and through Python's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from logstore.errors import OutcomeUnknownError, PartitionPoisonedError
from logstore.seams.fs import OpenMode, OsFile, OsFileSystem
from tests.house import ROOT
from tests.log.logs import Desk, batch, checked


class _OtherFile(OsFile):
    """A file of another kind than ``OsFile``: it is synced by its method."""

    __slots__ = ()


class _OtherFileSystem(OsFileSystem):
    def open(self, path: str, mode: OpenMode) -> OsFile:
        file = super().open(path, mode)
        return _OtherFile(file._fd, file._path)


@pytest.fixture(params=[OsFileSystem, _OtherFileSystem], ids=["quick", "method"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    made: Any = request.param()
    return Desk(made, folder=str(tmp_path))


def pins(desk: Desk) -> int:
    return sum(entry.pins for entry in desk.pool._entries.values())


def test_a_sync_moves_the_high_watermark_and_lets_the_file_go(desk: Desk) -> None:
    log = desk.open()
    log.append(checked(batch(b"a", b"b")))
    assert (log.flushed_offset, log.high_watermark, log.unsynced_records, pins(desk)) == (0, 0, 2, 1)
    log.sync()
    assert (log.flushed_offset, log.high_watermark, log.unsynced_records, pins(desk)) == (2, 2, 0, 0)
    assert (log.syncs, log._held.file) == (1, None)
    assert desk.published[-1][:2] == (2, 2)
    log.sync()
    assert log.syncs == 1, "nothing was to be synced"


def test_a_replicas_sync_commits_nothing(desk: Desk) -> None:
    log = desk.replica()
    log.append(checked(batch(b"a")), term=1)
    log.sync()
    assert (log.flushed_offset, log.high_watermark) == (1, 0)


@pytest.mark.parametrize("how", ["closed", "pipe"])
def test_a_refused_sync_poisons(desk: Desk, how: str) -> None:
    log = desk.open()
    log.append(checked(batch(b"a")))
    log.sync()
    log.append(checked(batch(b"b")))
    file: Any = log._held.file
    kept = os.dup(file._fd)
    if how == "pipe":
        reading, writing = os.pipe()
        os.dup2(writing, file._fd)  # which no system syncs
        os.close(reading)
        os.close(writing)
    else:
        os.close(file._fd)
    try:
        with pytest.raises(OutcomeUnknownError, match="sync") as caught:
            log.sync()
        assert isinstance(caught.value.__cause__, OSError)
    finally:
        os.dup2(kept, file._fd)
        os.close(kept)
    assert (log.poisoned, log.flushed_offset, log.high_watermark, log.syncs) == (True, 1, 1, 1)
    assert desk.events[-1] == "poison"
    with pytest.raises(OutcomeUnknownError, match="may not be durable"):
        log.sync()
    with pytest.raises(PartitionPoisonedError):
        log.append(checked(batch(b"c")))
    log.close()
    assert not log._sync_lock.locked()
    assert not log._lock.locked()


def test_a_file_that_was_let_go_is_opened_anew(desk: Desk) -> None:
    log = desk.open()
    for number in range(3):
        log.append(checked(batch(b"%d" % number)))
        log.sync()
        desk.pool.forget(desk.folder)
    assert (log.high_watermark, pins(desk)) == (3, 0)
    assert desk.open().log_end_offset == 3


def test_appends_go_on_beside_syncs(desk: Desk) -> None:
    log = desk.open()
    done = threading.Event()
    seen: list[tuple[int, int]] = []

    def look() -> None:
        while not done.is_set():
            high_watermark, flushed = log.high_watermark, log.flushed_offset
            seen.append((high_watermark, flushed))
            log.sync()

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(400):
        log.append(checked(batch(b"v" * 50)))
    done.set()
    for thread in threads:
        thread.join()
    log.sync()
    assert (log.flushed_offset, log.high_watermark, log.unsynced_records, pins(desk)) == (400, 400, 0, 0)
    assert all(high_watermark <= flushed for high_watermark, flushed in seen)
    assert [end for end, _, _ in desk.published] == sorted(end for end, _, _ in desk.published)


def test_a_method_put_in_the_place_of_sync_is_called(tmp_path: Path) -> None:
    """By tools that count calls, or leave the sync out; also before the process has any log."""
    done = subprocess.run(
        [sys.executable, "-c", _COUNTED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "1 1\n", done.stderr


_COUNTED = """
import sys
from logstore.seams.fs import OsFile, OsFileSystem
from tests.house import ROOT
from tests.log.logs import Desk, batch, checked
synced, sync = [], OsFile.sync
OsFile.sync = lambda file: (synced.append(file.path), sync(file))
log = Desk(OsFileSystem(), folder=sys.argv[1]).open()
log.append(checked(batch(b"a")))
before = len(synced)
log.sync()
print(len(synced) - before, log.high_watermark)
"""


def test_signals_do_not_fail_a_sync(desk: Desk) -> None:
    log = desk.open()
    told: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: told.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for number in range(100):
            log.append(checked(batch(b"v")))
            log.sync()
            assert log.flushed_offset == number + 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert told
