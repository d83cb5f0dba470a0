"""The bound on descriptors, pins that hold, mappings that outlive their place in the pool."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from logstore.log.segments.file_pool import FilePool
from logstore.seams.fs import OsFileSystem, replace_file
from tests.open_files import open_below


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    found = []
    for number in range(8):
        path = tmp_path / f"{number}.log"
        path.write_bytes(b"%d" % number * 5_000)
        found.append(str(path))
    return found


def read(pool: FilePool, path: str) -> bytes:
    with pool.pinned(path) as file:
        return file.pread(3, 0)


def test_a_file_is_opened_once_and_stays_open(paths: list[str]) -> None:
    pool = FilePool(OsFileSystem())
    with pool.pinned(paths[0]) as first:
        pass
    with pool.pinned(paths[0]) as second:
        assert second is first
    with pool.pinned(paths[0], True) as writable:
        assert writable is not first
    assert len(pool) == 2
    pool.close()


def test_no_more_descriptors_than_the_capacity(paths: list[str], tmp_path: Path) -> None:
    before = len(open_below(tmp_path))
    pool = FilePool(OsFileSystem(), capacity=3)
    for _ in range(3):
        for number, path in enumerate(paths):
            assert read(pool, path) == b"%d" % number * 3
            view = pool.mapping(path)
            assert view is not None
            assert bytes(view[:2]) == b"%d" % number * 2
            del view
            assert len(pool) <= 3
            assert len(open_below(tmp_path)) <= before + 3
    pool.close()
    assert len(open_below(tmp_path)) == before
    assert len(pool) == 0


def test_the_least_recently_used_goes_first(paths: list[str]) -> None:
    pool = FilePool(OsFileSystem(), capacity=3)
    files = [pool.pin(path) for path in paths[:3]]
    for file in files:
        pool.unpin(file)
    read(pool, paths[0])
    read(pool, paths[3])  # takes the place of 1
    with pool.pinned(paths[0]) as kept, pool.pinned(paths[2]) as kept_too:
        assert kept is files[0]
        assert kept_too is files[2]
    with pool.pinned(paths[1]) as again:
        assert again is not files[1]
    pool.close()


def test_pinned_files_are_never_closed(paths: list[str]) -> None:
    pool = FilePool(OsFileSystem(), capacity=2)
    held = [pool.pin(path) for path in paths[:4]]  # past the bound rather than refused
    assert len(pool) == 4
    assert pool.mapping(paths[5]) is None  # every place is taken: the caller reads with pread
    assert read(pool, paths[6]) == b"666"
    for number, file in enumerate(held):
        assert file.pread(2, 0) == b"%d" % number * 2
        pool.unpin(file)
    read(pool, paths[7])
    assert len(pool) <= 2
    pool.close()


def test_a_mapping_with_views_out_keeps_its_place(paths: list[str]) -> None:
    pool = FilePool(OsFileSystem(), capacity=2)
    views = [pool.mapping(path) for path in paths[:2]]
    assert pool.mapping(paths[2]) is None
    for number, view in enumerate(views):
        assert view is not None
        assert bytes(view[:2]) == b"%d" % number * 2
    views.clear()
    view = None
    assert pool.mapping(paths[2]) is not None
    pool.close()


def test_views_outlive_the_pool_and_the_file(paths: list[str]) -> None:
    pool = FilePool(OsFileSystem())
    view = pool.mapping(paths[0])
    other = pool.mapping(paths[0])
    assert view is not None
    assert other is not None
    part = view[10:20]
    os.unlink(paths[0])
    pool.forget_file(paths[0])
    pool.close()
    assert bytes(part) == b"0" * 10
    assert bytes(view[:3]) == bytes(other[:3]) == b"000"


def test_who_has_a_view_is_not_disturbed_by_eviction(paths: list[str]) -> None:
    """Views are taken and used by one thread while another makes the pool evict all the time."""
    pool = FilePool(OsFileSystem(), capacity=2)
    stop = threading.Event()
    failures: list[BaseException] = []

    def churn() -> None:
        while not stop.is_set():
            for path in paths[1:]:
                read(pool, path)
                pool.mapping(path)

    def use() -> None:
        try:
            for _ in range(3_000):
                view = pool.mapping(paths[0])
                if view is not None:
                    assert bytes(view[4_000:4_002]) == b"00"
        except BaseException as error:  # noqa: BLE001 - carried to the test's thread
            failures.append(error)

    thread = threading.Thread(target=churn)
    users = [threading.Thread(target=use) for _ in range(2)]
    for each in (thread, *users):
        each.start()
    for each in users:
        each.join(60)
    stop.set()
    thread.join(60)
    assert failures == []
    pool.close()


def test_a_forgotten_file_is_not_given_out_again(paths: list[str], tmp_path: Path) -> None:
    fs = OsFileSystem()
    pool = FilePool(fs)
    old = pool.pin(paths[0])
    pool.forget_file(paths[0])
    replace_file(fs, paths[0], b"new")
    assert read(pool, paths[0]) == b"new"
    assert old.pread(3, 0) == b"000"  # its user goes on undisturbed
    before = len(open_below(tmp_path))
    pool.unpin(old)
    assert len(open_below(tmp_path)) == before - 1
    assert read(pool, paths[0]) == b"new"
    pool.close()


def test_forgetting_a_directory(tmp_path: Path) -> None:
    fs = OsFileSystem()
    pool = FilePool(fs)
    for folder in ("t-1", "t-11"):
        fs.mkdir(str(tmp_path / folder))
        (tmp_path / folder / "f").write_bytes(b"x")
        read(pool, str(tmp_path / folder / "f"))
    pool.forget(str(tmp_path / "t-1"))
    assert len(pool) == 1
    read(pool, str(tmp_path / "t-11" / "f"))
    assert len(pool) == 1
    pool.close()


def test_closing_waits_for_the_last_user_of_each_file(paths: list[str], tmp_path: Path) -> None:
    before = len(open_below(tmp_path))
    pool = FilePool(OsFileSystem())
    file = pool.pin(paths[0])
    pool.close()
    assert file.pread(2, 0) == b"00"
    with pytest.raises(OSError, match="closed"):
        pool.pin(paths[1])
    with pytest.raises(OSError, match="closed"):
        pool.mapping(paths[1])
    pool.unpin(file)
    assert len(open_below(tmp_path)) == before


def test_a_missing_file_leaves_nothing_behind(tmp_path: Path) -> None:
    pool = FilePool(OsFileSystem())
    with pytest.raises(FileNotFoundError):
        pool.pin(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        pool.mapping(str(tmp_path / "none"))
    assert len(pool) == 0


def test_an_empty_file_maps_to_an_empty_view(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    pool = FilePool(OsFileSystem())
    view = pool.mapping(str(tmp_path / "empty"))
    assert view is not None
    assert len(view) == 0
    pool.close()
