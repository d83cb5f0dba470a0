"""Many files made durable together: their data one by one, what the file system notes of them by one ``syncfs``.

An fdatasync of each of 300 files takes as many journal commits and flushes of the disk, however many threads share
them: 18 to 110 ms here, where this takes 5 to 15.

Errors: ``sync_file_range`` with all three flags writes and awaits a file's dirty pages as fdatasync does, and tells
the errors of that file on this descriptor, whoever began the writing. So ``syncfs`` adds the journal alone, whose
errors last: a journal that failed refuses from then on. (From Linux 5.8 on ``syncfs`` also tells of other files' failed
writes; as some descriptor may have been told before, nothing rests on that.) Before 5.8 it says too little, and is not
used.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from logstore.seams.sync_choice import SyncChoice

_WAIT_BEFORE: Final = 1
_WRITE: Final = 2
_WAIT_AFTER: Final = 4
_SINCE: Final = (5, 8)
_UNAVAILABLE: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""What a sandbox answers that does not know these calls or forbids them; no disk does."""


class _Calls(NamedTuple):
    sync_file_range: Callable[..., int]
    syncfs: Callable[..., int]


def _calls() -> _Calls | None:
    """None: this system has no such calls, or says too little of their errors."""
    if sys.platform != "linux" or not _is_new_enough(os.uname().release):
        return None
    try:
        library = ctypes.CDLL(None, use_errno=True)
        found = _Calls(library.sync_file_range, library.syncfs)
    except (OSError, AttributeError):
        return None
    found.sync_file_range.argtypes = (  # type: ignore[attr-defined]
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_uint,
    )
    found.syncfs.argtypes = (ctypes.c_int,)  # type: ignore[attr-defined]
    return found


def _is_new_enough(release: str) -> bool:
    numbers = release.split("-", 1)[0].split(".")
    try:
        return (int(numbers[0]), int(numbers[1])) >= _SINCE
    except (IndexError, ValueError):
        return False


_CALLS: Final = _calls()


class FileSyncs:
    """Safe for any thread. ``monotonic_s``: what the calls are timed by, for ``SyncChoice``."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._choice = SyncChoice()
        self._refused = False

    def sync(self, files: Sequence[tuple[int, str]]) -> None:
        """Content and size of all of these files (descriptor, path) become durable, on whatever file systems they are.
        ``OSError``: of none of them it is known to be."""
        if files and not (self._choice.together(len(files)) and self._together(files)):
            began_s = self._monotonic_s()
            for fd, _ in files:
                sync_descriptor(fd)
            self._choice.took_apart(len(files), self._monotonic_s() - began_s)

    def _together(self, files: Sequence[tuple[int, str]]) -> bool:
        """False: the calls are not to be had here, and are not asked for again."""
        if _CALLS is None or self._refused:
            return False
        began_s = self._monotonic_s()
        try:
            _sync_together(_CALLS, files)
        except OSError as error:
            if error.errno not in _UNAVAILABLE:
                raise
            self._refused = True
            return False
        self._choice.took_together(len(files), self._monotonic_s() - began_s)
        return True


def sync_descriptor(fd: int) -> None:
    """Content and size of one file become durable: fdatasync, or fsync on systems without it (macOS)."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def _sync_together(calls: _Calls, files: Sequence[tuple[int, str]]) -> None:
    for fd, path in files:  # all are on their way before the first is waited for
        _check(calls.sync_file_range(fd, 0, 0, _WRITE), path)
    devices: dict[int, tuple[int, str]] = {}
    for fd, path in files:
        _check(calls.sync_file_range(fd, 0, 0, _WAIT_BEFORE | _WRITE | _WAIT_AFTER), path)
        devices.setdefault(os.fstat(fd).st_dev, (fd, path))
    for fd, path in devices.values():
        _check(calls.syncfs(fd), path)


def _check(result: int, path: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
