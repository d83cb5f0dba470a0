"""The snapshot file: there and back, and whatever may be wrong with it."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from logstore.client.table.partition_map import PartitionMap
from logstore.client.table.snapshot import SnapshotOf, load_snapshot, save_snapshot
from logstore.errors import DiskFullError, StorageError
from logstore.format import json_document
from logstore.format.batch import encode_batch
from logstore.seams.faults import FaultKind
from logstore.seams.fs import FileSystem, read_file, replace_file
from logstore.seams.memory_fs import MemoryFileSystem

OF = SnapshotOf("t", "an-id", "read_committed", True)
PATH = "/here/t.snapshot"


def made(*, with_values: bool = True, count: int = 3, sign: str = "v") -> dict[int, PartitionMap]:
    rows = [(b"k%d" % number, f"{sign}{number}".encode() * (number % 3)) for number in range(count)]
    held = PartitionMap(with_values=with_values, complete_ms=77)
    if rows:
        held.apply(encode_batch(rows, now_ms=1, leader_epoch=4), len(rows))
    return {0: held, 2: PartitionMap(with_values=with_values, start=5)}


def folder(capacity_bytes: int | None = None) -> MemoryFileSystem:
    fs = MemoryFileSystem(capacity_bytes=capacity_bytes)
    fs.mkdir("/here")
    fs.sync_dir("/")
    return fs


def shape(maps: dict[int, PartitionMap] | None) -> object:
    fields = ("entries", "position", "epoch", "start", "complete_ms", "key_bytes")
    return maps and {at: [getattr(held, name) for name in fields] for at, held in maps.items()}


@pytest.mark.parametrize("with_values", [True, False])
@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 10_000])
def test_there_and_back(with_values: bool, count: int) -> None:
    fs, of, maps = folder(), OF._replace(with_values=with_values), made(with_values=with_values, count=count)
    save_snapshot(fs, PATH, of, maps)
    found = load_snapshot(fs, PATH, of, 3)
    assert found is not None
    assert shape(found) == shape(maps)
    assert fs.listdir("/here") == ["t.snapshot"]


def test_none_is_there() -> None:
    assert load_snapshot(folder(), PATH, OF, 3) is None


def test_one_of_something_else_is_foreign(caplog: pytest.LogCaptureFixture) -> None:
    fs = folder()
    save_snapshot(fs, PATH, OF, made())
    for other in (
        OF._replace(topic="u"),
        OF._replace(topic_id="another"),
        OF._replace(isolation="read_uncommitted"),
        OF._replace(with_values=False),
    ):
        caplog.clear()
        assert load_snapshot(fs, PATH, other, 3) is None
        assert "is the snapshot of ('t', 'an-id', 'read_committed', True), not of" in caplog.text
    assert load_snapshot(fs, PATH, OF, 2) is None, "it has a partition that the topic has not"
    assert load_snapshot(fs, PATH, OF, 3) is not None


def test_every_flipped_byte_and_every_cut_is_noticed() -> None:
    fs = folder()
    save_snapshot(fs, PATH, OF, made())
    data = read_file(fs, PATH)
    for at in range(len(data)):
        for damaged in (
            data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :],
            data[:at],
            data + data[: at + 1],
        ):
            replace_file(fs, PATH, damaged)
            assert load_snapshot(fs, PATH, OF, 3) is None, at


def changed(data: bytes, **fields: object) -> bytes:
    """The snapshot with other fields in its head, checksums right."""
    (length,) = struct.unpack_from(">I", data)
    keys = frozenset({*SnapshotOf._fields, "columns", "partitions"})
    head = json_document.decode_document(data[4 : 4 + length], 1, keys, PATH)
    version = fields.pop("version", 1)
    again = json_document.encode_document(version, {**head, **fields})  # type: ignore[arg-type]
    return struct.pack(">I", len(again)) + again + data[4 + length :]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: changed(data, version=2), "has format version 2; this logstore reads 1 to 1"),
        (lambda data: changed(data, columns=["partition"]), "it has other columns"),
        (lambda data: changed(data, partitions=[[0, 3, 4, 0, 7]]), "a partition is not a list of 6"),
        (lambda data: changed(data, partitions=[[0, -3, 4, 0, 7, 3]]), "a position is -3"),
        (lambda data: changed(data, partitions=[[0, 3, 4, 0, 7, 4]]), "it ends within"),
        (lambda data: changed(data, partitions=[[0, 3, 4, 0, 7, 2]]), "a block of 3 entries where 2 are due"),
        (lambda data: changed(data, partitions=[]), "bytes follow its end"),
        (lambda data: struct.pack(">I", 1 << 31) + data[4:], "a head of 2147483648 bytes"),
        (lambda data: b"", "it ends within the 4 bytes at 0"),
        (lambda data: b"something else entirely\n" * 9, "a head of"),
    ],
)
def test_odd_ones_are_left_out_of_account(
    change: Callable[[bytes], bytes], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    fs = folder()
    save_snapshot(fs, PATH, OF, made())
    replace_file(fs, PATH, change(read_file(fs, PATH)))
    assert load_snapshot(fs, PATH, OF, 3) is None
    assert told in caplog.text
    save_snapshot(fs, PATH, OF, made())
    assert load_snapshot(fs, PATH, OF, 3) is not None


def test_a_folder_in_its_place(caplog: pytest.LogCaptureFixture) -> None:
    fs = folder()
    fs.mkdir(PATH)
    assert load_snapshot(fs, PATH, OF, 3) is None
    assert "the topic is read instead" in caplog.text
    with pytest.raises(StorageError):
        save_snapshot(fs, PATH, OF, made())


def test_a_crash_at_any_step_leaves_the_old_one_or_the_new() -> None:
    old, new = made(sign="old"), made(sign="new", count=5)
    fs = folder()
    save_snapshot(fs, PATH, OF, old)
    seen = set()
    for step in range(1, 40):
        disk = fs.clone()
        disk.faults.at(disk.faults.calls + step, FaultKind.EIO, forever=True)
        finished = attempt(disk, new)
        disk.faults.clear()
        for state in disk.crash_states():
            found = load_snapshot(state, PATH, OF, 3)
            assert shape(found) in (shape(old), shape(new))
            assert shape(found) == shape(new) or not finished
            seen.add(found is not None and len(found[0].entries))
        if finished:
            break
    assert finished
    assert seen == {3, 5}


def attempt(fs: FileSystem, maps: dict[int, PartitionMap]) -> bool:
    try:
        save_snapshot(fs, PATH, OF, maps)
    except StorageError:
        return False
    return True


def test_a_full_disk_is_named_and_the_next_try_works() -> None:
    fs = folder(capacity_bytes=100)
    with pytest.raises(DiskFullError, match=r"cannot write the snapshot /here/t\.snapshot"):
        save_snapshot(fs, PATH, OF, made(count=100))
    assert load_snapshot(fs, PATH, OF, 3) is None
