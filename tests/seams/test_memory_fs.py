"""The twin answers as the operating system does; its crashes are in test_memory_crash.py."""

from __future__ import annotations

import errno
import shutil
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from logstore.seams.fs import File, FileSystem, OpenMode, OsFileSystem, exists, read_file, write_all
from logstore.seams.memory_crash import KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem

NAMES = ("a", "b", "d", "d/a", "d/e", "d/e/a", "a/x")
names = st.sampled_from(NAMES)


class AgainstTheRealOne(RuleBasedStateMachine):
    """Every call on the twin and on a real directory: same answers, same errno, same tree."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.real: FileSystem = OsFileSystem()
        self.twin: FileSystem = MemoryFileSystem()
        self.files: list[tuple[File, File]] = []

    def teardown(self) -> None:
        for real, _twin in self.files:
            real.close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[FileSystem, str], Any]) -> tuple[Any, Any]:
        """The answers of both sides; an error is its number."""
        return outcome(call, self.real, self.folder + "/"), outcome(call, self.twin, "/")

    def same(self, call: Callable[[FileSystem, str], Any]) -> None:
        real, twin = self.both(call)
        assert real == twin

    @rule(name=names, mode=st.sampled_from(["r", "rw", "create"]))
    def open(self, name: str, mode: OpenMode) -> None:
        def open_file(fs: FileSystem, root: str) -> Any:
            if mode == "r" and exists_dir(fs, root + name):
                return "a directory opened as a file: the one case where they differ"
            return fs.open(root + name, mode)

        real, twin = self.both(open_file)
        if isinstance(real, int | str):
            assert real == twin
        else:
            self.files.append((real, twin))

    @rule(name=names)
    def mkdir(self, name: str) -> None:
        self.same(lambda fs, root: fs.mkdir(root + name))

    @rule(name=names)
    def rmdir(self, name: str) -> None:
        self.same(lambda fs, root: fs.rmdir(root + name))

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.same(lambda fs, root: fs.remove(root + name))

    @rule(name=names)
    def listdir(self, name: str) -> None:
        self.same(lambda fs, root: sorted(fs.listdir(root + name)))

    @rule(name=names)
    def sync_dir(self, name: str) -> None:
        self.same(lambda fs, root: fs.sync_dir(root + name))

    @rule(source=names, to=names)
    def rename(self, source: str, to: str) -> None:
        self.same(lambda fs, root: fs.rename(root + source, root + to))

    @rule(source=names, to=names)
    def link(self, source: str, to: str) -> None:
        self.same(lambda fs, root: fs.link(root + source, root + to))

    @rule(name=names)
    def stat(self, name: str) -> None:
        def size_and_kind(fs: FileSystem, root: str) -> tuple[int, bool]:
            found = fs.stat(root + name)
            return (0 if found.is_dir else found.size), found.is_dir

        self.same(size_and_kind)

    def on_file(self, which: int, call: Callable[[File], Any]) -> None:
        if self.files:
            real, twin = self.files[which % len(self.files)]
            assert outcome(call, real) == outcome(call, twin)

    @rule(which=st.integers(0, 7), position=st.integers(0, 2_000), data=st.binary(max_size=1_500))
    def pwritev(self, which: int, position: int, data: bytes) -> None:
        half = len(data) // 2
        self.on_file(which, lambda file: file.pwritev([data[:half], memoryview(data)[half:]], position))

    @rule(which=st.integers(0, 7), data=st.binary(max_size=700))
    def append(self, which: int, data: bytes) -> None:
        self.on_file(which, lambda file: file.pwritev([data], file.size()))

    @rule(which=st.integers(0, 7), position=st.integers(0, 4_000), length=st.integers(0, 4_000))
    def pread(self, which: int, position: int, length: int) -> None:
        self.on_file(which, lambda file: file.pread(length, position))

    @rule(which=st.integers(0, 7), size=st.integers(0, 4_000))
    def truncate(self, which: int, size: int) -> None:
        self.on_file(which, lambda file: file.truncate(size))

    @rule(which=st.integers(0, 7))
    def map(self, which: int) -> None:
        self.on_file(which, lambda file: bytes(file.map()))

    @rule(which=st.integers(0, 7))
    def sync(self, which: int) -> None:
        self.on_file(which, lambda file: file.sync())

    @rule(which=st.integers(0, 7))
    def close(self, which: int) -> None:
        self.on_file(which, lambda file: file.close())

    @rule()
    def kill_the_process(self) -> None:
        assert isinstance(self.twin, MemoryFileSystem)
        for real, _twin in self.files:
            real.close()
        self.files.clear()
        self.twin = self.twin.process_crash()

    @invariant()
    def the_trees_are_equal(self) -> None:
        assert tree(self.real, self.folder) == tree(self.twin, "/")


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except OSError as error:
        return error.errno


def exists_dir(fs: FileSystem, path: str) -> bool:
    try:
        return fs.stat(path).is_dir
    except OSError:
        return False


def tree(fs: FileSystem, root: str) -> dict[str, bytes | None]:
    """Paths below ``root`` -> content, None for a folder."""
    found: dict[str, bytes | None] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        for name in fs.listdir(f"{root}/{folder}"):
            path = f"{folder}/{name}"
            if fs.stat(root + path).is_dir:
                found[path] = None
                folders.append(path)
            else:
                found[path] = read_file(fs, root + path)
    return found


TestAgainstTheRealOne = AgainstTheRealOne.TestCase
TestAgainstTheRealOne.settings = settings(
    derandomize=True,
    deadline=None,
    max_examples=120,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)


def made(fs: MemoryFileSystem, path: str, content: bytes = b"") -> File:
    file = fs.open(path, "create")
    write_all(file, [content], 0)
    return file


def test_handles_stay_valid_after_remove_and_rename() -> None:
    fs = MemoryFileSystem()
    file = made(fs, "/a", b"kept")
    fs.rename("/a", "/b")
    fs.remove("/b")
    file.pwritev([b"!"], 4)
    assert file.pread(10, 0) == b"kept!"


def test_map_is_a_read_only_view_of_the_moment() -> None:
    fs = MemoryFileSystem()
    file = made(fs, "/a", b"before")
    view = file.map()
    file.pwritev([b"after!!"], 0)
    file.close()
    assert bytes(view) == b"before"
    assert view.readonly


def test_a_read_only_file_refuses_writes() -> None:
    fs = MemoryFileSystem()
    made(fs, "/a", b"x").close()
    file = fs.open("/a", "r")
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwritev([b"y"], 0)
    with pytest.raises(OSError, match="Invalid argument"):
        file.truncate(0)


def test_a_folder_is_not_opened_as_a_file() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    with pytest.raises(IsADirectoryError):
        fs.open("/d", "r")


def test_stat_tells_changed_files_apart() -> None:
    fs = MemoryFileSystem()
    file = made(fs, "/a", b"x")
    before = fs.stat("/a")
    file.pwritev([b"y"], 0)
    after = fs.stat("/a")
    assert (before.inode, before.size) == (after.inode, after.size)
    assert after.mtime_ns > before.mtime_ns


def test_the_root_is_always_there_and_stays() -> None:
    fs = MemoryFileSystem()
    assert fs.stat("/").is_dir
    with pytest.raises(FileExistsError):
        fs.mkdir("/")
    with pytest.raises(OSError, match="busy"):
        fs.rmdir("/")
    with pytest.raises(FileNotFoundError):
        fs.listdir("")


class TestCapacity:
    def test_writes_what_fits_then_refuses(self) -> None:
        fs = MemoryFileSystem(capacity_bytes=10)
        file = fs.open("/a", "create")
        assert file.pwritev([b"x" * 8], 0) == 8
        assert file.pwritev([b"y" * 8], 8) == 2
        with pytest.raises(OSError, match="No space left") as refused:
            file.pwritev([b"z"], 10)
        assert refused.value.errno == errno.ENOSPC
        assert file.pwritev([b"over"], 0) == 4
        with pytest.raises(OSError, match="No space left"):
            file.truncate(11)

    def test_a_gap_counts(self) -> None:
        fs = MemoryFileSystem(capacity_bytes=10)
        file = fs.open("/a", "create")
        with pytest.raises(OSError, match="No space left"):
            file.pwritev([b"z"], 10)
        assert file.pwritev([b"zz"], 9) == 1

    def test_space_returns_with_the_last_name_and_handle(self) -> None:
        fs = MemoryFileSystem(capacity_bytes=10)
        file = made(fs, "/a", b"x" * 10)
        fs.link("/a", "/b")
        other = fs.open("/c", "create")
        steps: list[Callable[[], None]] = [lambda: fs.remove("/a"), lambda: fs.remove("/b"), file.close]
        for give_up in steps:
            with pytest.raises(OSError, match="No space left"):
                other.pwritev([b"y"], 0)
            give_up()
        assert other.pwritev([b"y" * 10], 0) == 10

    def test_space_returns_when_a_rename_replaces_and_when_a_file_shrinks(self) -> None:
        fs = MemoryFileSystem(capacity_bytes=10)
        made(fs, "/a", b"x" * 6).close()
        made(fs, "/b", b"y" * 4).close()
        fs.rename("/b", "/a")
        file = made(fs, "/c", b"z" * 6)
        file.truncate(1)
        assert file.pwritev([b"z" * 9], 1) == 5

    def test_a_crash_frees_what_only_handles_held(self) -> None:
        fs = MemoryFileSystem(capacity_bytes=10)
        made(fs, "/a", b"x" * 10)
        fs.remove("/a")
        assert made(fs.process_crash(), "/b", b"y" * 10).size() == 10
        assert made(fs.crash(KeepNothing()), "/b", b"y" * 10).size() == 10


def test_threads_append_to_their_files_at_once() -> None:
    fs = MemoryFileSystem()
    files = [made(fs, f"/{number}") for number in range(4)]

    def work(number: int) -> None:
        for index in range(500):
            files[number].pwritev([b"%d" % number], index)
            if index % 50 == 0:
                made(fs, f"/{number}-{index}").close()
                fs.listdir("/")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [file.pread(600, 0) for file in files] == [b"%d" % number * 500 for number in range(4)]
    assert len(fs.listdir("/")) == 44


def test_relative_paths_start_at_the_root() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("d")
    made(fs, "d/../d/./a", b"x").close()
    assert read_file(fs, "/d/a") == b"x"
    assert not exists(fs, "/d/b")
