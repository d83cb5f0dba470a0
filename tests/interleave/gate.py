"""A file system that stops a thread at one of its calls, so that others can act in the middle of what it does.

A point is (number of the call, before or after it). The numbers count the calls that change something or make
something durable, made since ``arm`` by any thread but those that ``ignoring`` names: group commit may sync on
another thread than the one that appended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from logstore.seams.fs import File, FileIdentity, FileStat, OpenMode
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.types import Buffer

LONGEST_WAIT_S: Final = 120.0


@dataclass(slots=True)
class Gate:
    """Where a thread is to be stopped. ``names``: the counted calls since ``arm``, in order."""

    names: list[str] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)
    _go: threading.Event = field(default_factory=threading.Event)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _armed: bool = False
    _stop: tuple[int, str] | None = None
    _ignored: set[int] = field(default_factory=set)

    def arm(self, stop: tuple[int, str] | None) -> None:
        """Count from now on; ``stop``: (call, "before" or "after"), None to count only."""
        self.names, self._stop, self._armed = [], stop, True
        self.reached.clear()
        self._go.clear()

    def disarm(self) -> None:
        """Count no more, and let go of a stopped thread."""
        self._armed = False
        self._go.set()

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """Calls of this thread are not counted inside."""
        me = threading.get_ident()
        self._ignored.add(me)
        try:
            yield
        finally:
            self._ignored.discard(me)

    def around(self, name: str, call: Callable[[], Any]) -> Any:
        """Make the call; stop before or after it where that was asked for."""
        if not self._armed or threading.get_ident() in self._ignored:
            return call()
        with self._guard:
            self.names.append(name)
            number = len(self.names)
        stop = self._stop
        if stop == (number, "before"):
            self._wait()
        try:
            return call()
        finally:
            if stop == (number, "after"):
                self._wait()

    def _wait(self) -> None:
        self.reached.set()
        if not self._go.wait(LONGEST_WAIT_S):
            raise TimeoutError("a stopped thread was not let go")


class GatedFile:
    """``File`` whose writes and syncs pass the gate."""

    def __init__(self, inner: File, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate
        self.path = inner.path
        self.pread, self.size, self.identity = inner.pread, inner.size, inner.identity
        self.map, self.write_soon, self.close = inner.map, inner.write_soon, inner.close

    path: str
    pread: Callable[[int, int], bytes]
    size: Callable[[], int]
    identity: Callable[[], FileIdentity]
    map: Callable[[], memoryview]
    write_soon: Callable[[int, int], None]
    close: Callable[[], None]

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        kept = [bytes(buffer) for buffer in buffers]
        written: int = self._gate.around(f"pwritev {self.path}", lambda: self._inner.pwritev(kept, position))
        return written

    def sync(self) -> None:
        self._gate.around(f"sync {self.path}", self._inner.sync)

    def truncate(self, size: int) -> None:
        self._gate.around(f"truncate {self.path}", lambda: self._inner.truncate(size))


class GatedFileSystem:
    """``FileSystem`` in memory behind a gate."""

    def __init__(self, inner: MemoryFileSystem, gate: Gate) -> None:
        self.inner = inner
        self.gate = gate

    def open(self, path: str, mode: OpenMode) -> File:
        if mode == "create":
            made: File = self.gate.around(f"create {path}", lambda: self.inner.open(path, mode))
            return GatedFile(made, self.gate)
        return GatedFile(self.inner.open(path, mode), self.gate)

    def stat(self, path: str) -> FileStat:
        return self.inner.stat(path)

    def listdir(self, path: str) -> list[str]:
        return self.inner.listdir(path)

    def mkdir(self, path: str) -> None:
        self.gate.around(f"mkdir {path}", lambda: self.inner.mkdir(path))

    def rename(self, source: str, target: str) -> None:
        self.gate.around(f"rename {target}", lambda: self.inner.rename(source, target))

    def link(self, source: str, target: str) -> None:
        self.gate.around(f"link {target}", lambda: self.inner.link(source, target))

    def keep_access(self, replaced: str, replacement: str) -> None:
        self.inner.keep_access(replaced, replacement)

    def remove(self, path: str) -> None:
        self.gate.around(f"remove {path}", lambda: self.inner.remove(path))

    def rmdir(self, path: str) -> None:
        self.gate.around(f"rmdir {path}", lambda: self.inner.rmdir(path))

    def sync_files(self, files: Sequence[File]) -> None:
        for file in files:
            file.sync()

    def sync_dir(self, path: str) -> None:
        self.gate.around(f"sync_dir {path}", lambda: self.inner.sync_dir(path))
