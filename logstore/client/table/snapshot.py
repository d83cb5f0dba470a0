"""A table's local snapshot: one file, so that a restart does not read the topic from its beginning.

    length       u32   of the head, big-endian
    head               a document (see ``json_document.py``: version and checksum): topic, its id, isolation,
                       whether values are kept, and of each partition position, epoch, start, complete_ms, count
    blocks             of each partition in turn, until its count is reached::

        count u32 | key bytes u64 | value bytes u64 | CRC-32C u32 of all that follows of the block
        offsets i64 * count | key lengths u32 * count | value lengths u32 * count (with values) | keys | values

The file is a hint: whatever is wrong with it, of another topic or of a newer version, it is left out of account
and the topic is read. It is written beside its place, synced and renamed, so that a crash leaves the old one or
the new. Positions carry their leader epoch: what a crash took back since is noticed at the first fetch.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Any, NamedTuple

from crc32c import crc32c

from logstore.client.table.partition_map import PartitionMap
from logstore.errors import DamagedStoreError, LogStoreError, from_os_error
from logstore.format import json_document
from logstore.seams.fs import File, FileSystem, write_all
from logstore.types import Isolation

logger = logging.getLogger(__name__)

VERSION = 1
_LENGTH = struct.Struct(">I")
_BLOCK = struct.Struct(">IQQI")
_BLOCK_ENTRIES = 4096
_MOST_HEAD_BYTES = 64 << 20
_FIELDS = frozenset({"topic", "topic_id", "isolation", "with_values", "columns", "partitions"})
_COLUMNS = ["partition", "position", "epoch", "start", "complete_ms", "count"]


class SnapshotOf(NamedTuple):
    """Whose state it is. A snapshot of anything else is foreign."""

    topic: str
    topic_id: str
    isolation: Isolation
    with_values: bool


def save_snapshot(fs: FileSystem, path: str, of: SnapshotOf, maps: dict[int, PartitionMap]) -> None:
    """Durable when it returns. ``StorageError``, ``DiskFullError`` and the like; the old file then stays."""
    temporary = path + ".tmp"
    try:
        try:
            fs.remove(temporary)
        except FileNotFoundError:
            pass  # the usual case: no earlier attempt was cut short
        file = fs.open(temporary, "create")
        try:
            position = 0
            for part in _parts(of, maps):
                position += write_all(file, [part], position)
            file.sync()
        finally:
            file.close()
        fs.rename(temporary, path)
        fs.sync_dir(os.path.dirname(path) or ".")
    except OSError as error:
        raise from_os_error(error, "write the snapshot", path) from error


def load_snapshot(
    fs: FileSystem, path: str, of: SnapshotOf, partitions: int
) -> dict[int, PartitionMap] | None:
    """None without a snapshot that can be used; the log says why."""
    try:
        file = fs.open(path, "r")
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("the snapshot %s cannot be opened, the topic is read instead: %s", path, error)
        return None
    try:
        return _read(file, path, of, partitions)
    except LogStoreError as error:
        logger.warning("the snapshot is not used, the topic is read instead: %s", error.message)
        return None
    except OSError as error:
        logger.warning("the snapshot %s is not used, the topic is read instead: %s", path, error)
        return None
    finally:
        file.close()


# --- out ---


def _parts(of: SnapshotOf, maps: dict[int, PartitionMap]) -> Iterator[bytes]:
    rows = [
        [at, held.position, held.epoch, held.start, held.complete_ms, len(held.entries)]
        for at, held in maps.items()
    ]
    head = json_document.encode_document(VERSION, {**of._asdict(), "columns": _COLUMNS, "partitions": rows})
    yield _LENGTH.pack(len(head)) + head
    for held in maps.values():
        items = iter(held.entries.items())
        while block := list(islice(items, _BLOCK_ENTRIES)):
            yield _encoded(block, with_values=held.with_values)


def _encoded(block: list[tuple[bytes, Any]], *, with_values: bool) -> bytes:
    count = len(block)
    keys: Sequence[bytes]
    entries: Sequence[Any]
    keys, entries = zip(*block, strict=True)
    values: Sequence[bytes] = ()
    offsets: Sequence[int] = entries
    if with_values:
        offsets, values = zip(*entries, strict=True)
    key_blob, value_blob = b"".join(keys), b"".join(values)
    columns = [struct.pack(f">{count}q", *offsets), struct.pack(f">{count}I", *map(len, keys))]
    if with_values:
        columns.append(struct.pack(f">{count}I", *map(len, values)))
    body = b"".join((*columns, key_blob, value_blob))
    return _BLOCK.pack(count, len(key_blob), len(value_blob), crc32c(body)) + body


# --- in ---


class _Cursor:
    """Reads a file from front to end; never past it, whatever a length says."""

    def __init__(self, file: File, path: str) -> None:
        self._file = file
        self._path = path
        self._at = 0
        self._size = file.size()

    @property
    def left(self) -> int:
        return self._size - self._at

    def take(self, count: int) -> bytes:
        data = b"" if count > self.left else self._file.pread(count, self._at)
        if len(data) != count:
            raise self.damaged(f"it ends within the {count} bytes at {self._at}")
        self._at += count
        return data

    def damaged(self, why: str) -> DamagedStoreError:
        return json_document.damaged(self._path, why)


def _read(file: File, path: str, of: SnapshotOf, partitions: int) -> dict[int, PartitionMap]:
    cursor = _Cursor(file, path)
    (length,) = _LENGTH.unpack(cursor.take(_LENGTH.size))
    if length > _MOST_HEAD_BYTES:
        raise cursor.damaged(f"a head of {length} bytes")
    fields = json_document.decode_document(cursor.take(length), VERSION, _FIELDS, path)
    found = tuple(fields[name] for name in SnapshotOf._fields)
    if found != tuple(of):
        raise DamagedStoreError(f"{path} is the snapshot of {found}, not of {tuple(of)}", hint="", path=path)
    if fields["columns"] != _COLUMNS:
        raise cursor.damaged("it has other columns")
    maps: dict[int, PartitionMap] = {}
    for row in json_document.items(fields["partitions"], "partitions", path):
        at, position, epoch, start, complete_ms, count = json_document.items(
            row, "a partition", path, len(_COLUMNS)
        )
        at = json_document.whole(at, "a partition's number", path, 0, partitions - 1)
        held = PartitionMap(with_values=of.with_values)
        held.position = json_document.whole(position, "a position", path)
        held.epoch = json_document.whole(epoch, "an epoch", path, -1)
        held.start = json_document.whole(start, "a start", path)
        held.complete_ms = json_document.whole(complete_ms, "a time", path)
        _fill(cursor, held, json_document.whole(count, "a count", path))
        maps[at] = held
    if cursor.left:
        raise cursor.damaged(f"{cursor.left} bytes follow its end")
    return maps


def _fill(cursor: _Cursor, held: PartitionMap, count: int) -> None:
    done = 0
    while done < count:
        some, key_bytes, value_bytes, checksum = _BLOCK.unpack(cursor.take(_BLOCK.size))
        fixed = 8 + 4 + (4 if held.with_values else 0)
        body = cursor.take(some * fixed + key_bytes + value_bytes)
        if crc32c(body) != checksum:
            raise cursor.damaged("a block does not match its checksum")
        if not 0 < some <= count - done:
            raise cursor.damaged(f"a block of {some} entries where {count - done} are due")
        offsets = struct.unpack_from(f">{some}q", body)
        lengths = struct.unpack_from(f">{some}I", body, 8 * some)
        at = some * fixed
        keys = _cut(cursor, body[at : at + key_bytes], lengths)
        if held.with_values:
            values = _cut(cursor, body[at + key_bytes :], struct.unpack_from(f">{some}I", body, 12 * some))
            held.entries.update(zip(keys, zip(offsets, values, strict=True), strict=True))
        else:
            held.entries.update(zip(keys, offsets, strict=True))
        held.key_bytes += key_bytes
        done += some
    if len(held.entries) != count:
        raise cursor.damaged(f"{len(held.entries)} keys where {count} are due")


def _cut(cursor: _Cursor, blob: bytes, lengths: Sequence[int]) -> list[bytes]:
    ends = list(accumulate(lengths))
    if ends[-1] != len(blob):
        raise cursor.damaged(f"{len(blob)} bytes where {ends[-1]} are due")
    return list(map(blob.__getitem__, map(slice, chain((0,), ends), ends)))
