"""The durable decision that a replica's log gives way to a snapshot, and its carrying out.

A follower that is behind the leader's log start gets a snapshot: the offset at which its log begins anew, the
producers' state there, and the epochs before it. Many files change, so one file, `install-snapshot`, decides first:
once it is in place the old log is gone, whatever is still to be seen of it. The next recovery carries out what a
crash cut short; the file is removed when the partition's state says durably where the log begins.

    magic 8s | crc u32 (CRC-32C of what follows) | start offset i64 | epochs i32 | [epoch i32, start offset i64] |
    producer snapshot (``producer_snapshot``)
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from logstore.errors import CorruptBatchError
from logstore.log.checkpoints import encode_pairs
from logstore.log.epochs import FILE_NAME as EPOCHS_FILE
from logstore.log.producers.producer_snapshot import SUFFIX, decode_snapshot
from logstore.log.producers.row_counts import note_counts, read_counts
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.listing import Listing
from logstore.log.segments.segment import LOG_SUFFIX, file_name
from logstore.seams.fs import FileSystem, read_file, replace_file

FILE_NAME: Final = "install-snapshot"
_MAGIC: Final = b"LSSNAP\r\n"
_HEAD = struct.Struct(">8sI")
_BODY = struct.Struct(">qi")
_EPOCH = struct.Struct(">iq")


class LogSnapshot(NamedTuple):
    """What a log that begins at ``start_offset`` has to know of the records before it. ``epochs``: (epoch, start
    offset), both growing; ``producers``: the bytes of a producer snapshot (``encode_snapshot``)."""

    start_offset: int
    epochs: tuple[tuple[int, int], ...]
    producers: bytes


def encode(snapshot: LogSnapshot) -> bytes:
    """The bytes of the file."""
    rows = b"".join(_EPOCH.pack(*entry) for entry in snapshot.epochs)
    rest = _BODY.pack(snapshot.start_offset, len(snapshot.epochs)) + rows + snapshot.producers
    return _HEAD.pack(_MAGIC, crc32c(rest)) + rest


def decode(data: bytes, path: str) -> LogSnapshot:
    """``CorruptBatchError``, with ``path``, unless the bytes are a whole file of this kind."""
    if len(data) < _HEAD.size + _BODY.size or data[:8] != _MAGIC:
        raise CorruptBatchError(f"{path}: {len(data)} bytes are no snapshot to install", path=path)
    rest = memoryview(data)[_HEAD.size :]
    if crc32c(rest) != _HEAD.unpack_from(data)[1]:
        raise CorruptBatchError(f"{path}: its checksum is wrong", path=path)
    start_offset, count = _BODY.unpack_from(rest)
    end = _BODY.size + count * _EPOCH.size
    if start_offset < 0 or count < 0 or end > len(rest):
        raise CorruptBatchError(f"{path}: {count} epochs before offset {start_offset}", path=path)
    epochs = tuple(_EPOCH.iter_unpack(rest[_BODY.size : end]))
    producers = bytes(rest[end:])
    decode_snapshot(producers, path)
    return LogSnapshot(start_offset, epochs, producers)


def pending(fs: FileSystem, directory: str, names: list[str]) -> LogSnapshot | None:
    """The snapshot whose installation was decided and not finished. ``OSError``, ``CorruptBatchError``."""
    if FILE_NAME not in names:
        return None
    path = f"{directory}/{FILE_NAME}"
    return decode(read_file(fs, path), path)


def decide(fs: FileSystem, directory: str, snapshot: LogSnapshot) -> None:
    """From here on the log is what the snapshot says. ``OSError``: it is as it was."""
    replace_file(fs, f"{directory}/{FILE_NAME}", encode(snapshot))


def carry_out(pool: FilePool, directory: str, snapshot: LogSnapshot) -> None:
    """Remove the old log's files, newest segment first, and put the snapshot's epochs and producers in place. May be
    repeated. ``OSError``: the next recovery repeats it."""
    fs = pool.fs
    pool.forget(directory)
    listing = Listing.of(fs.listdir(directory), directory)
    note_counts(fs, directory, {}, gone=read_counts(fs, directory))
    for base in reversed(listing.bases):
        fs.remove(f"{directory}/{file_name(base, LOG_SUFFIX)}")
    for base, suffix in sorted(listing.indexes):
        fs.remove(f"{directory}/{file_name(base, suffix)}")
    fs.sync_dir(directory)
    replace_file(fs, f"{directory}/{file_name(snapshot.start_offset, SUFFIX)}", snapshot.producers)
    replace_file(fs, f"{directory}/{EPOCHS_FILE}", encode_pairs(snapshot.epochs))


def finish(fs: FileSystem, directory: str) -> None:
    """The partition's state says durably where the log begins: forget the decision. ``OSError``."""
    try:
        fs.remove(f"{directory}/{FILE_NAME}")
    except FileNotFoundError:
        return
    fs.sync_dir(directory)
