"""``FaultyDisk``: the operating system's files, on a disk that is slow, full or broken when a test says so."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence

from logstore.seams.fs import Access, File, OpenMode, OsFile, OsFileSystem
from logstore.types import Buffer


class FaultyDisk(OsFileSystem):
    """For ``logstore.open(path, fs=FaultyDisk())``. Faults may be set at any time, from any thread.

    ``slow_s``: every sync takes so much longer. ``full``: nothing more can be written (ENOSPC); what is there can be
    read and removed. ``broken``: syncs fail (EIO), and what they were to make durable is in doubt.
    """

    def __init__(self, access: Access | None = None) -> None:
        super().__init__() if access is None else super().__init__(access)
        self.slow_s = 0.0
        self.full = False
        self.broken = False
        self.refusals = 0

    def open(self, path: str, mode: OpenMode) -> OsFile:
        if mode == "create":
            self.check_room(path)
        found = super().open(path, mode)
        file = _FaultyFile(found.fileno(), path)
        file.disk = self
        return file

    def mkdir(self, path: str) -> None:
        self.check_room(path)
        super().mkdir(path)

    def link(self, source: str, target: str) -> None:
        self.check_room(target)
        super().link(source, target)

    def sync_files(self, files: Sequence[File]) -> None:
        for file in files[:1]:
            self.check_sync(file.path)
        super().sync_files(files)

    def sync_dir(self, path: str) -> None:
        self.check_sync(path)
        super().sync_dir(path)

    def check_room(self, path: str) -> None:
        """``OSError`` of a full disk."""
        if self.full:
            self.refusals += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def check_sync(self, path: str) -> None:
        """Takes its time; ``OSError`` of a broken disk."""
        if self.slow_s > 0:
            threading.Event().wait(self.slow_s)
        if self.broken:
            self.refusals += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


class _FaultyFile(OsFile):
    __slots__ = ("disk",)
    disk: FaultyDisk

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        self.disk.check_room(self.path)
        return super().pwritev(buffers, position)

    def truncate(self, size: int) -> None:
        if size > self.size():
            self.disk.check_room(self.path)
        super().truncate(size)

    def sync(self) -> None:
        self.disk.check_sync(self.path)
        super().sync()
