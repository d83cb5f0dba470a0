"""Membership in a group, exclusive for now: a lock per group, held until the consumer closes.

Sharing a group among members comes with the group coordinator; until then a second live member is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from logstore.context import StoreContext
from logstore.errors import GroupBusyError
from logstore.groups.offsets import validate_group
from logstore.lock_view import LockView
from logstore.locks import FileLocks, LockHolder, Locks

_MEMORY_SLOTS: Final = 1 << 60  # far from the slots that the catalogue gives to topics


class GroupHold:
    """Held from its construction to ``release``. ``GroupBusyError`` names who holds the group."""

    def __init__(self, context: StoreContext, group: str) -> None:
        validate_group(group)
        context.check_writable()
        self._locks, self._slot, self._close = lock_of(context, "group", group, _MEMORY_SLOTS)
        if not self._locks.try_acquire(self._slot):
            holder = self._locks.holder(self._slot)
            self._close()
            who = "another consumer" if holder is None else holder.describe()
            raise GroupBusyError(
                f"group {group!r} has a live member: {who}",
                hint="close that consumer or use another group; sharing a group comes with a later version",
            )
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._locks.release(self._slot)
            self._close()


def group_holder(context: StoreContext, group: str) -> LockHolder | None:
    """Who holds the group now, None if nobody does."""
    locks, slot, close = lock_of(context, "group", group, _MEMORY_SLOTS)
    try:
        return locks.holder(slot)
    finally:
        close()


def lock_of(
    context: StoreContext, kind: str, name: str, memory_slots: int
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
