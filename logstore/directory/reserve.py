"""``.reserve``: some room on the disk that is given back where an operation is about to free more.

On a full disk nothing could be deleted otherwise: what is to go has to be noted durably first, in small files that
are written anew and renamed. So a store keeps a file of ``SIZE_BYTES`` and removes it before a topic or records are
deleted, settings are changed, or retention does its work; it is made again afterwards if there is room. Nothing is
read from it, and nothing depends on it but that room: it is never synced.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from logstore.arguments import whole
from logstore.errors import from_os_error
from logstore.seams.fs import FileSystem, write_all

FILE_NAME: Final = ".reserve"
SIZE_BYTES: Final = 128 << 10
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def reserve_size(asked: object, *, on_disk: bool) -> int:
    """What ``reserve_bytes`` means; None: the default of a store on a disk, none of one in memory."""
    if asked is None:
        return SIZE_BYTES if on_disk else 0
    return whole(asked, "reserve_bytes")


class Reserve:
    """Of one store's folder; processes share the file. ``size_bytes``: 0 keeps none."""

    def __init__(self, fs: FileSystem, root: str, size_bytes: int) -> None:
        self._fs = fs
        self._path = f"{root}/{FILE_NAME}"
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._inside = 0  # how many are using the room
        self.is_lost = False  # the disk was too full to make it again

    def keep(self) -> None:
        """Have the file, if there is room for it. StorageError if the disk refuses for another reason."""
        if self._size_bytes == 0:
            return
        try:
            try:
                if self._fs.stat(self._path).size == self._size_bytes:
                    self.is_lost = False
                    return
                self._fs.remove(self._path)  # a crash, or a full disk, left a part of it
            except FileNotFoundError:
                pass  # the usual case: it is made below
            self._make()
            self.is_lost = False
        except FileExistsError:
            self.is_lost = False  # another process has just made it
        except OSError as error:
            if error.errno not in _FULL:
                raise from_os_error(error, "write", self._path) from error
            self.is_lost = True
            self._remove()

    def _make(self) -> None:
        file = self._fs.open(self._path, "create")
        try:
            # Bytes that no file system stores in less room than they have.
            write_all(file, [Random(0).randbytes(self._size_bytes)], 0)
        finally:
            file.close()

    def _remove(self) -> None:
        try:
            self._fs.remove(self._path)
        except FileNotFoundError:
            pass  # another process needed the room, or it was never made
        except OSError as error:
            raise from_os_error(error, "remove", self._path) from error

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Its room is free inside; may be nested, and entered by several threads. StorageError."""
        if self._size_bytes == 0:
            yield
            return
        with self._lock:
            self._inside += 1
            self._remove()
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self.keep()
