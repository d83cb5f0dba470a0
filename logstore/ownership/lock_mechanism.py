"""How a slot is locked, by platform: a byte of one file, or a file of its own. ``locks.py`` says what for."""

from __future__ import annotations

import errno
import os
import struct
import sys
from contextlib import suppress
from typing import Final, Protocol

from logstore.seams.fs import PRIVATE, Access, open_regular

if sys.platform != "win32":
    import fcntl

SLOT_BYTES: Final = 256

_FLOCK = struct.Struct("hhqqi0q")  # C's struct flock on 64-bit Linux: type, whence, start, length, pid
_TURNS: Final = 1 << 62  # the turn of slot n is the byte at _TURNS + n: all turns lie side by side
_TAKEN_ERRNOS: Final = (errno.EAGAIN, errno.EACCES)


class LockMechanism(Protocol):
    """Locks and holder records on descriptors. Raises ``OSError``."""

    def lock(self, slot: int) -> bool: ...
    def unlock(self, slot: int) -> None: ...
    def locked_by_other(self, slot: int) -> bool: ...
    def lock_turn(self, slot: int) -> bool:
        """Be the one that gets the slot next; False while another is."""
        ...

    def unlock_turn(self, slot: int) -> None: ...
    def turn_taken(self, slot: int) -> bool:
        """Whether another waits to be next."""
        ...

    def any_turn_taken(self) -> bool:
        """Whether another may wait to be next for any slot: False only if none does."""
        ...

    def is_in_place(self) -> bool:
        """Whether the files of all locks that are held are those that others find under their paths."""
        ...

    def remove(self, slot: int) -> None:
        """Take away the file of a slot that is held: a process that opened it before and locks it now holds nothing."""
        ...

    def write_record(self, slot: int, record: bytes) -> None: ...
    def read_record(self, slot: int) -> bytes: ...
    def close(self) -> None:
        """Close the descriptors without unlocking: a fork's child must not free what its parent holds."""
        ...


def _open(path: str, access: Access) -> int:
    try:
        return open_regular(path, os.O_RDWR)
    except FileNotFoundError:
        fd = open_regular(path, os.O_RDWR | os.O_CREAT, access.file_bits)
        try:
            if os.fstat(fd).st_uid == os.geteuid():  # else another process made it in this moment
                access.give(fd)
        except OSError:
            os.close(fd)
            raise
        return fd


def _bytes(kind: int, start: int, length: int = 1) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def is_file_at(path: str, fd: int) -> bool:
    """Whether the file that ``fd`` has open is the one under ``path`` now."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    mine = os.fstat(fd)
    return (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev)


class RangeLocks:
    """One file; slot n is byte 256 * n, its turn a byte far behind, locked for the open file description (Linux)."""

    def __init__(self, path: str, access: Access, *, writable: bool = True) -> None:
        self._path = path
        self._fd = _open(path, access) if writable else open_regular(path, os.O_RDONLY)

    def lock(self, slot: int) -> bool:
        return self._lock_byte(slot * SLOT_BYTES)

    def unlock(self, slot: int) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _bytes(fcntl.F_UNLCK, slot * SLOT_BYTES))

    def locked_by_other(self, slot: int) -> bool:
        return self._bytes_taken(slot * SLOT_BYTES)

    def lock_turn(self, slot: int) -> bool:
        return self._lock_byte(_TURNS + slot)

    def unlock_turn(self, slot: int) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _bytes(fcntl.F_UNLCK, _TURNS + slot))

    def turn_taken(self, slot: int) -> bool:
        return self._bytes_taken(_TURNS + slot)

    def any_turn_taken(self) -> bool:
        return self._bytes_taken(_TURNS, 0)  # a length of 0 reaches to the end of all bytes there may be

    def is_in_place(self) -> bool:
        return is_file_at(self._path, self._fd)

    def remove(self, slot: int) -> None:
        del slot  # all slots are in one file: only files of a single slot are removed
        os.unlink(self._path)

    def _lock_byte(self, start: int) -> bool:
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _bytes(fcntl.F_WRLCK, start))
        except OSError as error:
            if error.errno in _TAKEN_ERRNOS:
                return False
            raise
        return True

    def _bytes_taken(self, start: int, length: int = 1) -> bool:
        answer = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _bytes(fcntl.F_WRLCK, start, length))
        kind: int = _FLOCK.unpack(answer)[0]
        return kind != fcntl.F_UNLCK

    def write_record(self, slot: int, record: bytes) -> None:
        os.pwrite(self._fd, record, slot * SLOT_BYTES)

    def read_record(self, slot: int) -> bytes:
        return os.pread(self._fd, SLOT_BYTES, slot * SLOT_BYTES)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class WholeFileLocks:
    """One file per slot, ``<path>.<slot>``, under ``flock`` (macOS and other systems without OFD locks); its turn
    is ``<path>.<slot>.turn``."""

    def __init__(self, path: str, access: Access) -> None:
        self._path = path
        self._access = access
        self._fds: dict[int, int] = {}
        self._turns: dict[int, int] = {}

    def _slot_path(self, slot: int) -> str:
        return f"{self._path}.{slot}"

    def lock(self, slot: int) -> bool:
        return self._lock_file(self._slot_path(slot), slot, self._fds)

    def unlock(self, slot: int) -> None:
        self._unlock_file(slot, self._fds)

    def lock_turn(self, slot: int) -> bool:
        return self._lock_file(self._slot_path(slot) + ".turn", slot, self._turns)

    def unlock_turn(self, slot: int) -> None:
        self._unlock_file(slot, self._turns)

    def turn_taken(self, slot: int) -> bool:
        return self._file_taken(self._slot_path(slot) + ".turn")

    def any_turn_taken(self) -> bool:
        return True  # it cannot be told at a stroke: each slot is asked

    def is_in_place(self) -> bool:
        return all(is_file_at(self._slot_path(slot), fd) for slot, fd in list(self._fds.items()))

    def remove(self, slot: int) -> None:
        path = self._slot_path(slot)
        for name in (path + ".turn", path):
            with suppress(FileNotFoundError):  # no process ever waited for the turn
                os.unlink(name)

    def _lock_file(self, path: str, slot: int, fds: dict[int, int]) -> bool:
        while True:
            fd = _open(path, self._access)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if error.errno in _TAKEN_ERRNOS:
                    return False
                raise
            if is_file_at(path, fd):
                fds[slot] = fd
                return True
            os.close(fd)  # removed by its last holder between the two calls

    @staticmethod
    def _unlock_file(slot: int, fds: dict[int, int]) -> None:
        fd = fds.pop(slot)
        try:
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would not free it while a fork's child lives
        finally:
            os.close(fd)

    def locked_by_other(self, slot: int) -> bool:
        """flock has no question: try a shared lock and drop it. A process that tries at that very moment
        fails once, and tries again after its pause."""
        return self._file_taken(self._slot_path(slot))

    @staticmethod
    def _file_taken(path: str) -> bool:
        try:
            fd = open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN_ERRNOS:
                return True
            raise
        finally:
            os.close(fd)
        return False

    def write_record(self, slot: int, record: bytes) -> None:
        os.pwrite(self._fds[slot], record, 0)

    def read_record(self, slot: int) -> bytes:
        fd = open_regular(self._slot_path(slot), os.O_RDONLY)
        try:
            return os.pread(fd, SLOT_BYTES, 0)
        finally:
            os.close(fd)

    def close(self) -> None:
        for fds in (self._fds, self._turns):
            while fds:
                os.close(fds.popitem()[1])


def choose_view(path: str) -> LockMechanism:
    """The same to look only: nothing is made or written. Raises ``OSError``, FileNotFoundError among it."""
    if sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK"):
        return RangeLocks(path, PRIVATE, writable=False)
    return WholeFileLocks(path, PRIVATE)


def choose_mechanism(path: str, access: Access) -> LockMechanism:
    """The best mechanism of this platform on the file ``path``. Raises ``OSError``."""
    if sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK"):
        return RangeLocks(path, access)
    return WholeFileLocks(path, access)
