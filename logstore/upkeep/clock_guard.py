"""Whether the wall clock may be believed by what deletes data.

Retention by time compares record times with the wall clock: a clock that somebody set years ahead would let
it delete everything at once. Wall time is therefore compared with monotonic time between two looks. The first
look of a process is compared with the time at which the store was opened and with the last look of any process
of the same boot (``directory/maintenance_note.py``), so that processes that live for a second each do their part. After
a restart of the machine the clock is believed a second after the store was opened; where an earlier process saw
another time, or its note is damaged, a first look only takes notice, and a look a second later is believed. After a
jump within a process the guard says no until the clock is back where it should be, or the store is opened anew.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from logstore.directory import maintenance_note
from logstore.directory.maintenance_note import MaintenanceNote
from logstore.errors import LogStoreError
from logstore.partition.context import StoreContext

logger = logging.getLogger(__name__)

TOLERANCE_MS: Final = 60_000  # slewing and leap seconds stay far below
SETTLE_S: Final = 1.0  # that the clock must have been seen to go on for
_KEEP_NOTE_MS: Final = 3_600_000  # an hour's slewing is far below, too


class ClockGuard:
    """One for each opened store. Thread-safe."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._anchor = (context.clock.wall_ms(), context.clock.monotonic_s())
        self._note: MaintenanceNote | None = None
        # From when on the clock is known to be steady; None: no look was taken.
        self._since_s: float | None = None
        self.jump_ms = 0  # how far wall time is from where it should be; 0 while it is steady

    def steady(self) -> bool:
        """Take a look; True if time-based deletion may go on."""
        clock = self._context.clock
        with self._lock:
            wall_ms, monotonic_s = clock.wall_ms(), clock.monotonic_s()
            drift = _drift_ms(self._anchor, wall_ms, monotonic_s)
            if abs(drift) > TOLERANCE_MS:
                self.jump_ms = drift
                return False
            self.jump_ms = 0
            if self._since_s is None:
                self._since_s = self._first_look(wall_ms, monotonic_s)
            self._anchor = (wall_ms, monotonic_s)
            if self._note is None or wall_ms - self._note.wall_ms > _KEEP_NOTE_MS:
                self._leave_note(wall_ms, monotonic_s)
            return monotonic_s - self._since_s >= SETTLE_S

    def _first_look(self, wall_ms: int, monotonic_s: float) -> float:
        """Since when the clock is known to be steady, by monotonic time."""
        context = self._context
        since_s = self._anchor[1]
        try:
            note = maintenance_note.load(context.fs, context.root)
        except LogStoreError as error:
            logger.warning("retention by time waits for the next pass: %s", error)
            note, since_s = None, monotonic_s
        if note is not None and note.boot_id == context.clock.boot_id():
            drift = _drift_ms((note.wall_ms, note.monotonic_ms / 1000), wall_ms, monotonic_s)
            if abs(drift) <= TOLERANCE_MS:
                self._note = note
                return note.monotonic_ms / 1000
            since_s = monotonic_s
            logger.warning(
                "the wall clock is %d ms from where another process saw it: retention by time waits for a pass",
                drift,
            )
        self._leave_note(wall_ms, monotonic_s)
        return since_s

    def _leave_note(self, wall_ms: int, monotonic_s: float) -> None:
        context = self._context
        note = MaintenanceNote(context.clock.boot_id(), wall_ms, round(monotonic_s * 1000))
        self._note = note
        try:
            before = maintenance_note.load(context.fs, context.root)
        except LogStoreError:
            before = None  # a damaged one was complained of at the first look; it is replaced
        if before is not None:
            note = note._replace(expired_ms=before.expired_ms)
        try:
            maintenance_note.save(context.fs, context.root, note)
        except LogStoreError as error:
            logger.warning("the next process will wait a pass before it retains by time: %s", error)


def _drift_ms(anchor: tuple[int, float], wall_ms: int, monotonic_s: float) -> int:
    return wall_ms - anchor[0] - round((monotonic_s - anchor[1]) * 1000)
