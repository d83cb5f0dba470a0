"""A whole partition's folder, byte for byte as tests/golden/partition holds it.

``python -m tests.log.test_golden_partition`` writes that folder anew: only when the format changes on purpose.
"""

from __future__ import annotations

import struct
from pathlib import Path

from logstore.format.batch import decode_batches, iter_headers
from logstore.log.checkpoints import decode_metadata, decode_pairs
from logstore.seams.clock import ManualClock
from logstore.seams.fs import Access, OsFileSystem, read_file
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore
from logstore.types import Row
from tests.format.batches import GOLDEN, NOW_MS

FOLDER = GOLDEN / "partition"
CONFIG = {"segment.bytes": "1024", "index.interval.bytes": "200", "compression.type": "producer"}


def make() -> dict[str, bytes]:
    """Three batches a segment, then a kill, a second epoch, and a close in order."""
    fs, clock = MemoryFileSystem(), ManualClock(NOW_MS)

    def open_store(fs: MemoryFileSystem) -> LogStore:
        store = LogStore("/store", fs=fs, clock=clock, threads=False)
        store._registry._random_bytes = lambda count: bytes(range(count))
        return store

    store = open_store(fs)
    store.create_topic("flights", config=CONFIG)
    log = store.partition("flights", 0)
    for number in range(6):
        rows: list[Row] = [
            (b"N%03d" % number, b"departs " * 25, [("leg", b"%d" % number), ("none", None)], clock.wall_ms()),
            (None, b"", None, clock.wall_ms() - 7),
            (b"", None),
        ]
        log.append(rows, acks=1 if number % 2 else "all")
        clock.advance(1_000 if number != 3 else -500)
    store.abandon()
    store = open_store(fs.process_crash())
    store.partition("flights", 0).append([(b"after", b"the kill")])
    store.close()
    names = store.fs.listdir("/store/flights-0")
    return {name: read_file(store.fs, f"/store/flights-0/{name}") for name in sorted(names)}


def golden() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir())}


def test_the_folder_byte_for_byte() -> None:
    made, kept = make(), golden()
    assert list(made) == list(kept)
    for name, content in kept.items():
        assert made[name] == content, name


def test_what_the_files_say() -> None:
    """Read without the engine, by the layout of the format's page."""
    kept = golden()
    logs = {int(name[:20]): content for name, content in kept.items() if name.endswith(".log")}
    assert list(logs) == [0, 9]
    assert all(len(content) <= 1024 for content in logs.values())
    epochs = decode_pairs(kept["leader-epoch-checkpoint"], "")
    assert epochs == [(0, 0), (1, 18)]
    assert decode_metadata(kept["partition.metadata"], "") == "AAECAwQFRgeICQoLDA0ODw"
    for base, content in logs.items():
        batches = list(iter_headers(content))
        assert batches[0][1].base_offset == base
        assert all(h.leader_epoch == (1 if h.base_offset >= 18 else 0) for _, h in batches)
        ends = {header.last_offset: position for position, header in batches}
        rows = list(struct.iter_unpack(">ii", kept[f"{base:020d}.index"]))
        assert rows
        assert all(ends[base + relative] == position for relative, position in rows)
        times = list(struct.iter_unpack(">qi", kept[f"{base:020d}.timeindex"]))
        largest = [
            (max(h.max_timestamp for _, h in batches if h.last_offset <= base + relative), relative)
            for _, relative in times
        ]
        assert times
        assert times == largest
    records = decode_batches(b"".join(logs.values()), "flights", 0)
    assert [record.offset for record in records] == list(range(19))
    assert records[0].headers == (("leg", b"0"), ("none", None))
    assert (records[1].key, records[1].value, records[2].key, records[2].value) == (None, b"", b"", None)
    assert records[1].timestamp_ms == records[0].timestamp_ms - 7


def write(folder: Path) -> None:
    fs = OsFileSystem(Access(0o644))
    for path in folder.iterdir():
        fs.remove(str(path))
    for name, content in make().items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    write(FOLDER)
