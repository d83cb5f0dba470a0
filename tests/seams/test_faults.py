"""Planned faults fire where they were planned and nowhere else."""

from __future__ import annotations

import errno

import pytest

from logstore.seams.faults import FaultKind, Faults, SimulatedCrash
from logstore.seams.fs import read_file, write_all
from logstore.seams.memory_fs import MemoryFileSystem


def test_the_planned_call_fails_and_no_other() -> None:
    fs = MemoryFileSystem()
    fs.faults.at(2, FaultKind.EIO)
    fs.mkdir("/1")
    with pytest.raises(OSError, match="Input/output error"):
        fs.mkdir("/2")
    fs.mkdir("/3")
    assert fs.listdir("/") == ["1", "3"]
    assert (fs.faults.calls, fs.faults.fired) == (4, 1)


def test_for_ever_until_cleared() -> None:
    fs = MemoryFileSystem()
    fs.faults.at(1, FaultKind.ENOSPC, forever=True)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            fs.mkdir("/d")
    fs.faults.clear()
    fs.mkdir("/d")
    assert fs.faults.fired == 3


def test_calls_that_take_no_space_do_not_get_enospc() -> None:
    fs = MemoryFileSystem()
    fs.faults.at(1, FaultKind.ENOSPC, forever=True)
    assert fs.listdir("/") == []
    assert fs.faults.fired == 0


@pytest.mark.parametrize("call", [0, -1])
def test_calls_are_counted_from_one(call: int) -> None:
    with pytest.raises(ValueError, match="from 1"):
        Faults().at(call, FaultKind.EIO)


def test_a_short_write_then_no_space_once() -> None:
    fs = MemoryFileSystem()
    file = fs.open("/a", "create")
    fs.faults.on("pwritev", FaultKind.SHORT_WRITE)
    with pytest.raises(OSError, match="No space left") as refused:
        write_all(file, [b"12345678"], 0)
    assert refused.value.errno == errno.ENOSPC
    assert file.pread(10, 0) == b"1234"
    assert write_all(file, [b"12345678"], 0) == 8


def test_a_short_write_then_no_space_for_ever() -> None:
    fs = MemoryFileSystem()
    file = fs.open("/a", "create")
    fs.faults.at(2, FaultKind.SHORT_WRITE, forever=True)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            write_all(file, [b"12345678"], 0)
    assert file.size() == 4


def test_named_faults_pick_the_call_by_name_and_path() -> None:
    fs = MemoryFileSystem()
    log, index = fs.open("/0.log", "create"), fs.open("/0.index", "create")
    fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log", skip=1)
    index.sync()
    log.sync()
    index.sync()
    with pytest.raises(OSError, match=r"0\.log"):
        log.sync()
    log.sync()


def test_a_crash_is_no_ordinary_exception_and_lasts() -> None:
    fs = MemoryFileSystem()
    file = fs.open("/a", "create")
    fs.faults.at(2, FaultKind.CRASH)
    assert not issubclass(SimulatedCrash, Exception)
    with pytest.raises(SimulatedCrash):
        file.pwritev([b"x"], 0)
    for call in (lambda: file.pread(1, 0), file.sync, lambda: fs.listdir("/")):
        with pytest.raises(SimulatedCrash):
            call()
    assert fs.faults.fired == 1
    assert read_file(fs.process_crash(), "/a") == b""


def test_a_kill_amid_a_write_leaves_its_first_half() -> None:
    fs = MemoryFileSystem()
    file = fs.open("/a", "create")
    fs.faults.at(2, FaultKind.CRASH_AMID)
    with pytest.raises(SimulatedCrash):
        file.pwritev([b"1234", b"5678"], 0)
    assert read_file(fs.process_crash(), "/a") == b"1234"


def test_every_call_can_fail_and_is_named_in_the_trace() -> None:
    def run(fs: MemoryFileSystem) -> None:
        fs.mkdir("/d")
        file = fs.open("/d/a", "create")
        file.pwritev([b"ab"], 0)
        file.truncate(1)
        file.sync()
        file.size()
        file.pread(1, 0)
        file.map()
        file.close()
        fs.open("/d/a", "r").close()
        fs.link("/d/a", "/d/b")
        fs.rename("/d/b", "/d/c")
        fs.sync_dir("/d")
        fs.stat("/d/c")
        fs.remove("/d/c")
        fs.remove("/d/a")
        fs.rmdir("/d")
        fs.listdir("/")

    clean = MemoryFileSystem(trace=True)
    run(clean)
    names = " ".join(operation.name for operation in clean.faults.trace)
    assert names == (
        "mkdir create pwritev truncate sync size pread map open link rename sync_dir stat remove remove rmdir"
        " listdir"
    )
    assert str(clean.faults.trace[2]) == "3 pwritev /d/a @0+2 crc=9e83486d"
    again = MemoryFileSystem(trace=True)
    run(again)
    assert again.faults.trace == clean.faults.trace
    for call in range(1, clean.faults.calls + 1):
        fs = MemoryFileSystem()
        fs.faults.at(call, FaultKind.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            run(fs)
        assert fs.faults.fired == 1


def test_an_observer_sees_each_call_before_it_happens() -> None:
    fs = MemoryFileSystem()
    seen: list[tuple[str, list[str]]] = []
    fs.faults.observer = lambda operation: seen.append((operation.name, fs.clone().listdir("/")))
    fs.mkdir("/d")
    fs.rmdir("/d")
    assert seen == [("mkdir", []), ("rmdir", ["d"])]
