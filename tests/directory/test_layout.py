"""What a directory is, and the error for each kind that holds no store."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.directory.layout import DirectoryKind, classify_directory, make_root, missing_store
from logstore.errors import (
    DamagedStoreError,
    ForeignDirectoryError,
    LogStoreError,
    PermissionDeniedError,
    StorageError,
    StoreNotFoundError,
)
from logstore.seams.faults import FaultKind
from logstore.seams.fs import OsFileSystem
from logstore.seams.memory_crash import KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem

KINDS: list[tuple[list[str], DirectoryKind]] = [
    ([], DirectoryKind.EMPTY),
    ([".locks", ".live", ".live.tmp", ".state", "topics.json.tmp"], DirectoryKind.EMPTY),
    (["lost+found"], DirectoryKind.EMPTY),
    ([".locks.0", ".locks.12"], DirectoryKind.EMPTY),
    (["topics.json"], DirectoryKind.STORE),
    (["topics.json", "meta.properties", "anything"], DirectoryKind.STORE),
    (["meta.properties", "flights-0"], DirectoryKind.KAFKA),
    ([".state", "flights-0"], DirectoryKind.HEADLESS),
    (["flights-0"], DirectoryKind.FOREIGN),
    (["notes.txt"], DirectoryKind.FOREIGN),
    ([".git"], DirectoryKind.FOREIGN),
]


@pytest.mark.parametrize(("names", "kind"), KINDS)
def test_kinds(tmp_path: Path, names: list[str], kind: DirectoryKind) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    assert classify_directory(OsFileSystem(), str(tmp_path)) is kind


def test_nothing_and_a_file(tmp_path: Path) -> None:
    fs = OsFileSystem()
    assert classify_directory(fs, str(tmp_path / "a" / "b")) is DirectoryKind.MISSING
    (tmp_path / "file").write_bytes(b"")
    assert classify_directory(fs, str(tmp_path / "file")) is DirectoryKind.FILE


def test_a_directory_that_cannot_be_read_is_named() -> None:
    fs = MemoryFileSystem()
    fs.faults.on("listdir", FaultKind.EIO)
    with pytest.raises(StorageError, match="cannot list /"):
        classify_directory(fs, "/")


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        (DirectoryKind.MISSING, StoreNotFoundError, "no log store at /d: the directory does not exist"),
        (DirectoryKind.EMPTY, StoreNotFoundError, "no log store at /d: the directory is empty"),
        (DirectoryKind.KAFKA, ForeignDirectoryError, "/d is a Kafka broker's directory.*mode='r'"),
        (DirectoryKind.FOREIGN, ForeignDirectoryError, "/d is not empty and holds no topics.json"),
        (DirectoryKind.FILE, ForeignDirectoryError, "/d is a file"),
        (DirectoryKind.HEADLESS, DamagedStoreError, "/d is a log store whose topics.json is gone.*salvage"),
    ],
)
def test_errors(kind: DirectoryKind, error: type[LogStoreError], text: str) -> None:
    with pytest.raises(error, match=text):
        raise missing_store(kind, "/d")


@pytest.mark.parametrize("root", ["/a/b/c", "/a/b/c/", "a/b/c"])
def test_a_root_is_made_with_its_parents_durably(root: str) -> None:
    fs = MemoryFileSystem()
    make_root(fs, root)
    make_root(fs, root)
    assert classify_directory(fs.crash(KeepNothing()), "/a/b/c") is DirectoryKind.EMPTY


def test_a_relative_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_root(OsFileSystem(), "data")
    make_root(OsFileSystem(), "deep/er")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep" / "er").is_dir()


def test_a_root_that_cannot_be_made_is_named() -> None:
    with pytest.raises(PermissionDeniedError, match="cannot create the directory /proc/1/task/store"):
        make_root(_Refusing(), "/proc/1/task/store")


class _Refusing(MemoryFileSystem):
    def mkdir(self, path: str) -> None:
        raise PermissionError(13, "Permission denied", path)
