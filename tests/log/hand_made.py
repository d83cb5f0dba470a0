"""A small store made file by file, without the engine: what inspect, verify and salvage are tested on."""

from __future__ import annotations

from collections.abc import Callable

from logstore.directory import topic_state
from logstore.directory.catalogue import Catalogue, CatalogueFile, encode_uuid
from logstore.directory.topic_state import PartitionState, TopicState
from logstore.format.batch import encode_batch, read_header
from logstore.log.inspection.inspect import segment_path
from logstore.log.segments.segment_writer import PartitionWriter
from logstore.seams.fs import FileSystem, read_file, replace_file, write_all
from logstore.seams.memory_fs import MemoryFileSystem

ROOT = "/store"
TOPIC = "flights"
TOPIC_ID = encode_uuid(bytes(range(16)))
BOOT = "boot-0"
BATCHES_A_SEGMENT = 6
ROWS_A_BATCH = 4
FOLDER = f"{ROOT}/{TOPIC}-0"


def rows(first: int, count: int) -> list[tuple[bytes, bytes]]:
    return [(b"N%05d" % number, b"flight %d " % number * 3) for number in range(first, first + count)]


def make_store(
    *, segments: int = 3, codec: str = "none", clean: bool = True, config: dict[str, str] | None = None
) -> MemoryFileSystem:
    """One topic of one partition: ``segments`` of 6 batches of 4 records, an index entry a batch or two."""
    fs = MemoryFileSystem()
    fs.mkdir(ROOT)
    topic_state.make_directory(fs, ROOT)
    writer = PartitionWriter(fs, FOLDER, TOPIC_ID, start_offset=0, index_interval_bytes=200)
    for segment in range(segments):
        for batch in range(BATCHES_A_SEGMENT):
            first = (segment * BATCHES_A_SEGMENT + batch) * ROWS_A_BATCH
            data = encode_batch(
                rows(first, ROWS_A_BATCH),
                now_ms=1_000_000 + first,
                codec=codec,
                base_offset=first,
                leader_epoch=segment,
            )
            writer.append(read_header(data), data)
        writer.roll()
    end = writer.next_offset
    last = encode_batch(rows(end, 1), now_ms=2_000_000, base_offset=end, leader_epoch=segments)
    writer.append(read_header(last), last)
    writer.finish()
    put_catalogue(fs, config or {})
    put_state(fs, PartitionState(end + 1, 0, end + 1, end + 1), clean=clean)
    return fs


def put_catalogue(fs: FileSystem, config: dict[str, str]) -> None:
    catalogue = Catalogue(store_id=encode_uuid(bytes(16))).with_topic(
        TOPIC, topic_id=TOPIC_ID, partitions=1, config=config, created_ms=1
    )
    file = CatalogueFile(fs, ROOT)
    file.save(catalogue)
    file.close()


def put_state(fs: FileSystem, row: PartitionState, *, clean: bool, boot_id: str = BOOT) -> None:
    topic_state.save(fs, ROOT, TOPIC, TopicState(TOPIC_ID, boot_id, clean, {0: row}))


def change(fs: FileSystem, path: str, edit: Callable[[bytearray], None]) -> None:
    """Rewrite a file with its bytes edited."""
    content = bytearray(read_file(fs, path))
    edit(content)
    replace_file(fs, path, bytes(content))


def flip(fs: FileSystem, path: str, position: int) -> None:
    def edit(content: bytearray) -> None:
        content[position] ^= 0x01

    change(fs, path, edit)


def cut(fs: FileSystem, path: str, size: int) -> None:
    file = fs.open(path, "rw")
    file.truncate(size)
    file.close()


def add(fs: FileSystem, path: str, content: bytes) -> None:
    file = fs.open(path, "rw")
    write_all(file, [content], file.size())
    file.close()


def segment(number: int, suffix: str = ".log") -> str:
    """Path of the segment of that number."""
    return segment_path(FOLDER, number * BATCHES_A_SEGMENT * ROWS_A_BATCH, suffix)


def batch_positions(fs: FileSystem, path: str) -> list[int]:
    content = read_file(fs, path)
    positions, at = [], 0
    while at < len(content):
        positions.append(at)
        at += read_header(content, at).size
    return positions
