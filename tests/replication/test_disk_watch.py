"""Whether a disk takes writes: refused once, probed after growing waits, trusted again."""

from __future__ import annotations

from errno import EIO, ENOSPC

import pytest

from logstore.directory.layout import PROBE_FILE
from logstore.errors import DiskFullError
from logstore.seams.clock import ManualClock
from logstore.seams.memory_fs import MemoryFileSystem
from replication.disk_watch import DiskWatch

PATH = f"/store/{PROBE_FILE}"


class FaultyFileSystem(MemoryFileSystem):
    """``failing``: the number that files cannot be made with, if any."""

    failing: int | None = None
    opened = 0

    def open(self, path, mode, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.opened += 1
        if self.failing is not None:
            raise OSError(self.failing, "as the test has it", path)
        return super().open(path, mode, *args, **kwargs)


@pytest.fixture
def fs() -> FaultyFileSystem:
    made = FaultyFileSystem()
    made.mkdir("/store")
    return made


def test_nothing_is_written_while_the_disk_was_never_refused(fs: FaultyFileSystem) -> None:
    watch = DiskWatch(fs, "/store", ManualClock())
    assert not watch.look()
    assert fs.opened == 0


@pytest.mark.parametrize("number", [ENOSPC, EIO])
def test_the_disk_is_probed_until_it_writes(fs: FaultyFileSystem, number: int) -> None:
    clock = ManualClock()
    watch = DiskWatch(fs, "/store", clock)
    fs.failing = number
    watch.note_refused(DiskFullError("no room"))
    assert watch.look()
    assert fs.opened == 0  # not due yet
    for probes in (1, 2):
        clock.advance(1_000)
        assert watch.look()
        assert fs.opened == probes
    fs.failing = None
    assert watch.look()  # not due yet
    clock.advance(1_000)
    assert not watch.look()
    assert not watch.refuses
    assert PROBE_FILE not in fs.listdir("/store")


def test_a_disk_that_refuses_again_soon_is_waited_for_twice_as_long(fs: FaultyFileSystem) -> None:
    clock = ManualClock()
    watch = DiskWatch(fs, "/store", clock)
    for wait_s in (1, 2, 4, 8, 16, 30, 30):
        watch.note_refused(DiskFullError("no room"))
        clock.advance(wait_s * 1_000 - 1)
        assert watch.look()
        clock.advance(1)
        assert not watch.look()
    clock.advance(60_000)
    watch.note_refused(DiskFullError("no room"))
    clock.advance(1_000)
    assert not watch.look()


def test_a_probe_that_a_killed_node_left_is_replaced(fs: FaultyFileSystem) -> None:
    clock = ManualClock()
    fs.open(PATH, "create").close()
    watch = DiskWatch(fs, "/store", clock)
    watch.note_refused(DiskFullError("no room"))
    clock.advance(1_000)
    assert not watch.look()
    assert PROBE_FILE not in fs.listdir("/store")
