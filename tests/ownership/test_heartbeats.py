"""`.heartbeats`: beats are read back, torn slots are told, other boots read as empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.errors import StoreClosedError
from logstore.ownership.heartbeats import (
    HEADER_BYTES,
    SLOT_BYTES,
    TORN,
    Beat,
    HeartbeatFile,
    MemoryHeartbeats,
)

BOOT = "de553bab-8322-43d8-a68c-a37ab034f844"
ONE, TWO = "1" * 32, "2" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".heartbeats"


def writer(path: Path, boot: str = BOOT) -> HeartbeatFile:
    return HeartbeatFile(str(path), boot, writable=True)


def test_beats_are_seen_by_others(path: Path) -> None:
    board, other = writer(path), writer(path)
    assert board.read(3) is None
    board.beat(3, ONE, 1_000)
    other.beat(1, TWO, 5)
    board.beat(3, ONE, 2_000)
    assert other.read(3) == Beat(ONE, 2_000)
    assert [board.read(slot) for slot in (0, 1, 2, 4)] == [None, Beat(TWO, 5), None, None]
    assert path.stat().st_size == HEADER_BYTES + 4 * SLOT_BYTES


def test_every_torn_byte_is_told(path: Path) -> None:
    board = writer(path)
    board.beat(0, ONE, 1_000)
    whole = path.read_bytes()
    for position in range(HEADER_BYTES, HEADER_BYTES + 28):
        torn = bytearray(whole)
        torn[position] ^= 0x10
        path.write_bytes(torn)
        assert board.read(0) is TORN
    path.write_bytes(whole)
    assert board.read(0) == Beat(ONE, 1_000)
    path.write_bytes(whole[:-40])  # a file that ends within the slot
    assert board.read(0) is TORN


def test_beats_of_another_boot_are_nobodys(path: Path) -> None:
    old = writer(path)
    old.beat(0, ONE, 1_000)
    reader = HeartbeatFile(str(path), "another", writable=False)
    assert reader.read(0) is None
    new = writer(path, "another")
    assert new.read(0) is None
    new.beat(0, TWO, 1)
    assert reader.read(0) == Beat(TWO, 1)
    old.beat(0, ONE, 2_000)  # into a file without a name
    assert new.read(0) == Beat(TWO, 1)


def test_a_reader_waits_for_the_file_and_makes_none(path: Path) -> None:
    reader = HeartbeatFile(str(path), BOOT, writable=False)
    assert reader.read(0) is None
    assert not path.exists()
    writer(path).beat(0, ONE, 7)
    assert reader.read(0) == Beat(ONE, 7)
    reader.close()
    with pytest.raises(StoreClosedError):
        reader.read(0)


def test_the_twin() -> None:
    table: dict[int, Beat] = {}
    one, two = MemoryHeartbeats(table), MemoryHeartbeats(table)
    one.beat(4, ONE, 9)
    assert (two.read(4), two.read(5)) == (Beat(ONE, 9), None)
    two.reboot()
    assert one.read(4) is None
