"""How a slot is locked, by platform: a byte of one file, or a file of its own. ``locks.py`` says what for."""

from __future__ import annotations

import errno
import os
import struct
import sys
from typing import Final, Protocol

from logstore.seams.fs import open_regular

if sys.platform != "win32":
    import fcntl

SLOT_BYTES: Final = 256

_FLOCK = struct.Struct("hhqqi0q")  # C's struct flock on 64-bit Linux: type, whence, start, length, pid
_TAKEN_ERRNOS: Final = (errno.EAGAIN, errno.EACCES)


class LockMechanism(Protocol):
    """Locks and holder records on descriptors. Raises ``OSError``."""

    def lock(self, slot: int) -> bool: ...
    def unlock(self, slot: int) -> None: ...
    def locked_by_other(self, slot: int) -> bool: ...
    def lock_turn(self, slot: int) -> bool:
        """Be the one who gets the slot next; False while another is."""
        ...

    def unlock_turn(self, slot: int) -> None: ...
    def turn_taken(self, slot: int) -> bool:
        """Whether another waits to be next."""
        ...

    def write_record(self, slot: int, record: bytes) -> None: ...
    def read_record(self, slot: int) -> bytes: ...
    def close(self) -> None:
        """Close the descriptors without unlocking: a fork's child must not free what its parent holds."""
        ...


def _open(path: str, mode_bits: int) -> int:
    try:
        return open_regular(path, os.O_RDWR)
    except FileNotFoundError:
        fd = open_regular(path, os.O_RDWR | os.O_CREAT, mode_bits)
        if os.fstat(fd).st_uid == os.geteuid():
            os.fchmod(fd, mode_bits)  # the umask must not undo what the caller asked for
        return fd


def _range(kind: int, slot: int, byte: int = 0) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, slot * SLOT_BYTES + byte, 1, 0)


class RangeLocks:
    """One file; slot n is byte 256 * n, its turn the byte behind, locked for the open file description (Linux)."""

    def __init__(self, path: str, mode_bits: int, *, writable: bool = True) -> None:
        self._fd = _open(path, mode_bits) if writable else open_regular(path, os.O_RDONLY)

    def lock(self, slot: int) -> bool:
        return self._lock_byte(slot, 0)

    def unlock(self, slot: int) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _range(fcntl.F_UNLCK, slot))

    def locked_by_other(self, slot: int) -> bool:
        return self._byte_taken(slot, 0)

    def lock_turn(self, slot: int) -> bool:
        return self._lock_byte(slot, 1)

    def unlock_turn(self, slot: int) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _range(fcntl.F_UNLCK, slot, 1))

    def turn_taken(self, slot: int) -> bool:
        return self._byte_taken(slot, 1)

    def _lock_byte(self, slot: int, byte: int) -> bool:
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _range(fcntl.F_WRLCK, slot, byte))
        except OSError as error:
            if error.errno in _TAKEN_ERRNOS:
                return False
            raise
        return True

    def _byte_taken(self, slot: int, byte: int) -> bool:
        answer = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _range(fcntl.F_WRLCK, slot, byte))
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

    def __init__(self, path: str, mode_bits: int) -> None:
        self._path = path
        self._mode_bits = mode_bits
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

    def _lock_file(self, path: str, slot: int, fds: dict[int, int]) -> bool:
        fd = _open(path, self._mode_bits)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in _TAKEN_ERRNOS:
                return False
            raise
        fds[slot] = fd
        return True

    @staticmethod
    def _unlock_file(slot: int, fds: dict[int, int]) -> None:
        fd = fds.pop(slot)
        try:
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would not free it while a fork's child lives
        finally:
            os.close(fd)

    def locked_by_other(self, slot: int) -> bool:
        """flock has no question: try a shared lock and drop it. Somebody who tries at that very moment
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
        return RangeLocks(path, 0, writable=False)
    return WholeFileLocks(path, 0)


def choose_mechanism(path: str, mode_bits: int) -> LockMechanism:
    """The best mechanism of this platform on the file ``path``. Raises ``OSError``."""
    if sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK"):
        return RangeLocks(path, mode_bits)
    return WholeFileLocks(path, mode_bits)
