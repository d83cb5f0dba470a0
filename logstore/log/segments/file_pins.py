"""``FilePins``: which files of a pool are in use, and may not be closed under their users.

Every durable append pins its segment's file and gives it back; whatever opens or closes a file is left to ``FilePool``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias

from logstore.errors import InvariantError
from logstore.native import compiled
from logstore.seams.fs import File, FileIdentity

PoolKey: TypeAlias = tuple[str, str]  # (path, "r" | "rw" | "map")


@compiled("log.file_pins")
class PoolEntry:
    """An open file, or a mapping. ``identity``: None: nobody has asked yet; ``pins``: by how many it is used."""

    __slots__ = ("file", "identity", "pins", "view")

    def __init__(
        self, file: File | None, view: memoryview | None, identity: FileIdentity | None = None
    ) -> None:
        self.file = file
        self.view = view
        self.identity = identity
        self.pins = 0


@compiled("log.file_pins")
class FilePins:
    """``_lock`` guards the fields. ``_pinned``: entries that are in use; ``_doomed``: forgotten while pinned: closed by
    their last unpin, never given out."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._pinned = 0
        self._lock = (
            threading.RLock()
        )  # taken again where the file system asks for room while a file is opened
        self._entries: OrderedDict[PoolKey, PoolEntry] = OrderedDict()
        self._doomed: list[PoolEntry] = []

    if TYPE_CHECKING:

        def _known(self, key: PoolKey, identity: FileIdentity | None) -> PoolEntry | None: ...
        def _opened(self, key: PoolKey, identity: FileIdentity | None) -> PoolEntry: ...
        def _unpin_doomed(self, file: File) -> None: ...

    def pin(self, path: str, writable: bool = False, identity: FileIdentity | None = None) -> File:
        """Open (or reuse) the file and keep it open until ``unpin``. Raises ``OSError``; with ``identity``
        ``FileNotFoundError`` when the file of that name is another one."""
        key = (path, "rw" if writable else "r")
        with self._lock:
            entry = self._entries.get(key) if identity is None else self._known(key, identity)
            if entry is None:
                entry = self._opened(key, identity)
            else:
                self._entries.move_to_end(key)
            if entry.pins == 0:
                self._pinned += 1
            entry.pins += 1
            if entry.file is None:
                raise InvariantError("invariant broken: a pooled file is open")
            return entry.file

    def unpin(self, file: File, writable: bool = False) -> None:
        """Give back what ``pin`` gave."""
        with self._lock:
            entry = self._entries.get((file.path, "rw" if writable else "r"))
            if entry is None or entry.file is not file:
                self._unpin_doomed(file)
                return
            entry.pins -= 1
            self._pinned -= entry.pins == 0

    @property
    def crowded(self) -> bool:
        """Whether most places are taken by files in use, unsynced ones above all: to sync them makes room."""
        return 4 * self._pinned >= 3 * self._capacity
