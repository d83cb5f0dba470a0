"""Inodes of the in-memory file system: what programs see, and a journal of what the disk may not have yet.

What the disk surely holds is never stored: it is ``content`` with the journal undone, so that a sync costs
nothing but forgetting the journal. The size is a value of its own: a size change and the bytes written
reach the disk independently. Sizes reach it in order (one number in the inode), sectors in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, TypeAlias

SECTOR_BYTES: Final = 512


class Fate(Enum):
    PENDING = "pending"  # a sync will make it durable
    LOST = "lost"  # a sync of it failed: no later sync will, yet it may have reached the disk
    SYNCED = "synced"  # durable, kept in the journal only because something before it was lost


class Write:
    """Bytes put at a position. ``overwritten``: what stood there before, for undoing."""

    __slots__ = ("data", "fate", "order", "overwritten", "position")

    def __init__(self, order: int, position: int, data: bytes, overwritten: bytes) -> None:
        self.order = order
        self.position = position
        self.data = data
        self.overwritten = overwritten
        self.fate = Fate.PENDING

    def copy(self) -> Write:
        twin = Write(self.order, self.position, self.data, self.overwritten)
        twin.fate = self.fate
        return twin

    @property
    def sectors(self) -> int:
        """How many sectors of the disk the write touches: each is kept or dropped whole."""
        return (self.position + len(self.data) - 1) // SECTOR_BYTES - self.position // SECTOR_BYTES + 1

    def undo(self, content: bytearray) -> None:
        content[self.position : self.position + len(self.overwritten)] = self.overwritten

    def put(self, content: bytearray, kept_sectors: int) -> None:
        """Write the sectors whose bit is set in ``kept_sectors`` (bit 0 is the first touched sector)."""
        for start, end in self._runs(kept_sectors):
            if len(content) < start:
                content.extend(bytes(start - len(content)))
            content[start:end] = self.data[start - self.position : end - self.position]

    def _runs(self, kept_sectors: int) -> Iterator[tuple[int, int]]:
        end_of_write = self.position + len(self.data)
        if kept_sectors == (1 << self.sectors) - 1:
            yield self.position, end_of_write
            return
        first = self.position // SECTOR_BYTES
        for sector in range(self.sectors):
            if kept_sectors >> sector & 1:
                start = max(self.position, (first + sector) * SECTOR_BYTES)
                yield start, min(end_of_write, (first + sector + 1) * SECTOR_BYTES)


class Resize:
    """A change of size. ``cut``: the bytes that a shrinking took, for undoing."""

    __slots__ = ("after", "before", "cut", "fate", "order")

    def __init__(self, order: int, before: int, after: int, cut: bytes) -> None:
        self.order = order
        self.before = before
        self.after = after
        self.cut = cut
        self.fate = Fate.PENDING

    def copy(self) -> Resize:
        twin = Resize(self.order, self.before, self.after, self.cut)
        twin.fate = self.fate
        return twin

    def undo(self, content: bytearray) -> None:
        del content[self.before :]
        content.extend(self.cut)


ContentChange: TypeAlias = Write | Resize


class FileInode:
    """A file apart from its names. ``links``: names it has; ``handles``: open files on it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.links = 0
        self.handles = 0
        self.changed = number  # a logical tick that stands in for the modification time
        self.journal: list[ContentChange] = []
        self._content = bytearray()
        self._shared = False  # a clone or a view holds the same bytearray: copy before changing it

    def clone(self) -> FileInode:
        """A twin with the same content and journal; the bytes are copied only when one of them changes."""
        twin = FileInode(self.number)
        twin.changed = self.changed
        twin.journal = [change.copy() for change in self.journal]
        twin._content = self._content
        twin._shared = self._shared = True
        return twin

    @classmethod
    def of(cls, number: int, content: bytearray) -> FileInode:
        """A file whose content is durable."""
        inode = cls(number)
        inode._content = content
        return inode

    def __len__(self) -> int:
        return len(self._content)

    def read(self, length: int, position: int) -> bytes:
        return bytes(memoryview(self._content)[position : position + length])

    def view(self) -> memoryview:
        """The bytes as they are now; later writes do not show."""
        self._shared = True
        return memoryview(self._content).toreadonly()

    def write(self, order: int, position: int, data: bytes) -> None:
        content = self._own()
        end = position + len(data)
        size = len(content)
        if end > size:
            self.journal.append(Resize(order, size, end, b""))
            if position > size:
                content.extend(bytes(position - size))
        overwritten = bytes(content[position:end]) if position < size else b""
        self.journal.append(Write(order, position, data, overwritten))
        content[position:end] = data
        self.changed = order

    def resize(self, order: int, size: int) -> None:
        content = self._own()
        before = len(content)
        if size == before:
            return
        self.journal.append(Resize(order, before, size, bytes(content[size:])))
        if size < before:
            del content[size:]
        else:
            content.extend(bytes(size - before))
        self.changed = order

    def _own(self) -> bytearray:
        if self._shared:
            self._content = bytearray(self._content)
            self._shared = False
        return self._content

    def sync(self) -> None:
        self.journal = _after_sync(self.journal)

    def lose(self) -> None:
        """A sync failed: the pages count as clean from now on, whether or not they reached the disk.

        The size stays dirty: the kernel keeps it in the inode, and the next sync covers it.
        """
        for change in self.journal:
            if isinstance(change, Write) and change.fate is Fate.PENDING:
                change.fate = Fate.LOST

    def durable(self) -> bytearray:
        """What the disk held before the journal."""
        content = bytearray(self._content)
        for change in reversed(self.journal):
            change.undo(content)
        return content


class EntryChange:
    """A change of one directory: a name added, a name removed, or both at once (a rename inside it)."""

    __slots__ = ("added", "node", "order", "removed")

    def __init__(self, order: int, removed: str | None, added: str | None, node: Node) -> None:
        self.order = order
        self.removed = removed
        self.added = added
        self.node = node

    def apply(self, entries: dict[str, Node]) -> None:
        if self.removed is not None and (self.added is None or entries.get(self.removed) is self.node):
            entries.pop(self.removed, None)
        if self.added is not None:
            entries[self.added] = self.node


class DirectoryInode:
    """A directory: ``entries`` as programs see them, ``durable`` as the last ``sync_dir`` left them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.changed = number
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.journal: list[EntryChange] = []

    def change(self, order: int, removed: str | None, added: str | None, node: Node) -> None:
        entry_change = EntryChange(order, removed, added, node)
        entry_change.apply(self.entries)
        self.journal.append(entry_change)
        self.changed = order

    def sync(self) -> None:
        for change in self.journal:
            change.apply(self.durable)
        self.journal.clear()


Node: TypeAlias = FileInode | DirectoryInode


def _after_sync(journal: list[ContentChange]) -> list[ContentChange]:
    """The journal after a sync that succeeded: empty, unless an earlier failed sync lost a part of it."""
    if all(change.fate is Fate.PENDING for change in journal):
        return []
    for change in journal:
        if change.fate is Fate.PENDING:
            change.fate = Fate.SYNCED
    return journal
