"""Cleaned segments take the place of those they were made from; a crash anywhere leaves the old or the new.

1. The new files are written as `<name>.cleaned`, each synced, then their names.
2. `%020d.swap`, named by the first offset, says what replaces what: made durable by a rename, it commits.
3. The new logs are renamed over the old names, the last first, then the indexes; the directory is synced.
4. The files of the other old segments go, the first first; the directory is synced.
5. The `.swap` file goes; the directory is synced.

Before 2 recovery removes the `.cleaned` files, after it goes through 3 to 5 again. Whoever lists the segments
meanwhile finds each offset in at least one of them: between 3 and 4 an old segment may lie behind a new one
that reaches over it, and has all records that the new one has there. Kafka's own `.swap` files, which are
renamed segments, are left alone: see ``listing.py``.

The text of a `.swap` file is a checkpoint's (``checkpoints.py``): a line with the numbers of new and old
segments, then `base size` of the new ones and `base next` of those old ones whose names go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from logstore.errors import DamagedStoreError
from logstore.log.checkpoints import decode_pairs, encode_pairs
from logstore.log.producers import transaction_index
from logstore.log.segments import offset_index, time_index
from logstore.seams.fs import FileSystem, exists, read_file, remove_if_there, replace_file

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
LOG_SUFFIX = ".log"
INDEX_SUFFIXES = (offset_index.SUFFIX, time_index.SUFFIX, transaction_index.SUFFIX)
_NAME = re.compile(r"(\d{20})\.swap")


class HalfPlacedError(OSError):
    """Some of the new segments are in place, others are not: only recovery gets on from here."""


class Swap(NamedTuple):
    """``new``: (base offset, bytes) of the segments that come; ``old``: (base offset, next offset) of those
    that go and have no successor of their name. Both in order."""

    directory: str
    new: tuple[tuple[int, int], ...]
    old: tuple[tuple[int, int], ...]

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.new[0][0]:020d}{SWAP_SUFFIX}"

    def file(self, base_offset: int, suffix: str) -> str:
        return f"{self.directory}/{base_offset:020d}{suffix}"

    def commit(self, fs: FileSystem) -> None:
        """Step 2, and the names of step 1. After an ``OSError`` call ``undo``."""
        fs.sync_dir(self.directory)
        pairs = ((len(self.new), len(self.old)), *self.new, *self.old)
        replace_file(fs, self.path, encode_pairs(pairs))

    def place(self, fs: FileSystem, *, again: bool = False) -> OSError | None:
        """The renames of step 3. ``OSError`` if nothing has changed, ``HalfPlacedError``; the error of an index
        that stayed where it is, is given back: indexes are hints, those of the old segment serve as well.
        ``again``: an earlier try may have got some way; then a failure is a ``HalfPlacedError`` always."""
        placed = again
        for base, _ in reversed(self.new):
            path = self.file(base, LOG_SUFFIX)
            try:
                if not again or exists(fs, path + CLEANED_SUFFIX):
                    fs.rename(path + CLEANED_SUFFIX, path)
            except OSError as error:
                if placed:
                    raise HalfPlacedError(error.errno, error.strerror, path) from error
                raise
            placed = True
        refused: OSError | None = None
        for base, _ in self.new:
            for suffix in INDEX_SUFFIXES:
                path = self.file(base, suffix)
                try:
                    fs.rename(path + CLEANED_SUFFIX, path)
                except FileNotFoundError:
                    continue  # there is none, or it is in place already
                except OSError as error:
                    refused = refused or error
        return refused

    def finish(self, fs: FileSystem, retire: Callable[[], None] | None = None) -> None:
        """What follows the renames. ``retire`` does step 4 in another way than by removing the files."""
        fs.sync_dir(self.directory)
        if retire is not None:
            retire()
        else:
            for base, _ in self.old:
                for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
                    remove_if_there(fs, self.file(base, suffix))
            fs.sync_dir(self.directory)
        remove_if_there(fs, self.path)
        fs.sync_dir(self.directory)

    def undo(self, fs: FileSystem) -> None:
        """Back from anywhere before step 3. The `.cleaned` files stay until it is durable that nothing refers
        to them: else recovery would take them for renamed already, and remove the old segments."""
        remove_if_there(fs, self.path + ".tmp")
        remove_if_there(fs, self.path)
        fs.sync_dir(self.directory)
        for base, _ in self.new:
            discard(fs, self.directory, base)

    def is_placed(self, fs: FileSystem) -> bool:
        """Whether no new log waits for its rename any more."""
        return not any(exists(fs, self.file(base, LOG_SUFFIX) + CLEANED_SUFFIX) for base, _ in self.new)


def discard(fs: FileSystem, directory: str, base_offset: int) -> None:
    """Remove the `.cleaned` files of a segment that nothing refers to."""
    for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
        remove_if_there(fs, f"{directory}/{base_offset:020d}{suffix}{CLEANED_SUFFIX}")


def pending(fs: FileSystem, directory: str, names: Collection[str]) -> list[Swap]:
    """The committed swaps among the names of a folder. DamagedStoreError, UnsupportedStoreVersionError,
    ``OSError``."""
    found = []
    for match in filter(None, map(_NAME.fullmatch, sorted(names))):
        path = f"{directory}/{match[0]}"
        try:
            pairs = decode_pairs(read_file(fs, path), path)
        except FileNotFoundError:
            continue  # its owner is done with it
        found.append(_parsed(directory, path, int(match[1]), pairs))
    return found


def _parsed(directory: str, path: str, base_offset: int, pairs: Sequence[tuple[int, int]]) -> Swap:
    new_count, old_count = pairs[0] if pairs else (0, 0)
    new, old = tuple(pairs[1 : 1 + new_count]), tuple(pairs[1 + new_count :])
    sound = new_count > 0 and len(new) == new_count and len(old) == old_count and new[0][0] == base_offset
    if not sound or min(map(min, pairs[1:])) < 0:
        raise DamagedStoreError(f"{path} does not say what replaces what: {pairs[:3]}", path=path)
    return Swap(directory, new, old)


def recover(fs: FileSystem, directory: str, names: Collection[str]) -> bool:
    """Finish the swaps that a crash cut short; whether there was one. `.cleaned` files that are left afterwards
    may be removed. Only for the owner, before it reads any
    segment. Errors as ``pending``; DamagedStoreError when a new segment is not the one that was written."""
    swaps = pending(fs, directory, names)
    if swaps or any(name.endswith(CLEANED_SUFFIX) for name in names):
        # A `.swap` that a killed process had written or removed is seen so, and may not be on disk so: it must
        # be before anything that relies on it.
        fs.sync_dir(directory)
    for swap in swaps:
        for base, size in swap.new:
            _check_size(fs, swap.file(base, LOG_SUFFIX), size, swap)
        refused = swap.place(fs, again=True)
        if refused is not None:
            raise refused
        swap.finish(fs)
    return bool(swaps)


def _check_size(fs: FileSystem, path: str, size: int, swap: Swap) -> None:
    """Of the new log, wherever it is now; it is nowhere if retention took it after it had come into place."""
    for place in (path + CLEANED_SUFFIX, path):
        try:
            found = fs.stat(place).size
        except FileNotFoundError:
            continue  # it is in the other place, or gone
        if found != size:
            raise DamagedStoreError(f"{place} has {found} bytes, {swap.path} says {size}", path=place)
        return


def superseded(fs: FileSystem, directory: str, names: Collection[str]) -> set[int]:
    """Base offsets of segments among ``names`` that a new segment, in place already, reaches over."""
    found: set[int] = set()
    for swap in pending(fs, directory, names):
        if swap.is_placed(fs):
            found.update(base for base, _ in swap.old)
    return found
