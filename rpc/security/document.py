"""``Document``: a small file of the broker's security: checked as a whole, replaced as a whole, followed as it changes.

JSON of one object: ``format``, ``checksum`` (crc32c of the rest, in hex) and ``content``. It lies in ``.security`` of
the store's directory; folder and file are its owner's alone. A file that cannot be understood is an error at the start,
and while the broker runs what was in force stays.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

import crc32c

from logstore.errors import InvalidArgumentError, from_os_error
from logstore.seams.fs import OsFileSystem, access_like, open_regular, replace_file
from rpc.errors import DamagedSecurityError, SecretFileError, SecurityBusyError
from rpc.polling import Polling

logger = logging.getLogger(__name__)

FOLDER: Final = ".security"
FORMAT: Final = 1
_LOOK_S: Final = 0.5
_LOCK_S: Final = 10.0
_POLL_S: Final = 0.02
_MAX_BYTES: Final = 32 << 20
Content = TypeVar("Content")
Stamp = tuple[int, int, int] | None


class Kept(Protocol[Content]):
    """What is in force, wherever it is kept (``Document``). Thread-safe."""

    def current(self) -> Content: ...
    def look(self) -> None:
        """``current`` is the newest from now on."""
        ...

    def change(self, decide: Callable[[Content], Content]) -> Content:
        """As ``Document.change``."""
        ...


class Document(Generic[Content]):
    """Thread-safe. ``directory``: the store's, None: the content lives in memory alone; ``read`` and ``write``: the
    content from JSON's values and back, ``read`` raises ValueError, KeyError or TypeError; ``empty``: the content
    where there is no file. DamagedSecurityError, SecretFileError."""

    def __init__(
        self,
        directory: str | None,
        name: str,
        read: Callable[[object], Content],
        write: Callable[[Content], object],
        empty: Callable[[], Content],
    ) -> None:
        self._folder = None if directory is None else os.path.join(directory, FOLDER)
        self.path = name if self._folder is None else os.path.join(self._folder, name)
        self._read = read
        self._write = write
        self._empty = empty
        self._lock = threading.Lock()
        self._next_look_s = 0.0
        self._stamp: Stamp = None
        self._content, self._stamp = self._load()

    def current(self) -> Content:
        """What is in force. The file is looked at when the last look is half a second ago."""
        if time.monotonic() >= self._next_look_s:
            self.look()
        return self._content

    def look(self) -> None:
        """Take what the file holds, if it has changed. What cannot be understood is logged, and nothing changes. While
        a change waits for another process nothing is looked at: calls are not held up by it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._next_look_s = time.monotonic() + _LOOK_S
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return
            try:
                if stamp is None:
                    raise DamagedSecurityError(f"{self.path} is gone")
                self._content, self._stamp = self._load()
                logger.info("%s has changed, and is in force", self.path)
            except (DamagedSecurityError, SecretFileError) as error:
                self._stamp = stamp
                logger.error("what was in force stays: %s", error)
        finally:
            self._lock.release()

    def change(self, decide: Callable[[Content], Content]) -> Content:
        """Replace the content by what ``decide`` makes of the newest one, durably; the new content, which is in force.
        Errors: those of ``decide``, StorageError, SecurityBusyError, DamagedSecurityError, InvalidArgumentError (it
        would be too large)."""
        with self._lock, self._alone():
            before, _ = self._load()
            after = decide(before)
            if after != before:
                self._save(after)
            self._content, self._stamp = after, self._stamp_now()
            return after

    # --- the file ---

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process changes the file in the block."""
        if self._folder is None:
            yield
            return
        self._make_folder(self._folder)
        try:
            fd = open_regular(f"{self.path}.lock", os.O_RDWR | os.O_CREAT)
            access_like(self.path, self._folder, 0o600).give(
                fd
            )  # root's command leaves it to the store's owner
        except OSError as error:
            raise from_os_error(error, "lock", self.path) from error
        try:
            polling = Polling(_POLL_S, _LOCK_S)
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if not polling.again():
                        raise SecurityBusyError(f"another process is changing {self.path}") from error
            yield
        finally:
            os.close(fd)

    def _make_folder(self, folder: str) -> None:
        root = os.path.dirname(folder)
        try:
            OsFileSystem(access_like(folder, root, 0o600)).mkdir(folder)
            OsFileSystem().sync_dir(root)
        except FileExistsError:
            pass  # the usual case; whose it is, the load has looked at
        except OSError as error:
            raise from_os_error(error, "create", folder) from error

    def _save(self, content: Content) -> None:
        values = self._write(content)
        body = _canonical(values)
        data = json.dumps(
            {"format": FORMAT, "checksum": _checksum(body), "content": values}, ensure_ascii=False, indent=1
        ).encode()
        if self._folder is None:
            return
        if len(data) > _MAX_BYTES:
            raise InvalidArgumentError(f"{self.path} would be larger than {_MAX_BYTES} bytes")
        try:
            replace_file(OsFileSystem(access_like(self.path, self._folder, 0o600)), self.path, data)
        except OSError as error:
            raise from_os_error(error, "write", self.path) from error

    def _load(self) -> tuple[Content, Stamp]:
        if self._folder is None:
            return (self._content if hasattr(self, "_content") else self._empty()), None
        try:
            fd = open_regular(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return self._empty(), None
        except OSError as error:
            raise DamagedSecurityError(f"cannot read {self.path}: {error.strerror or error}") from error
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(file.fileno())
            _check_private(self._folder, os.stat(self._folder))
            _check_private(self.path, found)
            data = file.read(_MAX_BYTES + 1)
        return self._understood(data), _stamp_of(found)

    def _understood(self, data: bytes) -> Content:
        try:
            whole = json.loads(data)
            if not isinstance(whole, dict) or whole.get("format") != FORMAT:
                raise ValueError("it is of no format that this version knows")
            if whole["checksum"] != _checksum(_canonical(whole["content"])):
                raise ValueError("its checksum is wrong: it is damaged, or was changed by hand")
            return self._read(whole["content"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedSecurityError(f"{self.path} cannot be understood: {error}") from error

    def _stamp_now(self) -> Stamp:
        if self._folder is None:
            return None
        try:
            return _stamp_of(os.lstat(self.path))
        except OSError:
            return None


def _stamp_of(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _check_private(path: str, found: os.stat_result) -> None:
    if stat.S_IMODE(found.st_mode) & 0o077:
        bits = "700" if stat.S_ISDIR(found.st_mode) else "600"
        raise SecretFileError(
            f"{path} has mode {stat.S_IMODE(found.st_mode):04o}: others could read or change who may do what",
            hint=f"look whether somebody did, then chmod {bits} {path}",
        )


def _canonical(values: object) -> bytes:
    return json.dumps(values, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _checksum(body: bytes) -> str:
    return f"{crc32c.crc32c(body):08x}"
