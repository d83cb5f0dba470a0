"""The file-system seam over the operating system, and the helpers on top of it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.fs import (
    SLICE_BYTES,
    Access,
    File,
    FileSystem,
    OsFileSystem,
    exists,
    read_file,
    replace_file,
    write_all,
)
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.types import Buffer


def made(fs: OsFileSystem, path: str, content: bytes = b"") -> File:
    file = fs.open(path, "create")
    write_all(file, [content], 0)
    return file


def test_file_reads_what_was_written(tmp_path: Path) -> None:
    file = made(OsFileSystem(), f"{tmp_path}/a", b"hello")
    assert file.pwritev([b" wor", memoryview(b"ld")], 5) == 6
    assert file.pread(100, 0) == b"hello world"
    assert file.pread(3, 6) == b"wor"
    assert file.pread(3, 50) == b""
    assert file.size() == 11
    assert file.path == f"{tmp_path}/a"
    file.sync()
    file.close()


@pytest.mark.parametrize("fs", [OsFileSystem(), MemoryFileSystem()], ids=["disk", "memory"])
def test_what_may_go_to_the_disk_soon_is_as_it_was(fs: FileSystem, tmp_path: Path) -> None:
    if isinstance(fs, MemoryFileSystem):
        fs.mkdir("/s")
    content = bytes(range(256)) * 64
    file = fs.open(f"{tmp_path}/a" if isinstance(fs, OsFileSystem) else "/s/a", "create")
    file.pwritev([content], 0)
    file.write_soon(len(content) - 5000, 4000)
    file.write_soon(1, len(content) + 10_000)
    assert file.pread(len(content) + 1, 0) == content
    assert file.size() == len(content)
    file.sync()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_soon(1, 0)


def test_pwritev_takes_more_buffers_than_one_call_may_have(tmp_path: Path) -> None:
    file = made(OsFileSystem(), f"{tmp_path}/a")
    assert file.pwritev([b"ab"] * 3_000, 0) == 6_000
    assert file.pread(6_000, 0) == b"ab" * 3_000
    file.close()


def test_truncate_shortens_and_extends_with_zeros(tmp_path: Path) -> None:
    file = made(OsFileSystem(), f"{tmp_path}/a", b"abcdef")
    file.truncate(2)
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"
    file.close()


def test_create_is_exclusive_and_open_needs_a_file(tmp_path: Path) -> None:
    fs = OsFileSystem()
    made(fs, f"{tmp_path}/a").close()
    with pytest.raises(FileExistsError):
        fs.open(f"{tmp_path}/a", "create")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{tmp_path}/b", "rw")


def test_a_closed_file_refuses_and_closes_again(tmp_path: Path) -> None:
    file = made(OsFileSystem(), f"{tmp_path}/a", b"x")
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor") as refused:
        file.pread(1, 0)
    assert refused.value.errno == errno.EBADF


def test_map_outlives_close_and_remove(tmp_path: Path) -> None:
    fs = OsFileSystem()
    file = made(fs, f"{tmp_path}/a", b"mapped")
    view = file.map()
    file.close()
    fs.remove(f"{tmp_path}/a")
    assert bytes(view) == b"mapped"
    assert view.readonly


def test_map_of_an_empty_file_is_empty(tmp_path: Path) -> None:
    file = made(OsFileSystem(), f"{tmp_path}/a")
    assert bytes(file.map()) == b""
    file.close()


def test_rename_link_and_remove(tmp_path: Path) -> None:
    fs = OsFileSystem()
    made(fs, f"{tmp_path}/a", b"1").close()
    made(fs, f"{tmp_path}/b", b"2").close()
    fs.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    fs.link(f"{tmp_path}/b", f"{tmp_path}/c")
    fs.sync_dir(str(tmp_path))
    fs.remove(f"{tmp_path}/b")
    assert fs.listdir(str(tmp_path)) == ["c"]
    assert read_file(fs, f"{tmp_path}/c") == b"1"


def test_folders(tmp_path: Path) -> None:
    fs = OsFileSystem()
    fs.mkdir(f"{tmp_path}/d")
    assert fs.stat(f"{tmp_path}/d").is_dir
    assert exists(fs, f"{tmp_path}/d")
    fs.rmdir(f"{tmp_path}/d")
    assert not exists(fs, f"{tmp_path}/d")


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    fs = OsFileSystem()
    made(fs, f"{tmp_path}/a").close()
    os.symlink(f"{tmp_path}/a", f"{tmp_path}/link")
    with pytest.raises(OSError, match="symbolic links") as refused:
        fs.stat(f"{tmp_path}/link")
    assert refused.value.errno == errno.ELOOP
    with pytest.raises(OSError, match=r"link") as refused:
        fs.open(f"{tmp_path}/link", "r")
    assert refused.value.errno == errno.ELOOP


@pytest.mark.parametrize(
    ("mode_bits", "file_bits", "folder_bits"), [(0o600, 0o600, 0o700), (0o660, 0o660, 0o770)]
)
def test_mode_bits_whatever_the_umask(
    tmp_path: Path, mode_bits: int, file_bits: int, folder_bits: int
) -> None:
    fs = OsFileSystem(Access(mode_bits))
    before = os.umask(0o077)
    try:
        made(fs, f"{tmp_path}/a").close()
        fs.mkdir(f"{tmp_path}/d")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(f"{tmp_path}/a").st_mode) == file_bits
    assert stat.S_IMODE(os.stat(f"{tmp_path}/d").st_mode) == folder_bits


class ShortWriter:
    """Writes at most ``at_most`` bytes a call."""

    def __init__(self, file: File, at_most: int) -> None:
        self._file = file
        self._at_most = at_most
        self.path = file.path

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)[: self._at_most]
        return self._file.pwritev([data], position) if data else 0


@pytest.mark.parametrize("at_most", [1, 2, 3, 7, 8, 100])
def test_write_all_goes_on_after_short_writes(at_most: int) -> None:
    file = MemoryFileSystem().open("/a", "create")
    short = cast(File, ShortWriter(file, at_most))  # write_all calls nothing else
    assert write_all(short, [b"abc", b"", b"defgh"], 2) == 8
    assert file.pread(100, 0) == b"\0\0abcdefgh"


class CountingWriter(ShortWriter):
    """Notes what each call is given; all of it is written, up to the call ``short``, which leaves its last byte."""

    def __init__(self, file: File, short: int) -> None:
        super().__init__(file, 1 << 30)
        self.calls: list[int] = []
        self.short = short

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        size = sum(map(len, buffers))
        self._at_most = size - 1 if len(self.calls) == self.short else size
        self.calls.append(size)
        return super().pwritev(buffers, position)


@pytest.mark.parametrize("short", [-1, 0, 1, 3])
def test_write_all_writes_slices(short: int) -> None:
    third = SLICE_BYTES // 3
    buffers: list[Buffer] = [
        bytes([number]) * size
        for number, size in enumerate(
            [third, third, third, third, 1, 0, 2 * SLICE_BYTES, 5, SLICE_BYTES - 5, 7]
        )
    ]
    memory = MemoryFileSystem().open("/a", "create")
    file = CountingWriter(memory, short)
    assert write_all(cast(File, file), buffers, 3) == len(b"".join(buffers))
    assert memory.pread(1 << 30, 3) == b"".join(buffers)
    whole = [3 * third, third + 1, 2 * SLICE_BYTES, SLICE_BYTES, 7]
    if short < 0:
        assert file.calls == whole
    else:
        left = sum(whole[short:]) - whole[short] + 1
        assert file.calls == [*whole[: short + 1], left]


def test_write_all_gives_up_when_nothing_is_written() -> None:
    file = cast(File, ShortWriter(MemoryFileSystem().open("/a", "create"), 0))
    with pytest.raises(OSError, match="no progress"):
        write_all(file, [b"abc"], 0)


def test_replace_file_leaves_old_or_new_whatever_a_crash_keeps() -> None:
    fs = MemoryFileSystem()
    replace_file(fs, "/state", b"old" * 400)
    calls_before = fs.faults.calls
    replace_file(fs.clone(), "/state", b"new" * 500)
    seen: set[bytes] = set()
    trial = fs.clone()
    replace_file(trial, "/state", b"new" * 500)
    boundaries = trial.faults.calls
    assert boundaries >= 6
    assert calls_before == fs.faults.calls
    for call in range(1, boundaries + 2):
        seen |= _after_crash_at(fs.clone(), call)
    assert seen == {b"old" * 400, b"new" * 500}


def _after_crash_at(fs: MemoryFileSystem, call: int) -> set[bytes]:
    fs.faults.at(call, FaultKind.CRASH)
    try:
        replace_file(fs, "/state", b"new" * 500)
    except SimulatedCrash:
        assert fs.faults.fired == 1
    return {read_file(after, "/state") for after in fs.crash_states(200)}


def test_replace_file_is_done_when_it_returns() -> None:
    fs = MemoryFileSystem()
    replace_file(fs, "/state", b"old")
    replace_file(fs, "/state", b"new")
    assert {read_file(after, "/state") for after in fs.crash_states(200)} == {b"new"}


def test_replace_file_passes_a_leftover_of_an_earlier_attempt(tmp_path: Path) -> None:
    fs = OsFileSystem()
    made(fs, f"{tmp_path}/state.tmp", b"half").close()
    replace_file(fs, f"{tmp_path}/state", b"whole")
    assert os.listdir(tmp_path) == ["state"]
    assert read_file(fs, f"{tmp_path}/state") == b"whole"
