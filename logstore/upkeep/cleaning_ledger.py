"""What became of cleanings, by partition: the last result, what failed and when it is tried again, totals.

In memory, and of this process: what has to outlive it is the cleaner point in the topic's state, and the horizon in
the partition's cleaner mark. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.errors import LogStoreError
from logstore.log.cleaning.cleanable import NEVER
from logstore.log.cleaning.cleaning import CleanResult
from logstore.types import LastCleaning

FIRST_RETRY_S = 60.0
LONGEST_RETRY_S = 3600.0
SHORTEST_HORIZON_MS = 60_000
# A topic that is passed on all the time: from so many cleanings ended early in a row on it is kept for one, each time
# for twice as long.
STARVED_AT = 3
FIRST_HOLD_S = 1.0
LONGEST_HOLD_S = 8.0

Place = tuple[str, int]  # topic id, partition: a topic made anew under the same name starts anew


class Trouble(NamedTuple):
    """A partition that could not be cleaned. ``retry_at_s``: by the monotonic clock."""

    message: str
    failures: int
    retry_at_s: float


@dataclass(slots=True)
class CleaningTotals:
    """Since the store was opened."""

    cleanings: int = 0
    failures: int = 0
    cancelled: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    records_read: int = 0
    records_kept: int = 0


@dataclass(slots=True)
class CleaningLedger:
    totals: CleaningTotals = field(default_factory=CleaningTotals)
    _last: dict[Place, LastCleaning] = field(default_factory=dict)
    _horizons: dict[Place, tuple[int, int]] = field(default_factory=dict)  # cleaner point, horizon
    _troubles: dict[Place, Trouble] = field(default_factory=dict)
    _ended_early: dict[Place, int] = field(default_factory=dict)  # in a row
    _lock: threading.Lock = field(default_factory=lambda: threading.Lock())

    def finished(self, place: Place, result: CleanResult, *, finished_ms: int, took_s: float) -> int:
        """A cleaning came to its end: earlier trouble is over. Gives the time of the next for a horizon's sake."""
        with self._lock:
            totals = self.totals
            totals.cleanings += 1
            totals.bytes_read += result.bytes_before
            totals.bytes_kept += result.bytes_after
            totals.records_read += result.records_before
            totals.records_kept += result.records_after
            self._troubles.pop(place, None)
            self._ended_early.pop(place, None)
            horizon_ms = result.next_horizon_ms
            # Whatever it says: cleaning for a horizon never follows on the heels of a cleaning.
            if horizon_ms != NEVER:
                horizon_ms = max(horizon_ms, finished_ms + SHORTEST_HORIZON_MS)
            self._horizons[place] = (result.cleaned_to, horizon_ms)
            self._last[place] = LastCleaning(
                finished_ms=finished_ms,
                took_ms=round(took_s * 1000),
                cleaned_to=result.cleaned_to,
                bytes_before=result.bytes_before,
                bytes_after=result.bytes_after,
                records_before=result.records_before,
                records_after=result.records_after,
            )
            return horizon_ms

    def failed(self, place: Place, error: LogStoreError, now_s: float) -> Trouble:
        """The partition is left alone for a minute, twice as long each time, an hour at most."""
        with self._lock:
            self.totals.failures += 1
            before = self._troubles.get(place)
            failures = 1 if before is None else before.failures + 1
            wait_s = min(FIRST_RETRY_S * 2.0 ** min(failures - 1, 30), LONGEST_RETRY_S)
            trouble = Trouble(f"{type(error).__name__}: {error}", failures, now_s + wait_s)
            self._troubles[place] = trouble
            return trouble

    def cancelled(self, place: Place) -> None:
        """A cleaning was ended early."""
        with self._lock:
            self.totals.cancelled += 1
            self._ended_early[place] = self._ended_early.get(place, 0) + 1

    def hold_s(self, place: Place) -> float:
        """How long the next cleaning may keep the topic from processes that wait for it; mostly 0."""
        times = self._ended_early.get(place, 0) - STARVED_AT
        return 0.0 if times < 0 else min(FIRST_HOLD_S * 2.0 ** min(times, 30), LONGEST_HOLD_S)

    def forgive(self, place: Place) -> None:
        """Somebody asks for the partition by hand: the wait is over."""
        with self._lock:
            self._troubles.pop(place, None)

    def trouble(self, place: Place) -> Trouble | None:
        return self._troubles.get(place)

    def failures(self) -> dict[Place, int]:
        """Of the partitions in trouble, how often they failed in a row."""
        with self._lock:
            return {place: trouble.failures for place, trouble in self._troubles.items()}

    @property
    def quarantined(self) -> int:
        return len(self._troubles)

    def last(self, place: Place) -> LastCleaning | None:
        return self._last.get(place)

    def horizon_ms(self, place: Place, point: int, read: Callable[[], int | None], unknown_ms: int) -> int:
        """When the partition's next tombstone may go. ``point``: the cleaner point; where another process has moved
        it, ``read`` asks the mark. Where that does not know either, it is ``unknown_ms`` of the first question: one
        cleaning has to look. Errors: those of ``read``."""
        known = self._horizons.get(place)
        if known is None or known[0] != point:
            found = read()
            known = (point, unknown_ms if found is None else found)
            with self._lock:
                self._horizons[place] = known
        return known[1]

    def forget(self, topic_id: str) -> None:
        """The topic is gone."""
        with self._lock:
            for table in (self._last, self._horizons, self._troubles, self._ended_early):
                for place in [place for place in table if place[0] == topic_id]:
                    table.pop(place, None)

    def metrics(self) -> dict[str, float]:
        totals = self.totals
        return {
            "logstore_cleanings_total": totals.cleanings,
            "logstore_cleaning_failures_total": totals.failures,
            "logstore_cleanings_cancelled_total": totals.cancelled,
            "logstore_cleaner_read_bytes_total": totals.bytes_read,
            "logstore_cleaner_kept_bytes_total": totals.bytes_kept,
            "logstore_cleaner_read_records_total": totals.records_read,
            "logstore_cleaner_kept_records_total": totals.records_kept,
            "logstore_quarantined_partitions": self.quarantined,
        }
