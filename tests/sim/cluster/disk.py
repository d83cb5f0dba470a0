"""``SimulatedDisk``: the crash-simulating file system, whose syncs take time, in which other tasks run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from logstore.seams.fs import File, OpenMode
from logstore.seams.memory_fs import MemoryFile, MemoryFileSystem
from tests.sim.cluster.scheduler import Scheduler

ROOT: Final = "/data"


class SimulatedDisk:
    """A ``FileSystem`` on ``fs``. ``longest_sync_s``: a slow disk's is longer; ``root_s``: how much longer
    the sync of the store's own directory may take, which no log waits for."""

    def __init__(self, scheduler: Scheduler, dice: random.Random, fs: MemoryFileSystem) -> None:
        self.fs = fs
        self.longest_sync_s = 0.002
        self.root_s = 0.0
        self._scheduler = scheduler
        self._dice = dice
        self.stat, self.listdir, self.mkdir = fs.stat, fs.listdir, fs.mkdir
        self.rename, self.link, self.remove, self.rmdir = fs.rename, fs.link, fs.remove, fs.rmdir
        self.keep_access = fs.keep_access
        self.access = fs.access

    def open(self, path: str, mode: OpenMode) -> SimulatedFile:
        return SimulatedFile(self, self.fs.open(path, mode))

    def sync_dir(self, path: str) -> None:
        self.wait()
        if self.root_s and path == ROOT:
            self._scheduler.let_pass(self._dice.random() * self.root_s)
        self.fs.sync_dir(path)

    def sync_files(self, files: Sequence[File]) -> None:
        """As a file's sync, of all: some reach the disk before the rest of the time passes, and some after."""
        late = []
        for file in files:
            if not isinstance(file, SimulatedFile):
                raise TypeError("a file of another disk")
            if self._dice.random() < 0.5:
                late.append(file)
            else:
                file.put_on_disk()
        self.wait()
        for file in late:
            file.put_on_disk()

    def wait(self) -> None:
        self._scheduler.let_pass(self._dice.random() * self.longest_sync_s)


class SimulatedFile:
    """A ``File``."""

    def __init__(self, disk: SimulatedDisk, file: MemoryFile) -> None:
        self._disk = disk
        self._file = file
        self.path = file.path
        self.pread, self.pwritev, self.write_soon = file.pread, file.pwritev, file.write_soon
        self.truncate, self.size, self.identity = file.truncate, file.size, file.identity
        self.map, self.close = file.map, file.close
        self.put_on_disk = file.sync  # at once

    def sync(self) -> None:
        """Half of the time the disk has the data at once and says so late, half of the time the other way round."""
        late = self._disk._dice.random() < 0.5
        if not late:
            self._file.sync()
        self._disk.wait()
        if late:
            self._file.sync()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a file has no {name}")
