"""Where members of groups show that they live: a lock and a heartbeat for each, by slot.

The lock (`.locks/members`) goes with its process, however that ends; the heartbeat (`.heartbeats`) stops when the
process does. A member takes the lock, beats, and only then joins its group: a process that reads of it there finds
both. Slot 0 guards the making of the board.
"""

from __future__ import annotations

import threading
from typing import Final

from logstore.ownership.heartbeats import Beat, HeartbeatBoard, HeartbeatFile, MemoryHeartbeats
from logstore.ownership.lock import Locks
from logstore.ownership.lock_space import LockSpace
from logstore.ownership.lock_view import LockView
from logstore.ownership.locks import FileLocks

BOARD_SLOT: Final = 0
_MEMORY_SLOTS: Final = 1 << 60  # far from the slots that the catalogue gives to topics


def slot_of(liveness: bytes) -> int:
    """The slot that a member's record names (``Member.liveness``)."""
    return int.from_bytes(liveness, "big")


class MemberSlots:
    """Thread-safe. Files are opened with the first call; in a read-only store nothing can be taken."""

    def __init__(self, context: LockSpace) -> None:
        self._context = context
        self._guard = threading.Lock()
        self._opened: tuple[Locks, int, HeartbeatBoard] | None = None
        self._owned: list[Locks | HeartbeatBoard] = []

    def take(self, member_id: str) -> int:
        """A free slot, ours now, with a first beat in it. StorageError, DiskFullError."""
        locks, base, _ = self._open()
        slot = BOARD_SLOT + 1
        while not locks.try_acquire(base + slot):
            slot += 1
        try:
            self.beat(slot, member_id)
        except BaseException:
            locks.release(base + slot)
            raise
        return slot

    def give_back(self, slot: int) -> None:
        locks, base, _ = self._open()
        locks.release(base + slot)

    def beat(self, slot: int, member_id: str) -> None:
        """LockLostError if other processes do not see the slot's lock any more: the member is dead to them."""
        locks, _, board = self._open()
        locks.check(now=True)
        board.beat(slot, member_id, self.now_ms())

    def last_beat(self, slot: int) -> Beat | None:
        return self._open()[2].read(slot)

    def is_taken(self, slot: int) -> bool:
        locks, base, _ = self._open()
        return locks.taken(base + slot)

    def now_ms(self) -> int:
        """The time in which beats are told."""
        return int(self._context.clock.monotonic_s() * 1000)

    def _open(self) -> tuple[Locks, int, HeartbeatBoard]:
        opened = self._opened
        if opened is None:
            with self._guard:
                self._context.check_usable()
                opened = self._opened or self._make()
                self._opened = opened
        return opened

    def _make(self) -> tuple[Locks, int, HeartbeatBoard]:
        context = self._context
        path, beats = f"{context.root}/.locks/members", f"{context.root}/.heartbeats"
        made: Locks
        board = context.heartbeats
        if isinstance(context.locks, LockView):
            made = LockView(path)
            self._owned.append(made)
            if board is None:
                board = HeartbeatFile(beats, context.clock.boot_id(), writable=False)
        elif isinstance(context.locks, FileLocks):
            access = context.locks.access
            made = FileLocks(path, clock=context.clock, access=access)
            self._owned.append(made)
            if board is None:
                made.acquire(BOARD_SLOT, context.lock_timeout_s, f"the heartbeats {beats}")
                try:
                    board = HeartbeatFile(beats, context.clock.boot_id(), writable=True, access=access)
                finally:
                    made.release(BOARD_SLOT)
        else:
            return context.locks, _MEMORY_SLOTS, board or MemoryHeartbeats()
        self._owned.append(board)
        return made, 0, board

    def close(self) -> None:
        """Members that still have a slot are dead to other processes. Safe to call again."""
        with self._guard:
            owned, self._owned = self._owned, []
        for part in owned:
            part.close()
