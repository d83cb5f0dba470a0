"""The file system in memory: serves ``:memory:`` stores, and forgets what was not synced when it crashes.

It keeps inodes apart from names, and what programs see (the page cache) apart from what the disk has:
``File.sync`` makes one file's content and size durable, ``sync_dir`` one directory's names, nothing else
does. ``crash`` gives the file system after a power loss (see ``memory_crash.py`` for the model),
``process_crash`` after kill -9, where the page cache survives. ``faults`` plans failing calls.

There are no symbolic links, no permissions and no wall time: ``mtime_ns`` counts changes. A directory cannot
be opened as a file in any mode. Paths are taken from the root whether or not they start with a slash. One
lock serves all threads.
"""

from __future__ import annotations

import errno
import os
import threading
import zlib
from collections.abc import Iterator, Sequence

from logstore.seams.faults import FaultKind, Faults, SimulatedCrash
from logstore.seams.fs import PRIVATE, Access, File, FileIdentity, FileStat, OpenMode
from logstore.seams.memory_crash import Chooser, cloned_tree, crash_trees, fingerprint, surviving_tree
from logstore.seams.memory_inode import DirectoryInode, FileInode, Node
from logstore.types import Buffer


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class MemoryFile:
    """``File`` on an inode. Stays valid when the name is removed or renamed, not when the machine crashes."""

    __slots__ = ("_fs", "_inode", "_path", "_writable")

    def __init__(self, fs: MemoryFileSystem, inode: FileInode, path: str, writable: bool) -> None:
        self._fs = fs
        self._inode: FileInode | None = inode
        self._path = path
        self._writable = writable

    @property
    def path(self) -> str:
        return self._path

    def pread(self, length: int, position: int) -> bytes:
        if length < 0 or position < 0:
            raise _error(errno.EINVAL, self._path)
        fs = self._fs
        with fs._lock:
            inode = self._open_inode()
            fs.faults.consult("pread", self._path, f"@{position}+{length}" if fs.faults.tracing else "")
            return inode.read(length, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        if position < 0:
            raise _error(errno.EINVAL, self._path)
        data = b"".join(buffers)
        fs = self._fs
        with fs._lock:
            inode = self._open_inode()
            if not self._writable:
                raise _error(errno.EBADF, self._path)
            faults = fs.faults
            detail = f"@{position}+{len(data)} crc={zlib.crc32(data):08x}" if faults.tracing else ""
            fault = faults.consult("pwritev", self._path, detail)
            if fault is not None:
                data = data[: (len(data) + 1) // 2]
            count = self._write_what_fits(inode, data, position)
        if fault is FaultKind.CRASH_AMID:
            raise SimulatedCrash(f"amid call {faults.calls}: pwritev {self._path}")
        return count

    def _write_what_fits(self, inode: FileInode, data: bytes, position: int) -> int:
        if not data:
            return 0
        fs = self._fs
        growth = position + len(data) - len(inode)
        if growth > 0:
            room = fs._room()
            if growth > room:
                data = data[: len(data) - (growth - room)] if growth - room < len(data) else b""
                if not data:
                    raise _error(errno.ENOSPC, self._path)
                growth = room
            fs._used += growth
        inode.write(fs._tick(), position, data)
        return len(data)

    def write_soon(self, length: int, position: int) -> None:  # noqa: ARG002 - there is nothing to do
        """A crash decides for itself what of the unsynced came to the disk."""
        with self._fs._lock:
            self._open_inode()

    def sync(self) -> None:
        with self._fs._lock:
            inode = self._open_inode()
            if self._fs.faults.consult("sync", self._path) is FaultKind.FAILED_SYNC:
                inode.lose()
                raise _error(errno.EIO, self._path)
            inode.sync()

    def truncate(self, size: int) -> None:
        fs = self._fs
        with fs._lock:
            inode = self._open_inode()
            if size < 0 or not self._writable:
                raise _error(errno.EINVAL, self._path)
            fs.faults.consult("truncate", self._path, f"={size}")
            growth = size - len(inode)
            if growth > fs._room():
                raise _error(errno.ENOSPC, self._path)
            fs._used += growth
            inode.resize(fs._tick(), size)

    def size(self) -> int:
        with self._fs._lock:
            inode = self._open_inode()
            self._fs.faults.consult("size", self._path)
            return len(inode)

    def identity(self) -> FileIdentity:
        with self._fs._lock:
            inode = self._open_inode()
            self._fs.faults.consult("identity", self._path)
            return FileIdentity(inode.number, inode.changed)

    def map(self) -> memoryview:
        """The bytes as they are now. Later writes do not show: only files that never change are mapped."""
        with self._fs._lock:
            inode = self._open_inode()
            self._fs.faults.consult("map", self._path)
            return inode.view()

    def close(self) -> None:
        with self._fs._lock:
            inode, self._inode = self._inode, None
            if inode is not None:
                inode.handles -= 1
                self._fs._release_if_unused(inode)

    def _open_inode(self) -> FileInode:
        if self._inode is None:
            raise _error(errno.EBADF, self._path)
        return self._inode


class MemoryFileSystem:
    """``FileSystem`` in memory.

    ``capacity_bytes``: ENOSPC when the files together would pass it (None: no bound); space returns when
    the last name and the last open handle of a file are gone. ``trace``: keep the calls in
    ``faults.trace``.
    """

    def __init__(self, *, capacity_bytes: int | None = None, trace: bool = False) -> None:
        self.faults = Faults(trace=trace)
        self.capacity_bytes = capacity_bytes
        self._lock = threading.RLock()  # re-entrant: an observer of calls may look at the tree
        self._ticks = 1
        self._used = 0
        self._root = DirectoryInode(1)

    # --- crashes ------------------------------------------------------------------------------------

    def crash(self, choose: Chooser) -> MemoryFileSystem:
        """The file system after a power loss: what was synced, and of the rest what ``choose`` keeps.

        This one is halted: its open files and later calls raise ``SimulatedCrash``. It is not changed
        otherwise, so that other outcomes of the same crash can be drawn from it.
        """
        with self._lock:
            self.faults.halt()
            return self._successor(surviving_tree(self._root, choose))

    def crash_states(self, limit: int = 64) -> Iterator[MemoryFileSystem]:
        """Up to ``limit`` different outcomes of a power loss here and now, the likeliest first.

        Kept are: nothing, all, all but or only one kind, file, directory or change, each prefix, and all
        with one write torn. This one goes on working; do not change it while iterating.
        """
        for tree in crash_trees(self._root, limit):
            yield self._successor(tree)

    def process_crash(self) -> MemoryFileSystem:
        """The file system after kill -9: nothing is lost, nothing more is durable, this one is halted."""
        with self._lock:
            self.faults.halt()
            return self._successor(cloned_tree(self._root))

    def clone(self) -> MemoryFileSystem:
        """A twin with the same page cache and the same unsynced changes; both go on apart."""
        with self._lock:
            return self._successor(cloned_tree(self._root))

    def fingerprint(self) -> bytes:
        """A digest of all names and contents as programs see them."""
        with self._lock:
            return fingerprint(self._root)

    def _successor(self, root: DirectoryInode) -> MemoryFileSystem:
        twin = MemoryFileSystem(capacity_bytes=self.capacity_bytes, trace=self.faults.tracing)
        twin._ticks = self._ticks
        twin._root = root
        twin._used = _total_size(root)
        return twin

    # --- names --------------------------------------------------------------------------------------

    def open(self, path: str, mode: OpenMode) -> MemoryFile:
        with self._lock:
            self.faults.consult("create" if mode == "create" else "open", path, mode)
            if mode != "create":
                node = self._lookup(path)
                if isinstance(node, DirectoryInode):
                    raise _error(errno.EISDIR, path)
            else:
                parent, name = self._parent(path)
                if name in parent.entries:
                    raise _error(errno.EEXIST, path)
                node = FileInode(self._tick())
                node.links = 1
                parent.change(self._tick(), None, name, node)
            node.handles += 1
            return MemoryFile(self, node, path, mode != "r")

    def stat(self, path: str) -> FileStat:
        with self._lock:
            self.faults.consult("stat", path)
            node = self._lookup(path)
            is_dir = isinstance(node, DirectoryInode)
            return FileStat(
                0 if isinstance(node, DirectoryInode) else len(node), node.changed, node.number, is_dir
            )

    def listdir(self, path: str) -> list[str]:
        with self._lock:
            self.faults.consult("listdir", path)
            return list(self._directory(path).entries)

    def mkdir(self, path: str) -> None:
        with self._lock:
            self.faults.consult("mkdir", path)
            if not _parts(path):
                raise _error(errno.EEXIST, path)
            parent, name = self._parent(path)
            if name in parent.entries:
                raise _error(errno.EEXIST, path)
            parent.change(self._tick(), None, name, DirectoryInode(self._tick()))

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self.faults.consult("rename", source, f"-> {target}")
            old_parent, old_name = self._parent(source)
            new_parent, new_name = self._parent(target)
            node = old_parent.entries.get(old_name)
            if node is None:
                raise _error(errno.ENOENT, source)
            if isinstance(node, DirectoryInode) and _inside(node, new_parent):
                raise _error(errno.EINVAL, source)
            replaced = new_parent.entries.get(new_name)
            if replaced is node:
                return  # POSIX: two names of one file stay
            if replaced is not None:
                _check_replaceable(node, replaced, target)
            if old_parent is new_parent:
                old_parent.change(self._tick(), old_name, new_name, node)
            else:
                new_parent.change(self._tick(), None, new_name, node)
                old_parent.change(self._tick(), old_name, None, node)
            if isinstance(replaced, FileInode):
                self._unlink(replaced)

    def link(self, source: str, target: str) -> None:
        with self._lock:
            self.faults.consult("link", source, f"-> {target}")
            node = self._lookup(source)
            parent, name = self._parent(target)
            if name in parent.entries:
                raise _error(errno.EEXIST, target)
            if isinstance(node, DirectoryInode):
                raise _error(errno.EPERM, source)
            node.links += 1
            parent.change(self._tick(), None, name, node)

    @property
    def access(self) -> Access:
        return PRIVATE

    def keep_access(self, replaced: str, replacement: str) -> None:
        """Files in memory are everybody's: a power loss has nothing to take from them."""
        del replaced, replacement

    def remove(self, path: str) -> None:
        with self._lock:
            self.faults.consult("remove", path)
            node = self._lookup(path)
            if isinstance(node, DirectoryInode):
                raise _error(errno.EISDIR, path)
            parent, name = self._parent(path)
            parent.change(self._tick(), name, None, node)
            self._unlink(node)

    def rmdir(self, path: str) -> None:
        with self._lock:
            self.faults.consult("rmdir", path)
            node = self._directory(path)
            if not _parts(path):
                raise _error(errno.EBUSY, path)
            if node.entries:
                raise _error(errno.ENOTEMPTY, path)
            parent, name = self._parent(path)
            parent.change(self._tick(), name, None, node)

    def sync_files(self, files: Sequence[File]) -> None:
        """One after the other, so that a crash may come between; a fault of one is a failure of all."""
        for file in files:
            file.sync()

    def sync_dir(self, path: str) -> None:
        with self._lock:
            fault = self.faults.consult("sync_dir", path)
            node = self._directory(path)
            if fault is FaultKind.FAILED_SYNC:
                raise _error(errno.EIO, path)
            node.sync()

    # --- the tree -----------------------------------------------------------------------------------

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def _room(self) -> int:
        """Bytes that still fit; without a bound more than any file has."""
        return 1 << 62 if self.capacity_bytes is None else self.capacity_bytes - self._used

    def _walk(self, parts: list[str], path: str) -> Node:
        node: Node = self._root
        for part in parts:
            if not isinstance(node, DirectoryInode):
                raise _error(errno.ENOTDIR, path)
            found = node.entries.get(part)
            if found is None:
                raise _error(errno.ENOENT, path)
            node = found
        return node

    def _lookup(self, path: str) -> Node:
        if not path:
            raise _error(errno.ENOENT, path)
        return self._walk(_parts(path), path)

    def _directory(self, path: str) -> DirectoryInode:
        node = self._lookup(path)
        if not isinstance(node, DirectoryInode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryInode, str]:
        parts = _parts(path)
        if not parts:
            raise _error(errno.ENOENT if not path else errno.EBUSY, path)
        parent = self._walk(parts[:-1], path)
        if not isinstance(parent, DirectoryInode):
            raise _error(errno.ENOTDIR, path)
        return parent, parts[-1]

    def _unlink(self, node: FileInode) -> None:
        node.links -= 1
        self._release_if_unused(node)

    def _release_if_unused(self, node: FileInode) -> None:
        if node.links == 0 and node.handles == 0:
            self._used -= len(node)


def _parts(path: str) -> list[str]:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part and part != ".":
            parts.append(part)
    return parts


def _inside(ancestor: DirectoryInode, node: DirectoryInode) -> bool:
    return ancestor is node or any(
        isinstance(child, DirectoryInode) and _inside(child, node) for child in ancestor.entries.values()
    )


def _check_replaceable(node: Node, replaced: Node, target: str) -> None:
    """The rules of rename(2) for a target that exists."""
    if isinstance(replaced, FileInode):
        if isinstance(node, DirectoryInode):
            raise _error(errno.ENOTDIR, target)
    elif isinstance(node, FileInode):
        raise _error(errno.EISDIR, target)
    elif replaced.entries:
        raise _error(errno.ENOTEMPTY, target)


def _total_size(root: DirectoryInode) -> int:
    """Bytes of all files that have a name, each counted once; the handles of a halted system are gone."""
    sizes: dict[int, int] = {}
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, DirectoryInode):
            stack += node.entries.values()
        else:
            sizes[id(node)] = len(node)
    return sum(sizes.values())
