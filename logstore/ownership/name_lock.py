"""A lock of its own for each name of a kind (producers, transactional ids, cleaners), beside those of topics.

Its file, `.locks/<kind>-<hash of the name>`, goes when its holder gives the name up; what killed processes left is
swept when the store is opened. A process that opened such a file just before it was removed sees so after it
locked it, and makes another one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable
from typing import Final

from logstore.errors import LogStoreError, from_os_error
from logstore.ownership.lock import LockHolder, Locks
from logstore.ownership.lock_space import LockSpace
from logstore.ownership.lock_view import LockView
from logstore.ownership.locks import FileLocks
from logstore.seams.clock import Clock
from logstore.seams.fs import Access

logger = logging.getLogger(__name__)

# With the suffixes that `flock` needs (``WholeFileLocks``).
_FILE: Final = re.compile(r"((?:producer|transaction|cleaner|expiry)-[0-9a-f]{32})(?:\.0(?:\.turn)?)?")
_MOST_SWEPT: Final = 1000  # at one opening of a store: the next goes on


def lock_of(
    context: LockSpace, kind: str, name: str, memory_slots: int
) -> tuple[Locks, int, Callable[[], None]]:
    """The lock that stands for ``name`` among those of its ``kind``: (locks, slot, what gives them back).
    ``memory_slots``: where, of a store in memory, the kind's slots begin."""
    if isinstance(context.locks, LockView):
        view = LockView(_path(context, kind, name))
        return view, 0, view.close
    if isinstance(context.locks, FileLocks):
        context.locks.check()  # in a folder made anew others would not see the lock of this store's topics
        locks = FileLocks(
            _path(context, kind, name), clock=context.clock, access=context.locks.access, disposable=True
        )
        return locks, 0, locks.close
    return context.locks, memory_slots + int.from_bytes(_digest(name)[:7], "big"), lambda: None


def holder_of(context: LockSpace, kind: str, name: str, memory_slots: int) -> LockHolder | None:
    """The process that holds the lock of ``name``; None if it is free. No file is made for the look."""
    if not isinstance(context.locks, LockView | FileLocks):
        return context.locks.holder(memory_slots + int.from_bytes(_digest(name)[:7], "big"))
    view = LockView(_path(context, kind, name))
    try:
        return view.holder(0)
    finally:
        view.close()


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _path(context: LockSpace, kind: str, name: str) -> str:
    return f"{context.root}/.locks/{kind}-{_digest(name)[:16].hex()}"


def sweep(directory: str, clock: Clock, access: Access) -> int:
    """Remove lock files in ``directory`` that no process holds, a thousand at the most; the number of locks that
    were looked at. A file that cannot be removed stays, with a warning."""
    try:
        found = {match[1] for name in os.listdir(directory) if (match := _FILE.fullmatch(name))}
    except OSError as error:
        raise from_os_error(error, "list", directory) from error
    swept = sorted(found)[:_MOST_SWEPT]
    for name in swept:
        try:
            FileLocks(f"{directory}/{name}", clock=clock, access=access, disposable=True).close()
        except LogStoreError as error:
            logger.warning("a lock file that may be of no use any more stays: %s", error)
    return len(swept)
