"""``.live``: where each partition stands right now, for readers in other processes beside its writer.

    header, 256 bytes    magic 8s | version u16 | boot id length u16 | boot id | zeros
    slot n, 128 bytes    at 256 + 128 * n: two copies of 64 bytes each

    copy   0  generation      i64    goes up by one with every publish; 0: never written
           8  log start       i64
          16  high watermark  i64
          24  last stable     i64
          32  log end         i64
          40  segment base    i64    base offset of the active segment
          48  end position    i64    byte in the active segment where the high watermark's batches end
          56  leader epoch    i32
          60  crc32c          u32    of the 60 bytes before

A publish goes to copy ``generation & 1``, so that the copy published before stays whole while the new one is
written: a torn copy is known by its checksum, and the reader takes the valid copy of the higher generation.

The file is not durable and so does not go through the file-system seam: it says what a running boot's page
cache holds, and a file of another boot reads as empty. It is written with ``pwrite`` and not through a
mapping: storing past the end of a mapping, or into a hole of it on a full disk, kills the process with
SIGBUS, while ``pwrite`` raises an error. A slot lies within one page and is one call.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from crc32c import crc32c

from logstore.errors import StorageError, StoreClosedError, from_os_error
from logstore.invariants import invariant
from logstore.native import compiled
from logstore.seams.fs import PRIVATE, Access, make_replacement, open_regular

MAGIC: Final = b"LSLIVE\r\n"
VERSION: Final = 1
HEADER_BYTES: Final = 256
COPY_BYTES: Final = 64
SLOT_BYTES: Final = 2 * COPY_BYTES

_HEADER = struct.Struct(">8sHH")
_BODY = struct.Struct(">qqqqqqqi")
_CRC = struct.Struct(">I")
_GENERATION = struct.Struct(">q")
_READ_TRIES: Final = 3
_NEVER_WRITTEN: Final = bytes(COPY_BYTES)


def write_slot(
    fd: int,
    place: int,
    known: tuple[bytes, bytes] | None,
    log_start: int,
    high_watermark: int,
    last_stable: int,
    log_end: int,
    segment_base: int,
    end_position: int,
    leader_epoch: int,
) -> tuple[int, bytes, bytes] | None:
    """Put a newer copy into the slot at byte ``place``, unless it says the same already (None). ``known``: the slot's
    bytes after this process's last publish, and the body that it wrote. Gives how many bytes were written, and what is
    to be known next time. ``OSError``."""
    # Another process may have owned the topic since our last publish: look before counting on.
    before = os.pread(fd, SLOT_BYTES, place)
    current = known[1] if known is not None and known[0] == before else _newest(before)[0]
    generation = 1 if current is None else _GENERATION.unpack_from(current)[0] + 1
    body = _BODY.pack(
        generation,
        log_start,
        high_watermark,
        last_stable,
        log_end,
        segment_base,
        end_position,
        leader_epoch,
    )
    if current is not None and current[8:] == body[8:]:
        return None
    copy = body + _CRC.pack(crc32c(body))
    if generation & 1:
        return (
            os.pwrite(fd, copy, place + COPY_BYTES),
            before[:COPY_BYTES].ljust(COPY_BYTES, b"\0") + copy,
            body,
        )
    return os.pwrite(fd, copy, place), copy + before[COPY_BYTES:], body


class LiveSlot(NamedTuple):
    """A partition's state as last published. Offsets count records; ``end_position`` is in bytes."""

    generation: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    segment_base: int
    end_position: int
    leader_epoch: int


class _SlotRead(NamedTuple):
    """What a slot said when it was read last; ``torn``: a publish was under way even then."""

    data: bytes
    found: LiveSlot | None
    torn: bool


class LiveBoard(Protocol):
    """Publishes and reads slots. A slot has one publisher at a time: the holder of its topic's lock."""

    def publish(
        self,
        slot: int,
        log_start_offset: int,
        high_watermark: int,
        last_stable_offset: int,
        log_end_offset: int,
        segment_base: int,
        end_position: int,
        leader_epoch: int,
    ) -> None:
        """Show this state; writes nothing when it is what is shown already. StorageError, DiskFullError."""
        ...

    def read(self, slot: int) -> LiveSlot | None:
        """The newest state; None when never written, when both copies are torn, or of another boot."""
        ...

    def read_all(self, slots: Sequence[int]) -> list[LiveSlot | None] | None:
        """The states of all these slots at one moment; None: some were published meanwhile, so try again.
        A publish that was under way at that moment is not seen."""
        ...

    def close(self) -> None: ...


@compiled("partition.live")
class LivePublisher:
    """What a publish touches of ``.live``. ``_written``: by slot, the file's bytes after our publish, and the body."""

    def __init__(self, path: str, writable: bool) -> None:
        self.path = path
        self._writable = writable
        self._fd = -1
        self._written: dict[int, tuple[bytes, bytes]] = {}

    if TYPE_CHECKING:

        def _refuse_publish(self) -> None: ...

    def publish(
        self,
        slot: int,
        log_start_offset: int,
        high_watermark: int,
        last_stable_offset: int,
        log_end_offset: int,
        segment_base: int,
        end_position: int,
        leader_epoch: int,
    ) -> None:
        fd = self._fd
        if fd < 0 or not self._writable:
            self._refuse_publish()
        place = HEADER_BYTES + SLOT_BYTES * slot
        try:
            written = write_slot(
                fd,
                place,
                self._written.get(slot),
                log_start_offset,
                high_watermark,
                last_stable_offset,
                log_end_offset,
                segment_base,
                end_position,
                leader_epoch,
            )
        except OSError as error:
            raise from_os_error(error, "publish to", self.path) from error
        if written is None:
            return
        count, after, body = written
        if count != COPY_BYTES:
            raise StorageError(
                f"publish to {self.path} wrote {count} of {COPY_BYTES} bytes", hint="free space"
            )
        self._written[slot] = (after, body)


class LiveFile(LivePublisher):
    """``LiveBoard`` on a file.

    ``boot_id``: which boot of the machine this is (``Clock.boot_id``). ``writable``: makes the file, or
    replaces one of another boot or version; the caller holds the catalogue's lock while it opens. Not
    writable: a missing or foreign file reads as empty, and is looked for again at every read, so that a
    reader started before the writer sees it.

    Slots may be read from any thread, and published by one thread a slot at a time. ``access``: permissions of
    a new file.
    """

    def __init__(self, path: str, boot_id: str, *, writable: bool, access: Access = PRIVATE) -> None:
        super().__init__(path, writable)
        self._boot_id = boot_id
        self._closed = False
        self._guard = threading.Lock()  # around opening and retiring of descriptors
        self._retired: list[int] = []
        self._last_read: dict[int, _SlotRead] = {}
        header = _header(boot_id)
        try:
            self._fd = self._open_current(header)
            if self._fd < 0 and writable:
                self._fd = _replace(path, header, access)
        except OSError as error:
            raise from_os_error(error, "open", path) from error

    def read(self, slot: int) -> LiveSlot | None:
        if self._closed:
            raise StoreClosedError(f"read of {self.path} after its store was closed")
        try:
            data = self._fetch(slot)
            last = self._last_read.get(slot)
            if last is not None and data == last.data:
                # Nothing new: perhaps because the file was replaced. (What we publish ourselves, we read.)
                if not self._writable and self._drop_replaced():
                    data = self._fetch(slot)
                elif not last.torn:
                    return last.found
            newest: bytes | None = None
            torn = False
            for _ in range(_READ_TRIES):
                newest, torn = _newest(data)
                if not torn:
                    break
                data = self._fetch(slot)  # a publish is under way: the torn copy may be the newer one
            found = None if newest is None else LiveSlot._make(_BODY.unpack(newest))
            self._last_read[slot] = _SlotRead(data, found, torn)
            return found
        except OSError as error:
            raise from_os_error(error, "read", self.path) from error

    def read_all(self, slots: Sequence[int]) -> list[LiveSlot | None] | None:
        """Two looks at the whole file, one right after the other, that show the same bytes: between them nothing
        was published. Through a mapping: between two ``pread`` another thread would get the GIL, and publish.
        Only whole pages that the file has are looked at, and the file is never shortened."""
        if self._closed:
            raise StoreClosedError(f"read of {self.path} after its store was closed")
        size = HEADER_BYTES + SLOT_BYTES * (max(slots, default=-1) + 1)
        try:
            self._drop_replaced()
            self._fetch(0)  # looks for the file
            fd = self._fd
            if fd < 0:
                return [None] * len(slots)
            with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as mapping:
                first, second = mapping[:size], mapping[:size]
        except OSError as error:
            raise from_os_error(error, "read", self.path) from error
        if first != second:
            return None
        found: list[LiveSlot | None] = []
        for slot in slots:
            place = HEADER_BYTES + SLOT_BYTES * slot
            newest = _newest(first[place : place + SLOT_BYTES])[0]
            found.append(None if newest is None else LiveSlot._make(_BODY.unpack(newest)))
        return found

    def close(self) -> None:
        with self._guard:
            self._closed = True
            fds = [fd for fd in (self._fd, *self._retired) if fd >= 0]
            self._fd = -1
            self._retired.clear()
        for fd in fds:
            os.close(fd)

    def _refuse_publish(self) -> None:
        if self._closed:
            raise StoreClosedError(f"publish to {self.path} after its store was closed")
        invariant(False, f"only a writable store publishes to {self.path}")

    def _fetch(self, slot: int) -> bytes:
        """Both copies of the slot as they stand in the file; empty when there is no file of this boot."""
        fd = self._fd
        if fd < 0:
            with self._guard:
                if self._fd < 0 and not self._closed:
                    self._fd = self._open_current(_header(self._boot_id))
                fd = self._fd
            if fd < 0:
                return b""
        return os.pread(fd, SLOT_BYTES, HEADER_BYTES + SLOT_BYTES * slot)

    def _drop_replaced(self) -> bool:
        """Let go of a file that has lost its name, so that the next fetch looks for the one in its place; whether there
        may be another one.

        Its descriptor stays open until ``close``: another thread may be reading from it.
        """
        with self._guard:
            if self._fd >= 0 and os.fstat(self._fd).st_nlink:
                return False
            if self._fd >= 0:
                self._retired.append(self._fd)
                self._fd = -1
            return True

    def _open_current(self, header: bytes) -> int:
        """A descriptor of the file at ``path`` if it is of this boot and version, else -1."""
        access = os.O_RDWR if self._writable else os.O_RDONLY
        try:
            fd = open_regular(self.path, access)
        except FileNotFoundError:
            return -1
        try:
            if os.pread(fd, HEADER_BYTES, 0) == header:
                keep, fd = fd, -1
                return keep
            return -1
        finally:
            if fd >= 0:
                os.close(fd)


class MemoryLive:
    """The twin: a dict. Several boards may share one ``table``, as processes share a file."""

    def __init__(self, table: dict[int, LiveSlot] | None = None) -> None:
        self._table: dict[int, LiveSlot] = {} if table is None else table

    def publish(
        self,
        slot: int,
        log_start_offset: int,
        high_watermark: int,
        last_stable_offset: int,
        log_end_offset: int,
        segment_base: int,
        end_position: int,
        leader_epoch: int,
    ) -> None:
        current = self._table.get(slot)
        shown = LiveSlot(
            1 if current is None else current.generation + 1,
            log_start_offset,
            high_watermark,
            last_stable_offset,
            log_end_offset,
            segment_base,
            end_position,
            leader_epoch,
        )
        if current is None or current[1:] != shown[1:]:
            self._table[slot] = shown

    def read(self, slot: int) -> LiveSlot | None:
        return self._table.get(slot)

    def read_all(self, slots: Sequence[int]) -> list[LiveSlot | None] | None:
        table = self._table.copy()  # one step: no thread comes in between
        return [table.get(slot) for slot in slots]

    def reboot(self) -> None:
        """The machine restarted: what was published is of another boot."""
        self._table.clear()

    def close(self) -> None:
        """Nothing to give back."""


def _header(boot_id: str) -> bytes:
    boot = boot_id.encode()
    invariant(_HEADER.size + len(boot) <= HEADER_BYTES, "a boot id fits the header of .live")
    return (_HEADER.pack(MAGIC, VERSION, len(boot)) + boot).ljust(HEADER_BYTES, b"\0")


def _replace(path: str, header: bytes, access: Access) -> int:
    """Put an empty file at ``path``; returns its descriptor. Renamed into place, so that no reader ever
    sees half a header, and a reader of the old file keeps its old inode until it looks again."""
    temporary = path + ".tmp"
    fd = make_replacement(path, temporary, access)
    try:
        if os.pwrite(fd, header, 0) != HEADER_BYTES:
            raise StorageError(f"cannot write the header of {path}", hint="free space on the disk")
        os.rename(temporary, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _newest(data: bytes) -> tuple[bytes | None, bool]:
    """The body of the valid copy of the higher generation, and whether a copy was torn."""
    best: bytes | None = None
    torn = False
    for start in (0, COPY_BYTES):
        copy = data[start : start + COPY_BYTES]
        if len(copy) < COPY_BYTES or copy == _NEVER_WRITTEN:
            continue
        body = copy[: _BODY.size]
        if crc32c(body) != _CRC.unpack_from(copy, _BODY.size)[0]:
            torn = True
        elif best is None or body[:8] > best[:8]:  # generations are positive: bytes compare like numbers
            best = body
    return best, torn
