"""``Locks``: the protocol of a store's locks, and ``LockHolder``: the process that holds one."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from socket import gethostname
from typing import Final, NamedTuple, Protocol

from logstore.seams.clock import Clock

CATALOGUE_SLOT: Final = 0


class TurnPauses(NamedTuple):
    """How often a process looks for a lock, in seconds. ``first``, ``longest``: when it is next in turn;
    ``turn_first``, ``turn_longest``: when it waits for the turn."""

    first_s: float
    longest_s: float
    turn_first_s: float
    turn_longest_s: float


MOMENTS: Final = TurnPauses(0.0001, 0.005, 0.0005, 0.02)  # for a lock that is held for one write
TURNS: Final = TurnPauses(0.001, 0.01, 0.002, 0.02)  # for one that its holder gives up when it is asked to


class LockHolder(NamedTuple):
    """The process that holds a lock. ``since_ms``: ms since 1970 UTC."""

    pid: int
    host: str
    command: str
    since_ms: int

    def describe(self) -> str:
        """For messages, e.g. ``pid 71 on host7 (python import.py), since 2026-11-27 21:40:02`` local time."""
        since = datetime.fromtimestamp(self.since_ms / 1000, tz=UTC).astimezone()
        return f"pid {self.pid} on {self.host} ({self.command}), since {since:%Y-%m-%d %H:%M:%S}"


class Locks(Protocol):
    """The locks of one store, as one opened store sees them."""

    def try_acquire(self, slot: int) -> bool:
        """Take the slot if it is free. StorageError when the system refuses more than the lock."""
        ...

    def acquire(self, slot: int, timeout_s: float, what: str) -> None:
        """Take the slot, waiting at most ``timeout_s``. ``what`` names it in the TopicLockedError."""
        ...

    def acquire_in_turn(self, slot: int, timeout_s: float, what: str, pauses: TurnPauses = MOMENTS) -> None:
        """As ``acquire``, in the order in which processes came: the one that waits is next, also where the holder
        comes back at once, and the holder can see that it is asked for (``wanted``, ``lock_turns.py``)."""
        ...

    def try_turn(self, slot: int) -> bool:
        """Be the one that gets the slot next, if no other process is."""
        ...

    def end_turn(self, slot: int) -> None:
        """No longer be the next."""
        ...

    def wanted(self, slot: int) -> bool:
        """Whether another waits in turn for the slot."""
        ...

    def any_wanted(self) -> bool:
        """Whether another may wait in turn for any slot; False only if none does. One call for all slots."""
        ...

    def check(self, *, now: bool = False) -> None:
        """LockLostError if the files of the locks that are held are no longer those that other processes lock.
        Cheap enough for every append: looks once a millisecond at the most unless ``now``."""
        ...

    def release(self, slot: int) -> None:
        """Give up a slot that this object holds."""
        ...

    def held(self, slot: int) -> bool:
        """Whether this object holds the slot."""
        ...

    def holder(self, slot: int) -> LockHolder | None:
        """The holder of the slot, this object included; None when it is free (or its holder is not known)."""
        ...

    def taken(self, slot: int) -> bool:
        """Whether a process holds the slot, this object included."""
        ...

    def close(self) -> None:
        """Give up all slots; the object is of no more use."""
        ...

    def abandon(self) -> None:
        """What the system does for a process that was killed: all it held is free."""
        ...


def this_process(clock: Clock) -> LockHolder:
    """This process as a holder. The command is named without its arguments: they may hold secrets."""
    script = sys.argv[0] if sys.argv and sys.argv[0] else "-"
    name = os.path.basename(script)
    if name == "__main__.py":
        name = "-m " + os.path.basename(os.path.dirname(script))
    runs_python = name.startswith("-") or name.endswith(".py")
    return LockHolder(os.getpid(), gethostname(), f"python {name}" if runs_python else name, clock.wall_ms())
