"""``StateSnapshots``: snapshots of the state that a log is replayed to, beside the log, so that its front may go.

Files and layout are those of Kafka's metadata (KIP-630): ``<end offset>-<term>.checkpoint``, where the record before
the end offset is of that term, holds batches that follow each other: a control batch that begins the snapshot, the
state as records, a control batch that ends it. Each batch has its checksum, and a file without its last batch is none.
A file is written, made durable and renamed before anything relies on it.
"""

from __future__ import annotations

import logging
import re
import struct
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

from logstore.errors import CorruptBatchError, UnsupportedMagicError, from_os_error
from logstore.format.batch import (
    STAMP_SIZE,
    check_crc,
    encode_batch,
    read_header,
    records_section,
    stamp,
)
from logstore.format.control import ControlType, decode_control_batch, encode_control_batch
from logstore.format.payloads import Payload, payloads
from logstore.machine import Change
from logstore.seams.fs import FileSystem, read_file, remove_if_there, replace_file

logger = logging.getLogger(__name__)

SUFFIX: Final = ".checkpoint"
DAMAGED_SUFFIX: Final = ".damaged"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_HEADER: Final = struct.Struct(">hqB")  # version, timestamp, no tagged field
_FOOTER: Final = struct.Struct(">hB")
_MOST_RECORDS: Final = 1_000  # in a batch


class SnapshotId(NamedTuple):
    """Of the state that all records before ``end_offset`` make; the last of them is of ``term``."""

    end_offset: int
    term: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.term:010d}{SUFFIX}"


class KeptState(NamedTuple):
    """The state that all records before ``end_offset`` make, as records that make it of an empty one."""

    end_offset: int
    changes: Sequence[Payload]


# --- bytes ---


def encode_state(changes: Sequence[Change], term: int, now_ms: int) -> bytes:
    """The content of a snapshot's file."""
    header = _HEADER.pack(0, now_ms, 0)
    batches = [encode_control_batch(ControlType.SNAPSHOT_HEADER, header, timestamp_ms=now_ms)]
    chunks = [changes[first : first + _MOST_RECORDS] for first in range(0, len(changes), _MOST_RECORDS)]
    batches += [encode_batch(chunk, now_ms=now_ms) for chunk in chunks]
    batches.append(encode_control_batch(ControlType.SNAPSHOT_FOOTER, _FOOTER.pack(0, 0), timestamp_ms=now_ms))
    parts, offset = [], 0
    for batch in batches:
        parts += [stamp(batch, offset, term), batch[STAMP_SIZE:]]
        offset += read_header(batch).last_offset_delta + 1
    return b"".join(parts)


def decode_state(data: bytes, where: str) -> list[Payload]:
    """The records of the state. ``CorruptBatchError`` with ``where``: these bytes are no whole snapshot."""
    view, at, offset, term = memoryview(data), 0, 0, -1
    found: list[Payload] = []
    kinds: list[int] = []
    while at < len(data):
        try:
            header = read_header(view, at)
        except UnsupportedMagicError as error:
            raise CorruptBatchError(f"{where} has no batch at byte {at}", path=where, position=at) from error
        term = header.leader_epoch if at == 0 else term
        in_order = header.base_offset == offset and header.leader_epoch == term
        if at + header.size > len(data) or not in_order:
            raise CorruptBatchError(f"{where} lacks batches at byte {at}", path=where, position=at)
        check_crc(view, at, header)
        if header.is_control:
            kinds.append(decode_control_batch(view[at : at + header.size], 0, header).type)
        elif kinds != [ControlType.SNAPSHOT_HEADER]:
            raise CorruptBatchError(f"{where} has records outside of the state at byte {at}", path=where)
        else:
            section = records_section(view, at, header)
            found += payloads(section, header.records_count, header.base_offset)
        at, offset = at + header.size, header.next_offset
    if kinds != [ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER]:
        raise CorruptBatchError(f"{where} does not end as a snapshot does", path=where)
    return found


# --- files ---


class StateSnapshots:
    """Those in ``directory``. Thread-safe. ``kept``: the oldest first, each of them whole when it was seen last; one
    that is damaged is told, and kept aside. ``OSError``."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._lock = threading.Lock()  # around ``kept``
        self.kept: tuple[SnapshotId, ...] = ()
        found = []
        for name in sorted(fs.listdir(directory)):
            match = _NAME.fullmatch(name)
            if match is not None:
                found.append(SnapshotId(int(match[1]), int(match[2])))
        self.kept = tuple(found)
        for one in found:
            self.state(one)

    @property
    def newest(self) -> SnapshotId | None:
        return self.kept[-1] if self.kept else None

    def forget(self, gone: Sequence[SnapshotId]) -> None:
        """Remove files. ``OSError``."""
        for one in gone:
            remove_if_there(self._fs, self._path(one))
        with self._lock:
            self.kept = tuple(one for one in self.kept if one not in gone)
        if gone:
            self._fs.sync_dir(self._directory)

    def save(self, snapshot: SnapshotId, data: bytes) -> None:
        """Durable when it returns. StorageError, DiskFullError."""
        try:
            replace_file(self._fs, self._path(snapshot), data)
        except OSError as error:
            raise from_os_error(error, "write", self._path(snapshot)) from error
        with self._lock:
            self.kept = tuple(sorted({*self.kept, snapshot}))

    def content(self, snapshot: SnapshotId) -> bytes | None:
        """Of the file, which is whole; None: it is damaged, and is kept aside from now on. StorageError."""
        path = self._path(snapshot)
        try:
            data = read_file(self._fs, path)
            decode_state(data, path)
        except FileNotFoundError:
            self._lose(snapshot, "is gone")
            return None
        except CorruptBatchError as error:
            self._set_aside(snapshot, error)
            return None
        except OSError as error:
            raise from_os_error(error, "read", path) from error
        return data

    def state(self, snapshot: SnapshotId) -> KeptState | None:
        """As ``content``."""
        data = self.content(snapshot)
        return (
            None if data is None else KeptState(snapshot.end_offset, decode_state(data, self._path(snapshot)))
        )

    def newest_state(self) -> KeptState | None:
        """Of the newest that is whole. StorageError."""
        while (snapshot := self.newest) is not None:
            found = self.state(snapshot)
            if found is not None:
                return found
        return None

    def newest_content(self) -> tuple[SnapshotId, bytes] | None:
        """As ``newest_state``."""
        while (snapshot := self.newest) is not None:
            data = self.content(snapshot)
            if data is not None:
                return snapshot, data
        return None

    def _set_aside(self, snapshot: SnapshotId, why: CorruptBatchError) -> None:
        path = self._path(snapshot)
        try:
            self._fs.rename(path, path + DAMAGED_SUFFIX)
            self._fs.sync_dir(self._directory)
        except OSError as error:
            raise from_os_error(error, "set aside", path) from error
        self._lose(snapshot, f"is damaged, and kept as {path}{DAMAGED_SUFFIX}: {why.message}")

    def _lose(self, snapshot: SnapshotId, why: str) -> None:
        logger.error("the snapshot %s %s", self._path(snapshot), why)
        with self._lock:
            self.kept = tuple(one for one in self.kept if one != snapshot)

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._directory}/{snapshot.file_name}"
