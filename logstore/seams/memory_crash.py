"""What a power loss leaves of the in-memory file system: any part of what was not synced.

The model, after Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014): of each file's
unsynced writes any subset of sectors is kept; its size is one of those it had since the last sync, on its
own (kept without the data it reads as zeros, data past a lost size vanishes); of each directory's unsynced
changes any subset is kept, a rename inside one directory as one change, a rename between two as two.
It is harsher than real disks in two places: two writes to one sector are kept or lost apart, and a synced
file whose name was not synced is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, Protocol

from logstore.seams.memory_inode import (
    ContentChange,
    DirectoryInode,
    EntryChange,
    Fate,
    FileInode,
    Node,
    Resize,
    Write,
)


class Chooser(Protocol):
    """Decides what of the unsynced changes the disk has. Asked once per change, in a fixed order."""

    def sectors(self, write: Write, /) -> int:
        """A bit per touched sector, bit 0 the first: set if it is kept; ``write.sectors`` bits count."""
        ...

    def resize(self, resize: Resize, /) -> bool:
        """Kept? A kept size implies the file's earlier sizes."""
        ...

    def entry(self, change: EntryChange, /) -> bool: ...


class KeepAll:
    def sectors(self, write: Write, /) -> int:
        return (1 << write.sectors) - 1

    def resize(self, _resize: Resize, /) -> bool:
        return True

    def entry(self, _change: EntryChange, /) -> bool:
        return True


class KeepNothing:
    def sectors(self, _write: Write, /) -> int:
        return 0

    def resize(self, _resize: Resize, /) -> bool:
        return False

    def entry(self, _change: EntryChange, /) -> bool:
        return False


class RandomChooser:
    """Draws how much is kept first, then each change, so that nearly all and nearly nothing come up too."""

    _SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._data = source.choice(self._SHARES)
        self._sizes = source.choice(self._SHARES)
        self._entries = source.choice(self._SHARES)
        self._torn = source.choice((0.0, 0.2, 0.7))

    def sectors(self, write: Write, /) -> int:
        every = (1 << write.sectors) - 1
        if self._source.random() < self._torn:
            if self._source.random() < 0.5:
                return every >> self._source.randint(0, write.sectors)  # a prefix
            return self._source.getrandbits(write.sectors)
        return every if self._source.random() < self._data else 0

    def resize(self, _resize: Resize, /) -> bool:
        return self._source.random() < self._sizes

    def entry(self, _change: EntryChange, /) -> bool:
        return self._source.random() < self._entries


@dataclass(frozen=True, slots=True)
class _Kept:
    """Keeps the named changes (by identity); ``torn`` overrides the sectors of single writes."""

    changes: frozenset[int]
    torn: dict[int, int] = field(default_factory=dict)

    def sectors(self, write: Write, /) -> int:
        whole = (1 << write.sectors) - 1 if id(write) in self.changes else 0
        return self.torn.get(id(write), whole)

    def resize(self, resize: Resize, /) -> bool:
        return id(resize) in self.changes

    def entry(self, change: EntryChange, /) -> bool:
        return id(change) in self.changes


class Unsynced(NamedTuple):
    """One change that the disk may not have, and the number of the inode it belongs to."""

    change: ContentChange | EntryChange
    owner: int


def unsynced_changes(root: DirectoryInode) -> list[Unsynced]:
    """Every undecided change that a crash could show, in the order in which they were made."""
    found: list[Unsynced] = []
    seen: set[int] = set()
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, DirectoryInode):
            found += [Unsynced(change, node.number) for change in node.journal]
            stack += node.durable.values()
            stack += [change.node for change in node.journal]
        else:
            found += [
                Unsynced(change, node.number) for change in node.journal if change.fate is not Fate.SYNCED
            ]
    found.sort(key=lambda item: item.change.order)
    return found


class _Bases(dict[int, bytearray]):
    """What the disk held of each file before its journal, worked out once for many crashes."""

    def of(self, inode: FileInode) -> bytearray:
        base = self.get(id(inode))
        if base is None:
            base = self[id(inode)] = inode.durable()
        return base


def surviving_tree(root: DirectoryInode, choose: Chooser, bases: _Bases | None = None) -> DirectoryInode:
    """The tree that the disk holds after the crash; ``root`` is left as it is."""
    known = bases if bases is not None else _Bases()
    files: dict[int, FileInode] = {}

    def file(node: FileInode) -> FileInode:
        twin = files.get(id(node))
        if twin is None:  # a hard link meets its twin here a second time
            twin = files[id(node)] = _surviving_file(node, choose, known)
        twin.links += 1
        return twin

    def directory(node: DirectoryInode) -> DirectoryInode:
        twin = DirectoryInode(node.number)
        twin.changed = node.changed
        entries = dict(node.durable)
        for change in node.journal:
            if choose.entry(change):
                change.apply(entries)
        for name, entry in entries.items():
            twin.durable[name] = file(entry) if isinstance(entry, FileInode) else directory(entry)
        twin.entries = dict(twin.durable)
        return twin

    return directory(root)


def _surviving_file(inode: FileInode, choose: Chooser, bases: _Bases) -> FileInode:
    if not inode.journal:
        return inode.clone()
    base = bases.of(inode)
    content = bytearray(base)
    journal = inode.journal
    last_size = -1
    for index, change in enumerate(journal):
        if isinstance(change, Resize) and (change.fate is Fate.SYNCED or choose.resize(change)):
            last_size = index
    size = len(base)
    for index, change in enumerate(journal):
        if isinstance(change, Resize):
            if index <= last_size:
                size = change.after
                if size < change.before:
                    del content[size:]
        else:
            every = (1 << change.sectors) - 1
            change.put(content, every if change.fate is Fate.SYNCED else choose.sectors(change))
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    del content[size:]
    twin = FileInode.of(inode.number, content)
    twin.changed = inode.changed
    return twin


def cloned_tree(root: DirectoryInode) -> DirectoryInode:
    """A twin of the tree with its page cache and its journals: nothing was lost, nothing was synced."""
    files: dict[int, FileInode] = {}
    directories: dict[int, DirectoryInode] = {}

    def file(node: FileInode) -> FileInode:
        twin = files.get(id(node))
        if twin is None:
            twin = files[id(node)] = node.clone()
            twin.links = node.links
        return twin

    def directory(node: DirectoryInode) -> DirectoryInode:
        known = directories.get(id(node))
        if known is not None:
            return known
        twin = directories[id(node)] = DirectoryInode(node.number)
        twin.changed = node.changed
        twin.entries = {name: twin_of(entry) for name, entry in node.entries.items()}
        twin.durable = {name: twin_of(entry) for name, entry in node.durable.items()}
        for change in node.journal:
            node_twin = twin_of(change.node)
            twin.journal.append(EntryChange(change.order, change.removed, change.added, node_twin))
        return twin

    def twin_of(node: Node) -> Node:
        return file(node) if isinstance(node, FileInode) else directory(node)

    return directory(root)


def bounded_choices(pending: list[Unsynced]) -> Iterator[Chooser]:
    """Kept subsets that found bugs elsewhere, the likeliest first; their number grows with ``pending``."""
    every = frozenset(id(item.change) for item in pending)
    yield _Kept(frozenset())
    yield _Kept(every)
    if not pending:
        return
    writes = [item.change for item in pending if isinstance(item.change, Write)]
    if writes:
        yield from _torn(every, writes[-1])
    for kind in (Write, Resize, EntryChange):
        of_kind = frozenset(id(item.change) for item in pending if isinstance(item.change, kind))
        yield _Kept(every - of_kind)
        yield _Kept(of_kind)
    for owner in dict.fromkeys(item.owner for item in pending):
        owned = frozenset(id(item.change) for item in pending if item.owner == owner)
        yield _Kept(every - owned)
        yield _Kept(owned)
    for end in range(len(pending) - 1, 0, -1):
        yield _Kept(frozenset(id(item.change) for item in pending[:end]))
    for item in pending:
        yield _Kept(every - {id(item.change)})
        yield _Kept(frozenset((id(item.change),)))
    for write in writes[:-1]:
        yield from _torn(every, write)


def _torn(kept: frozenset[int], write: Write) -> Iterator[Chooser]:
    """Everything kept but for a part of one write: its end, all but its start, its start, its middle."""
    sectors = write.sectors
    every = (1 << sectors) - 1
    cuts = {every >> 1, 1, every >> (sectors // 2), every & ~1, every & ~(1 << sectors // 2)}
    for mask in sorted(cuts - {every, 0}):
        yield _Kept(kept, {id(write): mask})


def crash_trees(root: DirectoryInode, limit: int) -> Iterator[DirectoryInode]:
    """Up to ``limit`` different trees that a crash could leave, from ``bounded_choices``."""
    pending = unsynced_changes(root)
    bases = _Bases()
    seen: set[bytes] = set()
    for choice in bounded_choices(pending):
        if len(seen) >= limit:
            return
        tree = surviving_tree(root, choice, bases)
        mark = fingerprint(tree)
        if mark not in seen:
            seen.add(mark)
            yield tree


def fingerprint(root: DirectoryInode) -> bytes:
    """A digest of what programs see in the tree: names, contents, and which names are one file."""
    digest = blake2b(digest_size=16)
    feed: Callable[[bytes], None] = digest.update
    met: dict[int, int] = {}

    def add(node: Node) -> None:
        if isinstance(node, DirectoryInode):
            feed(b"d%d;" % len(node.entries))
            for name in sorted(node.entries):
                feed(b"%d:" % len(name) + name.encode())
                add(node.entries[name])
            return
        first = met.setdefault(id(node), len(met))
        feed(b"f%d,%d;" % (first, len(node)))
        feed(node.read(len(node), 0))

    add(root)
    return digest.digest()
