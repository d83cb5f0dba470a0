"""What replaces what: the text, and what recovery makes of it."""

from __future__ import annotations

import pytest

from logstore.errors import DamagedStoreError, UnsupportedStoreVersionError
from logstore.log.cleaning import swap
from logstore.log.cleaning.swap import Swap
from logstore.log.inspection.inspect import segment_base_offsets
from logstore.seams.fs import exists, read_file, write_all
from logstore.seams.memory_fs import MemoryFileSystem

FOLDER = "/t-0"
EXCHANGE = Swap(FOLDER, ((0, 3),), ((5, 9), (9, 12)))


def file(fs: MemoryFileSystem, name: str, content: bytes) -> None:
    opened = fs.open(f"{FOLDER}/{name}", "create")
    write_all(opened, [content], 0)
    opened.close()


def folder() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir(FOLDER)
    for base in (0, 5, 9, 12):
        file(fs, f"{base:020d}.log", b"old %d" % base)
        file(fs, f"{base:020d}.index", b"")
    file(fs, f"{0:020d}.log.cleaned", b"new")
    file(fs, f"{0:020d}.index.cleaned", b"rows")
    return fs


def test_the_text_of_a_swap() -> None:
    fs = folder()
    EXCHANGE.commit(fs)
    assert read_file(fs, EXCHANGE.path) == b"0\n4\n1 2\n0 3\n5 9\n9 12\n"
    assert swap.pending(fs, FOLDER, fs.listdir(FOLDER)) == [EXCHANGE]


def test_recovery_finishes_what_was_committed() -> None:
    fs = folder()
    EXCHANGE.commit(fs)
    assert swap.recover(fs, FOLDER, fs.listdir(FOLDER))
    assert sorted(fs.listdir(FOLDER)) == [
        f"{base:020d}{suffix}" for base in (0, 12) for suffix in (".index", ".log")
    ]
    assert read_file(fs, f"{FOLDER}/{0:020d}.log") == b"new"
    assert read_file(fs, f"{FOLDER}/{0:020d}.index") == b"rows"
    assert not swap.recover(fs, FOLDER, fs.listdir(FOLDER))


def test_undone_nothing_is_left_of_it() -> None:
    fs = folder()
    EXCHANGE.commit(fs)
    EXCHANGE.undo(fs)
    assert not [name for name in fs.listdir(FOLDER) if name.endswith((".cleaned", ".swap"))]
    assert read_file(fs, f"{FOLDER}/{0:020d}.log") == b"old 0"


def test_segments_that_a_new_one_reaches_over_are_not_listed() -> None:
    fs = folder()
    EXCHANGE.commit(fs)
    assert segment_base_offsets(fs, FOLDER) == [0, 5, 9, 12]
    assert EXCHANGE.place(fs) is None
    assert segment_base_offsets(fs, FOLDER) == [0, 12]


def test_a_new_segment_that_retention_has_taken_is_not_missed() -> None:
    fs = folder()
    EXCHANGE.commit(fs)
    EXCHANGE.place(fs)
    fs.remove(f"{FOLDER}/{0:020d}.log")
    assert swap.recover(fs, FOLDER, fs.listdir(FOLDER))
    assert not exists(fs, f"{FOLDER}/{9:020d}.log")


@pytest.mark.parametrize(
    "text", [b"", b"0\n1\n1 2\n", b"0\n2\n1 0\n7 3\n", b"0\n3\n1 1\n0 3\n-5 9\n", b"\xff"]
)
def test_a_text_that_says_nothing_is_damage(text: bytes) -> None:
    fs = folder()
    file(fs, f"{0:020d}.swap", text)
    with pytest.raises((DamagedStoreError, UnsupportedStoreVersionError)):
        swap.recover(fs, FOLDER, fs.listdir(FOLDER))
    assert read_file(fs, f"{FOLDER}/{5:020d}.log") == b"old 5"


def test_a_later_version_is_refused() -> None:
    fs = folder()
    file(fs, f"{0:020d}.swap", b"1\n1\n1 0\n")
    with pytest.raises(UnsupportedStoreVersionError):
        swap.recover(fs, FOLDER, fs.listdir(FOLDER))


def test_a_new_segment_of_another_size_is_damage() -> None:
    fs = folder()
    Swap(FOLDER, ((0, 4),), ((5, 9),)).commit(fs)
    with pytest.raises(DamagedStoreError, match="has 3 bytes"):
        swap.recover(fs, FOLDER, fs.listdir(FOLDER))
    assert read_file(fs, f"{FOLDER}/{5:020d}.log") == b"old 5"
