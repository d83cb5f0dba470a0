"""A lock of its own for each name of a kind (producers), beside those of topics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from logstore.ownership.lock import Locks
from logstore.ownership.lock_space import LockSpace
from logstore.ownership.lock_view import LockView
from logstore.ownership.locks import FileLocks


def lock_of(
    context: LockSpace, kind: str, name: str, memory_slots: int
) -> tuple[Locks, int, Callable[[], None]]:
    """The lock that stands for ``name`` among those of its ``kind``: (locks, slot, what gives them back).
    ``memory_slots``: where, of a store in memory, the kind's slots begin."""
    digest = hashlib.sha256(name.encode()).digest()
    path = f"{context.root}/.locks/{kind}-{digest[:16].hex()}"
    if isinstance(context.locks, LockView):
        view = LockView(path)
        return view, 0, view.close
    if isinstance(context.locks, FileLocks):
        locks = FileLocks(path, clock=context.clock, mode_bits=context.locks.mode_bits)
        return locks, 0, locks.close
    return context.locks, memory_slots + int.from_bytes(digest[:7], "big"), lambda: None
