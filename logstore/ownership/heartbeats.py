"""`.heartbeats`: when the members of consumer groups last gave a sign of life, for all processes of a machine.

    header, 64 bytes   magic 8s | version u16 | boot id length u16 | boot id | zeros
    slot n, 64 bytes   at 64 + 64 * n

    slot   0  member    16s   the member id's 32 hexadecimal digits
          16  beat      i64   ms of the clock that counts since the machine started
          24  crc32c    u32   of the 24 bytes before
          28  zeros

A slot has one writer: the member that holds its lock (``member_slots.py``). One whose checksum fails is being
written, or was when its writer was killed. The file is not durable and does not go through the
file-system seam: a beat of another boot counts for no member. It is written with ``pwrite`` and not through a mapping,
for the reason that ``live.py`` gives: on a full disk a store into a mapping kills the process, ``pwrite`` raises.

Beats are told apart by the monotonic clock, which all processes of a machine share: it neither jumps nor counts
the time for which the machine was suspended, in which no member could beat.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from logstore.errors import StorageError, StoreClosedError, from_os_error
from logstore.invariants import invariant
from logstore.seams.fs import PRIVATE, Access, make_replacement, open_regular

MAGIC: Final = b"LSBEAT\r\n"
VERSION: Final = 1
HEADER_BYTES: Final = 64
SLOT_BYTES: Final = 64

_HEADER: Final = struct.Struct(">8sHH")
_BODY: Final = struct.Struct(">16sq")
_CRC: Final = struct.Struct(">I")
_READ_TRIES: Final = 3


class Beat(NamedTuple):
    """``boot_ms``: of the monotonic clock."""

    member_id: str
    boot_ms: int


TORN: Final = Beat("", -1)  # a beat is being written, or was when its writer was killed: no member's


class HeartbeatBoard(Protocol):
    """Beats by slot. A slot is written by the member that holds its lock, and read by all processes."""

    def beat(self, slot: int, member_id: str, boot_ms: int) -> None:
        """``member_id`` (32 hexadecimal digits) lives at ``boot_ms``. StorageError, DiskFullError."""
        ...

    def read(self, slot: int) -> Beat | None:
        """The last beat; None if there was none in this boot, ``TORN`` if it cannot be made out."""
        ...

    def close(self) -> None: ...


class HeartbeatFile:
    """``HeartbeatBoard`` on the file ``path``. Thread-safe.

    ``boot_id``: which boot of the machine this is. ``writable``: makes the file, or replaces one of another
    boot; the caller holds a lock that keeps others from doing so at the same time. Not writable: a file that is
    not there, or of another boot, reads as empty, and is looked for again at each read.
    """

    def __init__(self, path: str, boot_id: str, *, writable: bool, access: Access = PRIVATE) -> None:
        self.path = path
        self._writable = writable
        self._closed = False
        self._guard = threading.Lock()
        boot = boot_id.encode()
        invariant(_HEADER.size + len(boot) <= HEADER_BYTES, "a boot id fits the header of .heartbeats")
        self._header = (_HEADER.pack(MAGIC, VERSION, len(boot)) + boot).ljust(HEADER_BYTES, b"\0")
        try:
            self._fd = self._open_current()
            if self._fd < 0 and writable:
                self._fd = self._replace(access)
        except OSError as error:
            raise from_os_error(error, "open", path) from error

    def beat(self, slot: int, member_id: str, boot_ms: int) -> None:
        invariant(self._writable, f"only a writable store beats in {self.path}")
        body = _BODY.pack(bytes.fromhex(member_id), boot_ms)
        data = (body + _CRC.pack(crc32c(body))).ljust(SLOT_BYTES, b"\0")
        with self._guard:
            self._check_open()
            try:
                count = os.pwrite(self._fd, data, HEADER_BYTES + SLOT_BYTES * slot)
            except OSError as error:
                raise from_os_error(error, "beat in", self.path) from error
        if count != SLOT_BYTES:
            raise StorageError(f"beat in {self.path} wrote {count} of {SLOT_BYTES} bytes", hint="free space")

    def read(self, slot: int) -> Beat | None:
        with self._guard:
            self._check_open()
            try:
                if self._fd < 0:
                    self._fd = self._open_current()
                if self._fd < 0:
                    return None
                for _ in range(_READ_TRIES):
                    data = os.pread(self._fd, SLOT_BYTES, HEADER_BYTES + SLOT_BYTES * slot)
                    body = data[: _BODY.size]
                    if not any(data):
                        return None
                    if len(data) < SLOT_BYTES or crc32c(body) != _CRC.unpack_from(data, _BODY.size)[0]:
                        continue  # a beat is being written
                    member, boot_ms = _BODY.unpack(body)
                    return Beat(member.hex(), boot_ms)
            except OSError as error:
                raise from_os_error(error, "read", self.path) from error
        return TORN

    def close(self) -> None:
        with self._guard:
            self._closed = True
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(f"{self.path} is used after its store was closed")

    def _open_current(self) -> int:
        """A descriptor of the file if it is of this boot and version, else -1."""
        try:
            fd = open_regular(self.path, os.O_RDWR if self._writable else os.O_RDONLY)
        except FileNotFoundError:
            return -1
        try:
            if os.pread(fd, HEADER_BYTES, 0) == self._header:
                keep, fd = fd, -1
                return keep
            return -1
        finally:
            if fd >= 0:
                os.close(fd)

    def _replace(self, access: Access) -> int:
        """An empty file, renamed into place: no process sees half a header."""
        temporary = self.path + ".tmp"
        fd = make_replacement(self.path, temporary, access)
        try:
            if os.pwrite(fd, self._header, 0) != HEADER_BYTES:
                raise StorageError(f"cannot write the header of {self.path}", hint="free space on the disk")
            os.rename(temporary, self.path)
        except BaseException:
            os.close(fd)
            raise
        return fd


class MemoryHeartbeats:
    """The twin: a dict. Several boards may share one ``table``, as processes share a file."""

    def __init__(self, table: dict[int, Beat] | None = None) -> None:
        self._table: dict[int, Beat] = {} if table is None else table

    def beat(self, slot: int, member_id: str, boot_ms: int) -> None:
        self._table[slot] = Beat(member_id, boot_ms)

    def read(self, slot: int) -> Beat | None:
        return self._table.get(slot)

    def reboot(self) -> None:
        """The machine restarted: no member of before is alive."""
        self._table.clear()

    def close(self) -> None:
        """Nothing to give back."""
