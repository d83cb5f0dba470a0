"""Staging files: what one attempt of a task wrote, as encoded batches, until the driver appends it.

``.staging/`` of the store holds one file per attempt, named ``RUN.BATCH.PARTITION.ATTEMPT.TOKEN.staged``: the
query's id, its batch, the task's partition, the attempt, and chance (attempts are counted anew after a restart).
A file is a magic number, then sections: lengths, topic, one record batch. Its size and CRC-32C travel in the
receipt, through Spark; who reads a file without its receipt has nothing to trust it by. A driver takes a file only
if a receipt names it, so that what other attempts left is never read, and swept later.

Nothing here is synced. A receipt lives in the driver's memory, and tasks and driver are on one machine, whose page
cache they share: a crash that could lose a staged file takes the receipt with it, and Spark runs the batch anew.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import crc32c

from logstore.errors import DamagedStoreError, InvalidArgumentError, from_os_error
from logstore.seams.clock import Clock, SystemClock
from logstore.seams.fs import File, FileSystem, OsFileSystem, write_all
from spark_connector.writing.batch_marks import Content

logger = logging.getLogger("logstore.spark")

FOLDER: Final = ".staging"
KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""Files this old are of queries that ended in the middle of a batch and never came back."""

_MAGIC: Final = b"LSSTAGE1"
_SECTION: Final = struct.Struct(">HII")  # bytes of the topic's name, partition, bytes of the batch
_NAME = re.compile(r"([0-9A-Za-z-]+)\.(\d+)\.(\d+)\.(\d+)\.([0-9a-f]+)\.staged")
_RUN = re.compile(r"[0-9A-Za-z-]+")


class Attempt(NamedTuple):
    """Whose file it is. ``run``: a streaming query's id, or a batch write's own; ``attempt``: Spark's task attempt."""

    run: str
    batch_id: int
    partition: int
    attempt: int

    def file_name(self, token: str) -> str:
        return f"{self.run}.{self.batch_id}.{self.partition}.{self.attempt}.{token}.staged"


class Receipt(NamedTuple):
    """A finished file: its name in the folder, bytes, CRC-32C of all of them, the topics in it, and what rows."""

    name: str
    size: int
    crc: int
    topics: tuple[str, ...]
    content: Content = Content()


class StagedBatch(NamedTuple):
    """One record batch and where it goes."""

    topic: str
    partition: int
    batch: bytes


def attempt_of(name: str) -> Attempt | None:
    """Whose file this is by its name; None: it is none of ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return Attempt(match[1], int(match[2]), int(match[3]), int(match[4]))


class Staging:
    """The staging folder of one store."""

    def __init__(self, root: str, *, fs: FileSystem | None = None, clock: Clock | None = None) -> None:
        self._root = os.path.realpath(root) if fs is None else root
        self._fs = OsFileSystem() if fs is None else fs
        self._clock = SystemClock() if clock is None else clock
        self.folder = os.path.join(self._root, FOLDER)

    # --- writing, in a task ---

    def create(self, attempt: Attempt) -> StagingFile:
        """A new file for the attempt. ``InvalidArgumentError``; ``StorageError`` and its kin if it cannot be made."""
        if not _RUN.fullmatch(attempt.run):
            raise InvalidArgumentError(
                f"{attempt.run!r} cannot be a query's id: its files could not be named so"
            )
        path = os.path.join(self.folder, attempt.file_name(secrets.token_hex(4)))
        try:
            try:
                return StagingFile(self._fs, self._fs.open(path, "create"))
            except FileNotFoundError:  # the first task there ever was
                self._make_folder()
                return StagingFile(self._fs, self._fs.open(path, "create"))
        except OSError as error:
            raise from_os_error(error, "make", path) from error

    def _make_folder(self) -> None:
        try:
            self._fs.mkdir(self.folder)
        except FileExistsError:
            return  # another task was first

    # --- reading, on the driver ---

    def check(self, receipt: Receipt) -> None:
        """``DamagedStoreError`` unless the file is there and as long as it was when the task finished it."""
        path = os.path.join(self.folder, receipt.name)
        try:
            size = self._fs.stat(path).size
        except FileNotFoundError as error:
            raise _damaged(path, "is gone") from error
        except OSError as error:
            raise from_os_error(error, "look at", path) from error
        if size != receipt.size:
            raise _damaged(path, f"has {size} bytes, and had {receipt.size}", min(size, receipt.size))

    def read(self, receipt: Receipt) -> Iterator[StagedBatch]:
        """The file's batches, in order. ``DamagedStoreError`` at the latest after the last one, if a byte is not what
        the task wrote: nothing of it may be committed before the end has come."""
        path = os.path.join(self.folder, receipt.name)
        self.check(receipt)
        try:
            file = self._fs.open(path, "r")
            try:
                yield from _sections(file, receipt)
            finally:
                file.close()
        except OSError as error:
            raise from_os_error(error, "read", path) from error

    # --- the end of files ---

    def sweep(self, run: str, batch_id: int) -> int:
        """Remove what the run staged for this batch and those before it, and files so old that nobody comes back
        for them; how many went. A file that cannot be removed is logged and waits for the next sweep."""
        try:
            names = self._fs.listdir(self.folder)
        except FileNotFoundError:
            return 0
        except OSError as error:
            logger.warning("staging is not swept: %s", from_os_error(error, "list", self.folder))
            return 0
        oldest_ms = self._clock.wall_ms() - KEPT_MS
        removed = 0
        for name in sorted(names):
            found = attempt_of(name)
            if found is None:
                continue
            path = os.path.join(self.folder, name)
            try:
                own = found.run == run and found.batch_id <= batch_id
                if own or self._fs.stat(path).mtime_ns // 1_000_000 < oldest_ms:
                    self._fs.remove(path)
                    removed += 1
            except FileNotFoundError:
                continue  # another driver's sweep was first
            except OSError as error:
                logger.warning("a staging file stays: %s", from_os_error(error, "remove", path))
        return removed


class StagingFile:
    """A file being written by one attempt. Not thread-safe."""

    def __init__(self, fs: FileSystem, file: File) -> None:
        self._fs = fs
        self._file = file
        self._size = 0
        self._crc = 0
        self._topics: set[str] = set()
        self.append_bytes([_MAGIC])

    def append(self, staged: StagedBatch) -> None:
        """``StorageError`` and its kin: nothing of the batch counts, the file goes on where it was."""
        topic = staged.topic.encode()
        head = _SECTION.pack(len(topic), staged.partition, len(staged.batch))
        self.append_bytes([head, topic, staged.batch])
        self._topics.add(staged.topic)

    def append_bytes(self, parts: list[bytes]) -> None:
        try:
            self._size += write_all(self._file, parts, self._size)
        except OSError as error:
            raise from_os_error(error, "write", self._file.path) from error
        for part in parts:
            self._crc = crc32c.crc32c(part, self._crc)

    def finish(self, content: Content) -> Receipt:
        """Close the file. ``content``: of the rows in it."""
        path = self._file.path
        try:
            if self._file.size() != self._size:
                self._file.truncate(self._size)  # what an append left that failed half-way
        except OSError as error:
            raise from_os_error(error, "write", path) from error
        finally:
            self._file.close()
        return Receipt(os.path.basename(path), self._size, self._crc, tuple(sorted(self._topics)), content)

    def discard(self) -> None:
        """The attempt has failed: no file of it stays. What cannot be removed is swept later."""
        path = self._file.path
        self._file.close()
        try:
            self._fs.remove(path)
        except FileNotFoundError:
            return  # swept already
        except OSError as error:
            logger.warning("a staging file stays: %s", from_os_error(error, "remove", path))


def _sections(file: File, receipt: Receipt) -> Iterator[StagedBatch]:
    path = file.path
    magic = file.pread(len(_MAGIC), 0)
    if magic != _MAGIC:
        raise _damaged(path, "does not begin as one", 0)
    at, crc = len(_MAGIC), crc32c.crc32c(magic)
    while at < receipt.size:
        head = file.pread(_SECTION.size, at)
        if len(head) < _SECTION.size:
            raise _damaged(path, "ends within a section", at)
        name_size, partition, batch_size = _SECTION.unpack(head)
        body_size = name_size + batch_size
        # Lengths come from the file, which the checksum has not proved yet.
        if at + _SECTION.size + body_size > receipt.size:
            raise _damaged(path, "has a section that is longer than the file", at)
        body = file.pread(body_size, at + _SECTION.size)
        if len(body) < body_size:
            raise _damaged(path, "ends within a batch", at)
        at += _SECTION.size + body_size
        crc = crc32c.crc32c(body, crc32c.crc32c(head, crc))
        if at == receipt.size and crc != receipt.crc:
            raise _damaged(path, f"has the checksum {crc:08x}, and had {receipt.crc:08x}", 0)
        try:
            topic = body[:name_size].decode()
        except UnicodeDecodeError as error:
            raise _damaged(path, "names no topic", at) from error
        yield StagedBatch(topic, partition, body[name_size:])


def _damaged(path: str, what: str, position: int = -1) -> DamagedStoreError:
    return DamagedStoreError(
        f"staging file {path} {what}",
        hint="driver and executors must share the store's file system; run the batch again: start the query anew",
        path=path,
        position=position,
    )
