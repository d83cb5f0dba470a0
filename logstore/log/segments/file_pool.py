"""One bounded pool of open files and mappings for a whole store.

``mmap`` duplicates its descriptor and keeps it, so a mapping costs as much as an open file; both count. An
entry in use (pinned) is never closed under its user. Who asks for a mapping gets a view of its own, so that
the pool never invalidates one that is out. A mapping whose views are out cannot be closed: it stays and
counts; when every place is taken by such entries, ``mapping`` answers None and the caller reads with
``pread`` instead.
"""

from __future__ import annotations

import errno
import logging
import resource
from types import TracebackType
from typing import Final

from logstore.log.segments.file_pins import FilePins, PoolEntry, PoolKey
from logstore.seams.fs import File, FileIdentity, FileSystem

logger = logging.getLogger(__name__)

_MOST: Final = 400
_SMALLEST: Final = 4
_FOR_OTHERS: Final = (
    64  # descriptors of the process that are not the store's: streams, sockets, modules being imported
)


def default_capacity() -> int:
    """How many files a store may hold open in this process: 400, or half of what the process may open beside what
    others need."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    return max(min(_MOST, (soft - _FOR_OTHERS) // 2), _SMALLEST)


class PinnedFile:
    """``with pool.pinned(path, writable) as file``: the file stays open inside the block."""

    __slots__ = ("_file", "_identity", "_key", "_pool")

    def __init__(self, pool: FilePool, key: PoolKey, identity: FileIdentity | None) -> None:
        self._pool = pool
        self._key = key
        self._identity = identity
        self._file: File | None = None

    def __enter__(self) -> File:
        self._file = file = self._pool.pin(self._key[0], self._key[1] == "rw", self._identity)
        return file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._pool.unpin(self._file, self._key[1] == "rw")


class FilePool(FilePins):
    """At most ``capacity`` descriptors, least recently used closed first. Safe for any thread. See ``FilePins`` for
    ``pin`` and ``unpin``."""

    def __init__(self, fs: FileSystem, capacity: int = 400) -> None:
        super().__init__(capacity)
        self._fs = fs
        self._closed = False

    @property
    def fs(self) -> FileSystem:
        return self._fs

    def pinned(self, path: str, writable: bool = False, identity: FileIdentity | None = None) -> PinnedFile:
        return PinnedFile(self, (path, "rw" if writable else "r"), identity)

    def _opened(self, key: PoolKey, identity: FileIdentity | None) -> PoolEntry:
        """The file, opened and in its place among the entries. The lock is held; errors as ``pin``."""
        path, mode = key
        self._check_open(path)
        self._make_room()
        file = self._fs.open(path, "rw" if mode == "rw" else "r")
        entry = self._entries[key] = PoolEntry(file, None, self._checked_identity(file, identity))
        return entry

    def _unpin_doomed(self, file: File) -> None:
        """The lock is held."""
        for doomed in self._doomed:
            if doomed.file is file:
                doomed.pins -= 1
                if doomed.pins == 0:
                    self._pinned -= 1
                    self._doomed.remove(doomed)
                    self._close(doomed)
                return

    def mapping(self, path: str, identity: FileIdentity | None = None) -> memoryview | None:
        """A view of a whole closed file, or None when all places are pinned. Errors as ``pin``."""
        key = (path, "map")
        with self._lock:
            entry = self._known(key, identity)
            if entry is not None:
                self._entries.move_to_end(key)
                return None if entry.view is None else memoryview(entry.view)
            self._check_open(path)
            if not self._make_room():
                return None
            file = self._fs.open(path, "r")
            found = self._checked_identity(file, identity)
            try:
                view = file.map()
            finally:
                file.close()
            self._entries[key] = PoolEntry(None, view, found)
            return memoryview(view)

    def _known(self, key: PoolKey, identity: FileIdentity | None) -> PoolEntry | None:
        """The entry, unless it is (or may be) of another file than is asked for: then it is dropped."""
        entry = self._entries.get(key)
        if entry is None or identity is None:
            return entry
        if entry.identity is not None and identity.is_of(entry.identity):
            return entry
        self._drop(key)
        return None

    @staticmethod
    def _checked_identity(file: File, identity: FileIdentity | None) -> FileIdentity | None:
        """Of a file just opened, which is closed again if it is not the one that was asked for."""
        if identity is None:
            return None
        try:
            found = file.identity()
            if not identity.is_of(found):
                raise FileNotFoundError(errno.ENOENT, "another file took its place", file.path)
        except OSError:
            file.close()
            raise
        return found

    def forget(self, directory: str) -> None:
        """Drop all entries below ``directory`` (it is about to be renamed or removed)."""
        prefix = directory.rstrip("/") + "/"
        with self._lock:
            for key in [key for key in self._entries if key[0].startswith(prefix)]:
                self._drop(key)

    def forget_file(self, path: str) -> None:
        with self._lock:
            for key in [(path, "r"), (path, "rw"), (path, "map")]:
                if key in self._entries:
                    self._drop(key)

    @property
    def capacity(self) -> int:
        return self._capacity

    def shrink(self) -> bool:
        """The process, or the machine, has no descriptor left: hold a quarter less from now on. False if nothing
        could be closed."""
        with self._lock:
            before = len(self)
            self._capacity = max(min(self._capacity, 3 * before // 4), _SMALLEST)
            self._make_room()
            if len(self) == before:
                return False
        logger.warning(
            "no descriptors are left (ulimit -n): the store holds at most %d open files from now on, %d before",
            self._capacity,
            before,
        )
        return True

    def _check_open(self, path: str) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the store is closed", path)

    def close(self) -> None:
        """Close all that nobody uses now, and the rest when its user is done; nothing is opened any more."""
        with self._lock:
            self._closed = True
            for key in list(self._entries):
                self._drop(key)

    def __len__(self) -> int:
        return len(self._entries) + len(self._doomed)

    def _drop(self, key: PoolKey) -> None:
        """Never give this entry out again; a pinned one stays open for its user."""
        entry = self._entries.pop(key)
        if entry.pins > 0:
            self._doomed.append(entry)
        else:
            self._close(entry)

    def _make_room(self) -> bool:
        """Close least recently used entries until there is a place; False if all are in use."""
        if len(self) < self._capacity:
            return True
        for key in list(self._entries):
            entry = self._entries[key]
            if entry.pins > 0 or not self._close(entry):
                continue
            del self._entries[key]
            if len(self) < self._capacity:
                return True
        return False

    @staticmethod
    def _close(entry: PoolEntry) -> bool:
        """Close the descriptor; False for a mapping whose views are out (it lives until they are gone)."""
        if entry.file is not None:
            entry.file.close()
        if entry.view is not None:
            backing = entry.view.obj
            close = getattr(backing, "close", None)
            if close is not None:
                entry.view.release()
                try:
                    close()
                except BufferError:
                    entry.view = memoryview(backing)
                    return False
        return True
