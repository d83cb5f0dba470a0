"""The file-system seam: every byte that must be durable goes through it.

``FileSystem`` and ``File`` are small on purpose: what they do not offer (in-place mmap writes, append mode,
buffered streams) the engine must not need, because the twin in ``memory_fs.py`` has to model a power loss
for each operation.

Durability rules that both sides obey:
- ``File.sync`` makes content and size of that file durable, not its directory entry.
- A created, renamed, linked or removed name is durable only after ``FileSystem.sync_dir`` of its directory.
- ``rename`` replaces the target atomically for every running reader.

All methods raise ``OSError``; callers translate with ``errors.from_os_error``. Paths are plain strings.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import stat as stat_module
import sys
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

from logstore.seams.file_syncs import FileSyncs, sync_descriptor
from logstore.types import Buffer

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")
OpenMode = Literal["r", "rw", "create"]  # read only; read-write, must exist; read-write, must not exist

_IOV_MAX = 1024
# A call writes no more than this of several buffers. Linux takes memory for the page cache in pieces as long as the
# write, up to 2 MiB; free pieces of that length are those that nothing has used for long, which a virtual machine has
# to get from its host page by page: a write took five to eight times as long there.
SLICE_BYTES: Final = 31 << 16  # less than 2 MiB
NO_LINKS: Final = (
    errno.EXDEV,
    errno.EPERM,
    errno.ENOTSUP,
    errno.EMLINK,
)  # how a file system refuses a hard link
_CAN_ADVISE = sys.platform == "linux"
# The largest file that is read at a stroke has some megabytes; one far beyond that is garbage, not memory's due.
_LARGEST_WHOLE_BYTES = 256 << 20


class FileIdentity(NamedTuple):
    """Which file it is, whatever its name. ``mtime_ns``: of a file that changes no more, since the number of a
    removed inode is given again; -1: not looked at."""

    inode: int
    mtime_ns: int

    def is_of(self, found: FileIdentity) -> bool:
        return self.inode == found.inode and self.mtime_ns in (-1, found.mtime_ns)


_A_REAL_TIME_MS: Final = 1_000_000_000_000  # in 2001: no file of a store is older


class FileStat(NamedTuple):
    size: int
    mtime_ns: int
    inode: int
    is_dir: bool

    @property
    def identity(self) -> FileIdentity:
        return FileIdentity(self.inode, self.mtime_ns)

    @property
    def modified_ms(self) -> int:
        """When the content last changed, ms since 1970 UTC; -1 for a time that is none (some file systems have no
        clock)."""
        time_ms = self.mtime_ns // 1_000_000
        return time_ms if time_ms >= _A_REAL_TIME_MS else -1


class Access(NamedTuple):
    """Who may use the files that a store makes. ``file_bits``: their permission bits; ``owner``: user and group id
    that they get, None: those of the process that makes them."""

    file_bits: int = 0o600
    owner: tuple[int, int] | None = None

    @property
    def directory_bits(self) -> int:
        """Of folders: whoever may read files may also search for them."""
        return self.file_bits | ((self.file_bits & 0o444) >> 2)

    def give(self, fd: int) -> None:
        """To a file just made: the umask must not undo what the caller asked for. ``OSError``."""
        if self.owner is not None:
            os.fchown(fd, *self.owner)
        os.fchmod(fd, self.file_bits)

    def give_directory(self, path: str) -> None:
        """To a folder just made. It keeps the setgid bit and the group that it has from its parent: files of a
        store that a group shares belong to that group, whoever makes them. ``OSError``."""
        made = os.stat(path, follow_symlinks=False)
        if self.owner is not None:
            group = -1 if made.st_mode & stat_module.S_ISGID else self.owner[1]
            os.chown(path, self.owner[0], group, follow_symlinks=False)
        bits = self.directory_bits | (made.st_mode & stat_module.S_ISGID)
        if stat_module.S_IMODE(made.st_mode) != bits or self.owner is not None:
            os.chmod(path, bits)


PRIVATE = Access()


def access_like(path: str, directory: str, file_bits: int | None) -> Access:
    """For files beside ``path``: with its permissions unless ``file_bits`` says otherwise, and made by root for the
    owner of ``directory``. Where there is neither: ``PRIVATE``. ``OSError``."""
    owner = None
    try:
        if os.geteuid() == 0:
            folder = os.stat(directory)
            owner = (folder.st_uid, folder.st_gid)
        if file_bits is None:
            file_bits = stat_module.S_IMODE(os.stat(path, follow_symlinks=False).st_mode) & 0o777
    except (FileNotFoundError, NotADirectoryError):
        pass  # a store to be made: its files are its maker's
    return Access(0o600 if file_bits is None else file_bits, owner)


class File(Protocol):
    """One open file. Safe for concurrent ``pread``; writers are serialised by their owner."""

    @property
    def path(self) -> str: ...
    def pread(self, length: int, position: int) -> bytes:
        """Up to ``length`` bytes from ``position``; short only at the end of the file."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers one after the other at ``position``; may write less, returns bytes written."""
        ...

    def sync(self) -> None:
        """fdatasync: content and size become durable. After a failure, what was not yet synced is lost."""
        ...

    def write_soon(self, length: int, position: int) -> None:
        """What was just written there may as well go to the disk now: the sync to come has less to wait for."""
        ...

    def truncate(self, size: int) -> None: ...
    def size(self) -> int: ...
    def identity(self) -> FileIdentity: ...
    def map(self) -> memoryview:
        """A read-only view of the whole file, valid after ``close`` and after the name is removed.

        The caller promises that nobody shortens the file. An empty file gives an empty view.
        """
        ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    @property
    def access(self) -> Access:
        """Of the files and folders that it makes."""
        ...

    def open(self, path: str, mode: OpenMode) -> File: ...
    def stat(self, path: str) -> FileStat:
        """Never follows a symbolic link: a link raises ``OSError`` (ELOOP)."""
        ...

    def listdir(self, path: str) -> list[str]: ...
    def mkdir(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def link(self, source: str, target: str) -> None:
        """A hard link; ``OSError`` (EXDEV, EPERM, ENOTSUP) where the file system cannot."""
        ...

    def keep_access(self, replaced: str, replacement: str) -> None:
        """Give the file ``replacement``, which is about to take the name of ``replaced``, that one's owner, group
        and permissions, as far as this process may; nothing where there is no ``replaced``."""
        ...

    def remove(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def sync_files(self, files: Sequence[File]) -> None:
        """``File.sync`` of all of these open files of this file system at once, for less than one each. ``OSError``: of
        none of them it is known to be durable, and what was not yet synced may be lost of all."""
        ...


def write_all(file: File, buffers: Sequence[Buffer], position: int) -> int:
    """Write all buffers at ``position``, going on after short writes; returns bytes written.

    Raises the ``OSError`` that stopped it; then a prefix of the bytes may be in the file.
    """
    total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
    if total > SLICE_BYTES and len(buffers) > 1:
        written = _written_in_slices(file, buffers, position)
    else:
        written = file.pwritev(buffers, position)
    if written == total:
        return total
    rest = memoryview(b"".join(buffers))[written:]
    while rest:
        count = file.pwritev([rest], position + total - len(rest))
        if count <= 0:
            raise OSError(5, "write made no progress", file.path)
        rest = rest[count:]
    return total


def _written_in_slices(file: File, buffers: Sequence[Buffer], position: int) -> int:
    """Write as many of the buffers with one call as make ``SLICE_BYTES``, one at least; the bytes up to the first short
    write."""
    written = start = 0
    while start < len(buffers):
        end, size = start + 1, len(buffers[start])
        while end < len(buffers) and size + len(buffers[end]) <= SLICE_BYTES:
            size += len(buffers[end])
            end += 1
        count = file.pwritev(buffers[start:end], position + written)
        written += count
        if count < size:
            break
        start = end
    return written


def exists(fs: FileSystem, path: str) -> bool:
    try:
        fs.stat(path)
    except FileNotFoundError:
        return False
    return True


def remove_if_there(fs: FileSystem, path: str) -> None:
    """A file that is gone already is fine: an earlier try, or another process, was first."""
    try:
        fs.remove(path)
    except FileNotFoundError:
        return  # as wanted


def read_file(fs: FileSystem, path: str) -> bytes:
    """The whole of a small file: an index, a checkpoint, a document."""
    file = fs.open(path, "r")
    try:
        return read_whole(file)
    finally:
        file.close()


def read_whole(file: File) -> bytes:
    """As ``read_file``, of an open file: ``OSError`` (EFBIG) past 256 MiB."""
    size = file.size()
    if size > _LARGEST_WHOLE_BYTES:
        raise OSError(errno.EFBIG, f"{size} bytes are more than such a file can have", file.path)
    return file.pread(size, 0)


def replace_file(fs: FileSystem, path: str, content: bytes) -> None:
    """Put ``content`` at ``path`` durably and atomically: write ``.tmp``, sync, rename, sync directory."""
    put_file(fs, path, content)
    fs.sync_dir(os.path.dirname(path))


def put_file(fs: FileSystem, path: str, content: bytes, twin: str | None = None) -> None:
    """As ``replace_file``, but for the directory: the name at ``path`` is durable once the caller has synced that.

    ``twin``: a file of the same content, which is durable under whatever name: ``path``, where there is none yet,
    becomes another one of it if the file system has hard links, and nothing is written or synced.
    """
    if twin is not None and _linked(fs, twin, path):
        return
    temporary = path + ".tmp"
    try:
        fs.remove(temporary)
    except FileNotFoundError:
        pass  # the usual case: no earlier attempt was cut short
    file = fs.open(temporary, "create")
    try:
        write_all(file, [content], 0)
        fs.keep_access(path, temporary)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)


def _linked(fs: FileSystem, source: str, target: str) -> bool:
    """False where the file system has no link to give, or ``source`` is gone."""
    try:
        fs.link(source, target)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return False
    return True


def open_regular(path: str, flags: int, mode_bits: int = 0o600) -> int:
    """A descriptor of the regular file at ``path``; ``OSError`` for anything else: a link could lead out of the
    store, and a pipe would be waited for."""
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode_bits)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _no_link(path) from None
        raise
    if not stat_module.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return fd


def make_replacement(path: str, temporary: str, access: Access) -> int:
    """A descriptor of a new empty file at ``temporary`` that may be renamed to ``path``, with the permissions of the
    file that is there, else those of ``access``. ``OSError``."""
    try:
        os.unlink(temporary)
    except FileNotFoundError:
        pass  # the usual case: no earlier attempt was cut short
    fd = open_regular(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, access.file_bits)
    try:
        access.give(fd)
        _keep_access(path, fd)
    except OSError:
        os.close(fd)
        raise
    return fd


def _keep_access(replaced: str, fd: int) -> None:
    """Owner, group and permissions of the file ``replaced`` for the one that ``fd`` has open."""
    try:
        old = os.stat(replaced, follow_symlinks=False)
    except FileNotFoundError:
        return
    new = os.fstat(fd)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.fchown(fd, old.st_uid if os.geteuid() == 0 else -1, old.st_gid)
        except PermissionError:
            logger.warning(
                "%s is replaced by a file of group %d: user %d is not in its group %d, and cannot keep it",
                replaced,
                new.st_gid,
                os.geteuid(),
                old.st_gid,
            )
    if stat_module.S_IMODE(old.st_mode) != stat_module.S_IMODE(new.st_mode):
        os.fchmod(fd, stat_module.S_IMODE(old.st_mode))


def _no_link(path: str) -> OSError:
    return OSError(errno.ELOOP, "symbolic links are refused inside a store", path)


class OsFile:
    """``File`` on a descriptor of the operating system."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        return self._fd

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]  # a signal or a 2 GiB limit may cut one call short; the end of the file may too
        have = len(data)
        while have < length:
            more = os.pread(self._fd, length - have, position + have)
            if not more:
                break
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        if len(buffers) > _IOV_MAX:
            buffers = [b"".join(buffers)]
        return os.pwritev(self._fd, buffers, position)

    def sync(self) -> None:
        if self._fd < 0:  # for which fdatasync raises something else than its fellows
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        sync_descriptor(self._fd)

    def write_soon(self, length: int, position: int) -> None:
        # Linux begins to write such pages and goes on; what is on its way to the disk stays in memory, too.
        if _CAN_ADVISE and length > 0:  # 0 would be all up to the end
            os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def identity(self) -> FileIdentity:
        found = os.fstat(self._fd)
        return FileIdentity(found.st_ino, found.st_mtime_ns)

    def map(self) -> memoryview:
        size = self.size()
        if size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, size, access=mmap.ACCESS_READ))

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _no_room() -> bool:
    return False


OWN_SYNC: Final = OsFile.sync
"""By which compiled code, which syncs an ``OsFile`` by itself, sees that a tool has put another in its place."""


class OsFileSystem:
    """``FileSystem`` of the operating system. Folders are made 0700 and files 0600 unless ``access`` says
    otherwise."""

    def __init__(self, access: Access = PRIVATE) -> None:
        self.access = access
        self._syncs = FileSyncs()
        self.when_exhausted: Callable[[], bool] = _no_room  # closes files of this store; False: it could not

    def _with_descriptor(self, call: Callable[[], _Result]) -> _Result:
        """What opens a file, tried again as long as room can be made where the process has no descriptor left."""
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self.when_exhausted():
                    raise

    def open(self, path: str, mode: OpenMode) -> OsFile:
        flags = os.O_RDONLY if mode == "r" else os.O_RDWR
        if mode == "create":
            flags |= os.O_CREAT | os.O_EXCL
        fd = self._with_descriptor(lambda: open_regular(path, flags, self.access.file_bits))
        if mode == "create":
            try:
                self.access.give(fd)
            except OSError:
                os.close(fd)
                raise
        return OsFile(fd, path)

    def stat(self, path: str) -> FileStat:
        found = os.lstat(path)
        if stat_module.S_ISLNK(found.st_mode):
            raise _no_link(path)
        return FileStat(found.st_size, found.st_mtime_ns, found.st_ino, stat_module.S_ISDIR(found.st_mode))

    def listdir(self, path: str) -> list[str]:
        return self._with_descriptor(lambda: os.listdir(path))

    def mkdir(self, path: str) -> None:
        os.mkdir(path, self.access.directory_bits)
        self.access.give_directory(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def keep_access(self, replaced: str, replacement: str) -> None:
        fd = self._with_descriptor(lambda: open_regular(replacement, os.O_RDWR))
        try:
            _keep_access(replaced, fd)
        finally:
            os.close(fd)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_files(self, files: Sequence[File]) -> None:
        open_files = [(file.fileno(), file.path) for file in files if isinstance(file, OsFile)]
        if len(open_files) != len(files):
            raise TypeError("files of another file system")
        for fd, path in open_files:
            if fd < 0:  # for which the calls raise something else than its fellows
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), path)
        self._syncs.sync(open_files)

    def sync_dir(self, path: str) -> None:
        fd = self._with_descriptor(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
