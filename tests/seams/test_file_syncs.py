"""``file_syncs``: many files made durable by one call of the file system."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from logstore.seams import file_syncs
from logstore.seams.file_syncs import FileSyncs
from logstore.seams.fs import OsFileSystem
from logstore.seams.memory_crash import KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem


@pytest.mark.parametrize("native", [True, False])
def test_files_are_synced_whatever_the_system_has(
    tmp_path: Path, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(file_syncs, "_CALLS", None)
    fs = OsFileSystem()
    files = [fs.open(str(tmp_path / f"{number}"), "create") for number in range(20)]
    for file in files:
        file.pwritev([b"x" * 5000], 0)
    fs.sync_files([])
    fs.sync_files(files[:1])
    fs.sync_files(files)
    assert {file.size() for file in files} == {5000}
    files[3].close()
    with pytest.raises(OSError, match="3") as caught:
        fs.sync_files(files)
    assert caught.value.errno == errno.EBADF


def test_an_error_of_a_call_names_the_file(tmp_path: Path) -> None:
    end, other = os.pipe()
    try:
        with pytest.raises(OSError) as caught:
            FileSyncs().sync([(end, "/a/pipe"), (other, "/another")])
        assert caught.value.errno in (errno.EINVAL, errno.ESPIPE)
    finally:
        os.close(end)
        os.close(other)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
@pytest.mark.parametrize("missing", ["sync_file_range", "syncfs"])
def test_a_sandbox_without_the_calls_is_no_failed_disk(
    tmp_path: Path, number: int, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def call(name: str) -> int:
        asked.append(name)
        ctypes.set_errno(number)
        return -1 if name == missing else 0

    calls = file_syncs._Calls(lambda *_: call("sync_file_range"), lambda *_: call("syncfs"))
    monkeypatch.setattr(file_syncs, "_CALLS", calls)
    synced: list[int] = []
    monkeypatch.setattr(file_syncs, "sync_descriptor", synced.append)
    syncs, files = FileSyncs(), [(os.open(tmp_path, os.O_RDONLY), f"/{name}") for name in "ab"]
    try:
        syncs.sync(files)
        assert synced == [fd for fd, _ in files]
        asked.clear()
        syncs.sync(files)
        assert (len(synced), asked) == (4, []), "it is not asked again"
    finally:
        for fd, _ in files:
            os.close(fd)


def test_a_call_that_fails_is_not_made_good_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second sync may say that all is well of what the first one lost."""

    def call(*_: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(file_syncs, "_CALLS", file_syncs._Calls(call, call))
    synced: list[int] = []
    monkeypatch.setattr(file_syncs, "sync_descriptor", synced.append)
    with pytest.raises(OSError) as caught:
        FileSyncs().sync([(7, "/a"), (8, "/b")])
    assert (caught.value.errno, caught.value.filename, synced) == (errno.EIO, "/a", [])


@pytest.mark.parametrize(
    ("release", "enough"),
    [("5.8.0-generic", True), ("5.7.19", False), ("4.19.0", False), ("6.18.44-x", True), ("odd", False)],
)
def test_kernels_that_tell_too_little_are_not_asked(release: str, enough: bool) -> None:
    assert file_syncs._is_new_enough(release) is enough


def test_the_twin_keeps_what_was_synced_together_and_nothing_else() -> None:
    fs = MemoryFileSystem()
    files = [fs.open(f"/{number}", "create") for number in range(3)]
    fs.sync_dir("/")
    for file in files:
        file.pwritev([b"kept"], 0)
    fs.sync_files(files[:2])
    after = fs.crash(KeepNothing())
    assert [after.open(f"/{number}", "r").size() for number in range(3)] == [4, 4, 0]
