"""``.live``: what is published is read back, torn copies are told, other boots read as empty."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import InvariantError, StorageError, StoreClosedError
from logstore.ownership import live
from logstore.ownership.live import (
    COPY_BYTES,
    HEADER_BYTES,
    SLOT_BYTES,
    LiveBoard,
    LiveFile,
    LiveSlot,
    MemoryLive,
)
from tests.native.twins import python_twin

BOOT = "de553bab-8322-43d8-a68c-a37ab034f844"


def publish(board: LiveBoard, slot: int, end: int, *, epoch: int = 3) -> None:
    board.publish(
        slot,
        log_start_offset=0,
        high_watermark=end,
        last_stable_offset=end,
        log_end_offset=end + 1,
        segment_base=0,
        end_position=end * 100,
        leader_epoch=epoch,
    )


def shown(generation: int, end: int, *, epoch: int = 3) -> LiveSlot:
    return LiveSlot(generation, 0, end, end, end + 1, 0, end * 100, epoch)


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".live"


def writer(path: Path, boot: str = BOOT) -> LiveFile:
    return LiveFile(str(path), boot, writable=True)


def reader(path: Path, boot: str = BOOT) -> LiveFile:
    return LiveFile(str(path), boot, writable=False)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_what_is_published_is_read(path: Path, kind: str) -> None:
    board: LiveBoard = writer(path) if kind == "file" else MemoryLive()
    assert board.read(0) is None
    publish(board, 0, 10)
    publish(board, 7, 20, epoch=-1)
    assert board.read(0) == shown(1, 10)
    assert board.read(7) == shown(1, 20, epoch=-1)
    assert board.read(6) is None
    assert board.read(1000) is None
    for end in range(11, 30):
        publish(board, 0, end)
        assert board.read(0) == shown(end - 9, end)
    board.close()


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_an_unchanged_state_is_not_written_again(path: Path, kind: str) -> None:
    board: LiveBoard = writer(path) if kind == "file" else MemoryLive()
    for _ in range(3):
        publish(board, 1, 5)
    assert board.read(1) == shown(1, 5)
    publish(board, 1, 5, epoch=4)
    assert board.read(1) == shown(2, 5, epoch=4)
    board.close()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.tuples(*([st.integers(-(2**63), 2**63 - 1)] * 6), st.integers(-(2**31), 2**31 - 1))))
def test_any_numbers_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, ...]]) -> None:
    path = tmp_path_factory.mktemp("live") / ".live"
    board, beside, twin = writer(path), reader(path), MemoryLive()
    for row in rows:
        names = LiveSlot._fields[1:]
        board.publish(2, **dict(zip(names, row, strict=True)))
        twin.publish(2, **dict(zip(names, row, strict=True)))
        found = beside.read(2)
        assert found is not None
        assert found[1:] == row
        assert twin.read(2) == found
    board.close()
    beside.close()


def test_layout_is_the_one_described(path: Path) -> None:
    board = writer(path)
    publish(board, 1, 10)
    publish(board, 1, 11)
    board.close()
    data = path.read_bytes()
    assert data[:12] == b"LSLIVE\r\n" + struct.pack(">HH", 1, len(BOOT))
    assert data[12:HEADER_BYTES] == BOOT.encode().ljust(HEADER_BYTES - 12, b"\0")
    slot = data[HEADER_BYTES + SLOT_BYTES :]
    body = struct.pack(">qqqqqqqi", 2, 0, 11, 11, 12, 0, 1100, 3)
    assert slot[:COPY_BYTES] == body + struct.pack(">I", crc32c(body))
    body = struct.pack(">qqqqqqqi", 1, 0, 10, 10, 11, 0, 1000, 3)
    assert slot[COPY_BYTES:] == body + struct.pack(">I", crc32c(body))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("bit_at", range(COPY_BYTES))
def test_a_torn_copy_falls_back_to_the_one_before(path: Path, bit_at: int) -> None:
    board, beside = writer(path), reader(path)
    publish(board, 0, 10)
    publish(board, 0, 11)  # generation 2: the first copy
    flip(path, HEADER_BYTES + bit_at)
    assert beside.read(0) == shown(1, 10)
    publish(board, 0, 12)  # goes on from what is whole, over the torn copy
    assert beside.read(0) == shown(2, 12)
    board.close()
    beside.close()


def test_two_torn_copies_read_as_nothing(path: Path) -> None:
    board = writer(path)
    publish(board, 0, 10)
    publish(board, 0, 11)
    flip(path, HEADER_BYTES + 20)
    flip(path, HEADER_BYTES + COPY_BYTES + 20)
    assert board.read(0) is None
    publish(board, 0, 12)
    assert board.read(0) == shown(1, 12)
    board.close()


def test_every_cut_of_a_write_shows_the_old_state_or_the_new(path: Path) -> None:
    board = writer(path)
    publish(board, 0, 10)
    publish(board, 0, 11)
    before = path.read_bytes()
    publish(board, 0, 12)
    board.close()
    after = path.read_bytes()
    for cut in range(HEADER_BYTES, len(after) + 1):
        path.write_bytes(after[:cut] + before[cut:])
        beside = reader(path)
        found = beside.read(0)
        assert found in (shown(2, 11), shown(3, 12)), cut
        assert (found == shown(3, 12)) == (after[:cut] + before[cut:] == after)
        beside.close()


def test_generations_go_on_when_owners_take_turns(path: Path) -> None:
    first, second, beside = writer(path), writer(path), reader(path)
    for end in range(1, 20):
        publish(first if end % 2 else second, 0, end)
        assert beside.read(0) == shown(end, end)
    publish(first, 0, 50)
    publish(first, 0, 51)
    publish(second, 0, 19)  # what ``second`` published last is no longer what is shown: it must be written
    assert beside.read(0) == shown(22, 19)
    for board in (first, second, beside):
        board.close()


def test_another_boot_reads_as_empty_and_is_replaced_by_a_writer(path: Path) -> None:
    board = writer(path)
    publish(board, 0, 10)
    board.close()
    beside = reader(path, "boot-2")
    assert beside.read(0) is None
    assert path.stat().st_size > HEADER_BYTES  # a reader replaces nothing
    board = writer(path, "boot-2")
    assert board.read(0) is None
    publish(board, 0, 3)
    assert beside.read(0) == shown(1, 3)
    assert os.listdir(path.parent) == [".live"]
    board.close()
    beside.close()


@pytest.mark.parametrize("content", [b"", b"LSLIVE", b"\xff" * 500, b"LSLIVE\r\n\x00\x02".ljust(256, b"\0")])
def test_a_file_of_another_version_reads_as_empty_and_is_replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    beside = reader(path)
    assert beside.read(0) is None
    board = writer(path)
    publish(board, 0, 1)
    assert beside.read(0) == shown(1, 1)
    board.close()
    beside.close()


def test_a_reader_started_first_sees_the_writer(path: Path) -> None:
    beside = reader(path)
    assert beside.read(0) is None
    board = writer(path)
    publish(board, 0, 4)
    assert beside.read(0) == shown(1, 4)
    board.close()
    beside.close()


def test_a_reader_follows_a_replaced_file(path: Path) -> None:
    board, beside = writer(path), reader(path)
    publish(board, 0, 4)
    assert beside.read(0) == shown(1, 4)
    board.close()
    path.unlink()
    assert beside.read(0) is None
    board = writer(path)
    publish(board, 0, 9)
    assert beside.read(0) == shown(1, 9)
    board.close()
    beside.close()


def test_a_replaced_file_is_followed_past_a_torn_slot(path: Path) -> None:
    board, beside = writer(path), reader(path)
    publish(board, 0, 4)
    publish(board, 0, 5)
    flip(path, HEADER_BYTES + 20)
    assert [beside.read(0) for _ in range(3)] == [shown(1, 4)] * 3
    flip(path, HEADER_BYTES + 20)
    assert [beside.read(0) for _ in range(3)] == [shown(2, 5)] * 3
    flip(path, HEADER_BYTES + 20)
    assert beside.read(0) == shown(1, 4)
    board.close()
    path.unlink()
    board = writer(path)
    publish(board, 0, 9)
    assert [beside.read(0) for _ in range(3)] == [shown(1, 9)] * 3
    board.close()
    beside.close()


def test_a_writer_opens_what_an_earlier_one_left(path: Path) -> None:
    board = writer(path)
    publish(board, 0, 4)
    board.close()
    (path.parent / ".live.tmp").write_bytes(b"left by a creation that was cut short")
    inode = path.stat().st_ino
    board = writer(path)
    publish(board, 0, 5)
    assert board.read(0) == shown(2, 5)
    assert path.stat().st_ino == inode
    board.close()


def test_a_link_in_place_of_the_file_is_refused(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(b"")
    path.symlink_to("elsewhere")
    with pytest.raises(StorageError, match=r"cannot open .*\.live"):
        writer(path)
    assert (path.parent / "elsewhere").read_bytes() == b""


def test_misuse_is_named(path: Path) -> None:
    board, beside = writer(path), reader(path)
    with pytest.raises(InvariantError, match="only a writable store"):
        publish(beside, 0, 1)
    board.close()
    board.close()
    beside.close()
    with pytest.raises(StoreClosedError):
        publish(board, 0, 1)
    with pytest.raises(StoreClosedError):
        beside.read(0)


def test_a_full_disk_is_an_error_not_a_signal(path: Path) -> None:
    """A file size limit acts as a full disk does; in a process of its own, for the limit is the process's."""
    code = (
        "import resource, signal, sys\n"
        "from tests.ownership.test_live import *\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "board = writer(Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "publish(board, 0, 1)\n"
        "try:\n"
        "    publish(board, 1000, 1)\n"
        "except StorageError as error:\n"
        "    print(type(error).__name__, error.message)\n"
        "print(board.read(0) == shown(1, 1), board.read(1000))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"StorageError cannot publish to {path}: File too large", "True None"]


def test_readers_beside_a_busy_writer_never_see_a_mix(path: Path) -> None:
    board = writer(path)
    publish(board, 0, 0)
    stop = threading.Event()
    faults: list[object] = []

    def look() -> None:
        beside = reader(path)
        last = 0
        while not stop.is_set():
            found = beside.read(0)
            if found is None or found != shown(found.generation, found.generation - 1):
                faults.append(found)
            elif found.generation < last:
                faults.append((last, found))
            else:
                last = found.generation
        beside.close()

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for end in range(1, 5000):
        publish(board, 0, end)
    stop.set()
    for thread in threads:
        thread.join()
    board.close()
    assert faults == []


def test_the_memory_twin_forgets_at_a_reboot_and_is_shared() -> None:
    table: dict[int, LiveSlot] = {}
    first, second = MemoryLive(table), MemoryLive(table)
    publish(first, 0, 1)
    assert second.read(0) == shown(1, 1)
    first.reboot()
    assert second.read(0) is None


int64s = st.integers(-(1 << 63), (1 << 63) - 1)


@settings(max_examples=60, deadline=None)
@given(
    states=st.lists(
        st.tuples(int64s, int64s, int64s, int64s, int64s, int64s, st.integers(-(1 << 31), (1 << 31) - 1)),
        max_size=6,
    ),
    others=st.sets(st.integers(0, 5)),
)
def test_both_twins_write_the_same_slots(states: list[tuple[int, ...]], others: set[int]) -> None:
    """Also where another process has published in between, and where the same is published again."""
    twins = (live, python_twin("logstore.ownership.live"))
    with tempfile.TemporaryDirectory() as folder:
        boards = [
            twin.LiveFile(f"{folder}/{number}", BOOT, writable=True) for number, twin in enumerate(twins)
        ]
        beside = [twins[1].LiveFile(board.path, BOOT, writable=True) for board in boards]
        for number, state in enumerate([state for state in states for _ in range(2)]):
            if number in others:
                for board in beside:
                    board.publish(1, number, 0, 0, 0, 0, 0, 0)
            for board in boards:
                board.publish(1, *state)
            one, two = [Path(board.path).read_bytes() for board in boards]
            assert one == two
        for board in (*boards, *beside):
            board.close()


@pytest.mark.parametrize("twin", [live, python_twin("logstore.ownership.live")])
def test_a_file_that_cannot_be_written(twin: Any, path: Path) -> None:
    """Told each time, and what is shown afterwards goes on from what the file has."""
    board = twin.LiveFile(str(path), BOOT, writable=True)
    publish(board, 0, 1)
    writable, board._fd = board._fd, os.open(path, os.O_RDONLY)
    try:
        for _ in range(2):
            with pytest.raises(StorageError, match=f"publish to {path}.*Bad file descriptor"):
                publish(board, 0, 2)
        publish(board, 0, 1)  # is shown already
    finally:
        os.close(board._fd)
        board._fd = writable
    publish(board, 0, 2)
    assert board.read(0)[1:] == shown(2, 2)[1:]
    board.close()
