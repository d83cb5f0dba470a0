"""What must hold of a partition with producers, transactions, compaction and erasure, as plain lists.

A ``Ledger`` knows the batches that were appended, by offset, and which of their records may be missing, must be
missing, or may be seen under ``read_committed``. It knows nothing of segments, snapshots, indexes or swaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.sim.model import (
    ACKED_SURVIVES,
    NOTHING_INVENTED,
    START_STAYS,
    WATERMARK_SAFE,
    Violation,
)

ONCE = "a batch that is sent again never makes a second copy, and no sequence is skipped"
COMMITTED_ONLY = "aborted and open transactions stay invisible to read_committed, all else is shown"
STABLE_END = "the last stable offset is where the first open transaction begins"
COMPACTED = "compaction keeps the last value of each key, and offsets"
CLEANED = "a finished cleaning has taken what is superseded, and nothing that it took comes back"
TOMBSTONES = "a tombstone stays until its horizon, and as long as the values that it deletes"
ERASED = "erased keys are gone for ever once the call has returned"
TOPIC_GONE = "the records of a deleted topic never come back in a new one"
IDS_ONCE = "a producer id is never handed out twice"
RESUMES = "a named producer goes on where the log ends for it"


class Row(NamedTuple):
    """``value`` None: a tombstone. Other values are unique."""

    key: bytes
    value: bytes | None
    timestamp_ms: int


class Batch(NamedTuple):
    """``commits``: of a marker, which has no rows: whether it commits."""

    rows: tuple[Row, ...] = ()
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    commits: bool | None = None

    @property
    def size(self) -> int:
        """Offsets that it takes."""
        return len(self.rows) if self.commits is None else 1

    def __repr__(self) -> str:
        if self.commits is not None:
            return f"<{'commit' if self.commits else 'abort'} {self.producer_id}>"
        return (
            f"<{self.producer_id}/{self.sequence} {[(r.key[-1:], (r.value or b'-')[:5]) for r in self.rows]}>"
        )


Timeline = list[tuple[int, Batch]]  # base offset, batch


class Seen(NamedTuple):
    """A batch as it was read: ``rows`` by offset, fewer than it covers after a cleaning."""

    base: int
    next_offset: int
    producer_id: int
    commits: bool | None
    rows: dict[int, Row]


class Cleaning(NamedTuple):
    """A cleaning that began: it may touch nothing at or past ``bound``. ``now_ms``: for horizons."""

    bound: int
    now_ms: int


class Erasing(NamedTuple):
    key: bytes
    end: int


@dataclass(slots=True)
class Ledger:
    """One partition. ``durable``, ``shown``, ``start``, ``trimming``: as in ``PartitionModel``; ``gone``: data
    offsets that a cleaning or an erasure took; ``horizons``: tombstone -> the earliest time at which it may go;
    ``cleaned``: markers below may be missing."""

    delete_retention_ms: int = 0
    batches: Timeline = field(default_factory=list)
    durable: int = 0
    shown: int = 0
    start: int = 0
    trimming: int = 0
    in_flight: Batch | None = None
    refused: Timeline = field(default_factory=list)
    poisoned: bool = False
    gone: set[int] = field(default_factory=set)
    horizons: dict[int, int] = field(default_factory=dict)
    cleaning: Cleaning | None = None
    cleaned: int = 0
    erasing: Erasing | None = None
    promised: frozenset[int] | None = None  # ``gone`` as it was when what is under way began
    wiped: set[int] = field(default_factory=set)  # of ``gone``, what an erasure took
    erased: frozenset[bytes] = frozenset()  # values that may be nowhere any more
    written: dict[bytes, bytes] = field(default_factory=dict)  # value -> key, of all that was ever tried

    def copy(self) -> Ledger:
        return replace(
            self,
            batches=list(self.batches),
            refused=list(self.refused),
            gone=set(self.gone),
            wiped=set(self.wiped),
            horizons=dict(self.horizons),
            written=dict(self.written),
        )

    def signature(self) -> str:
        return repr(
            (self.batches, self.durable, self.shown, self.start, self.trimming, self.in_flight)
        ) + repr(
            (
                self.refused,
                sorted(self.gone),
                sorted(self.wiped),
                self.horizons,
                self.cleaning,
                self.cleaned,
                self.erasing,
                self.erased,
            )
        )

    @property
    def end(self) -> int:
        return self.batches[-1][0] + self.batches[-1][1].size if self.batches else 0

    # --- appends ---

    def begin(self, batch: Batch) -> None:
        self.in_flight = batch
        values = {row.value: row.key for row in batch.rows if row.value is not None}
        self.written.update(values)
        self.erased = self.erased.difference(values)  # it had been lost, and is sent anew after the erasure

    def appended(self, offset: int, acks: object) -> None:
        """The batch in flight is in at ``offset``."""
        batch, self.in_flight = self.in_flight, None
        if batch is None:
            raise RuntimeError("nothing was in flight")
        if offset != self.end:
            raise Violation(ACKED_SURVIVES, f"{batch} went to offset {offset}, the log's end was {self.end}")
        self.batches.append((offset, batch))
        if acks == "all":
            self.durable = self.end

    def refuse(self, *, poisoned: bool) -> None:
        """The batch in flight failed with an error; a crash may still show it."""
        self.poisoned = self.poisoned or poisoned
        if self.in_flight is not None:
            self.refused.append((self.end, self.in_flight))
            self.in_flight = None

    def answered_again(self, batch: Batch, offset: int, acks: object) -> None:
        """A batch that is in the log was sent again, and ``offset`` answered."""
        base = self.place_of(batch)
        if offset != base:
            raise Violation(ONCE, f"{batch} is at {base}, sent again it was answered with {offset}")
        if acks == "all":
            self.durable = max(self.durable, base + batch.size)

    def place_of(self, batch: Batch) -> int | None:
        return next((base for base, known in self.batches if known == batch), None)

    def of_producer(self, producer_id: int) -> list[Batch]:
        return [
            batch for _, batch in self.batches if batch.producer_id == producer_id and batch.commits is None
        ]

    # --- what readers may see ---

    def below(self, end: int) -> Timeline:
        return [(base, batch) for base, batch in self.batches if base < end]

    def saw_bounds(self, start: int, high_watermark: int, stable: int, end: int) -> None:
        """As the running store tells them."""
        self.check_start(start)
        if end != self.end and not self.poisoned:
            raise Violation(NOTHING_INVENTED, f"the log ends at {end}, not at {self.end}")
        if not self.durable <= high_watermark <= self.end or high_watermark < self.shown:
            raise Violation(
                WATERMARK_SAFE,
                f"high watermark {high_watermark}, durable {self.durable}, shown {self.shown}, end {self.end}",
            )
        self.shown = high_watermark
        if not self.poisoned:
            self.check_stable(self.batches, high_watermark, stable)

    def check_start(self, start: int) -> None:
        if not self.start <= start <= max(self.start, self.trimming):
            raise Violation(START_STAYS, f"the log starts at {start}, {self.start} was acknowledged")

    def check_stable(self, timeline: Timeline, high_watermark: int, stable: int) -> None:
        due = stable_end(timeline, high_watermark)
        if stable != due:
            raise Violation(
                STABLE_END, f"last stable offset {stable} under {high_watermark}, {due} is due: {timeline}"
            )

    def check_committed(
        self, timeline: Timeline, start: int, stable: int, found: Sequence[tuple[int, Row]]
    ) -> None:
        """``found``: all records under ``read_committed`` from ``start`` on. Only in a log whose ``gone`` is
        known: no cleaning or erasure has begun since it was looked at."""
        aborted = aborted_offsets(timeline)
        due = [
            (offset, row)
            for offset, row in rows_of(timeline)
            if start <= offset < stable and offset not in aborted and offset not in self.gone
        ]
        if list(found) != due:
            raise Violation(COMMITTED_ONLY, f"read_committed shows {found}, due is {due}")

    # --- what files hold ---

    def check_shown(self, found: Sequence[Seen], end: int) -> Timeline:
        """What a reader sees before recovery; the batches that make it up."""
        if end < self.shown:
            raise Violation(WATERMARK_SAFE, f"a reader sees up to {end}, {self.shown} was shown before")
        return self.check_found(found, end)

    def check_survivors(self, found: Sequence[Seen], end: int, *, power_loss: bool) -> Timeline:
        """Every batch of a log that ends at ``end`` after a crash; the batches that make it up."""
        must = max(self.durable, self.shown) if power_loss else self.end
        if end < must and not self.poisoned:
            raise Violation(
                ACKED_SURVIVES,
                f"the log ends at {end} of {self.end}; durable {self.durable}, shown {self.shown}",
            )
        return self.check_found(found, end)

    def check_found(self, found: Sequence[Seen], end: int) -> Timeline:
        """``found`` covers [start, end) without a gap, and is what was appended there, less what may be gone."""
        candidates = self._candidates(end)
        if not candidates:
            raise Violation(NOTHING_INVENTED, f"no batch ever ended at {end}: {list(found[-2:])}")
        first: Violation | None = None
        for timeline in candidates:
            try:
                self._compare(timeline, found, end)
            except Violation as violation:
                first = first or violation
            else:
                return timeline
        raise first or RuntimeError("no candidate")

    def _candidates(self, end: int) -> list[Timeline]:
        """The logs that could end there: the likeliest first."""
        made: list[Timeline] = []
        if end == self.end or any(base + batch.size == end for base, batch in self.batches) or end == 0:
            made.append(self.below(end))
        if self.in_flight is not None and end == self.end + self.in_flight.size:
            made.append([*self.batches, (self.end, self.in_flight)])
        for base, batch in self.refused:
            if base + batch.size == end:
                made.append([*self.below(base), (base, batch)])
        return made

    def _compare(self, timeline: Timeline, found: Sequence[Seen], end: int) -> None:
        by_base = dict(timeline)
        known = dict(rows_of(timeline))
        low = max(self.start, self.trimming)
        at = found[0].base if found else end
        if at > low:
            raise Violation(ACKED_SURVIVES, f"batches begin at {at}, the log at {low} or before")
        present: set[int] = set()
        for seen in found:
            if seen.base != at:
                raise Violation(COMPACTED, f"a batch at {seen.base} where {at} was due")
            at = seen.next_offset
            if seen.commits is not None:
                marker = by_base.get(seen.base)
                if marker is None or (marker.commits, marker.producer_id) != (seen.commits, seen.producer_id):
                    raise Violation(NOTHING_INVENTED, f"{seen} where {marker} was written")
                present.add(seen.base)
            for offset, row in seen.rows.items():
                if known.get(offset) != row:
                    rule = ACKED_SURVIVES if offset < self.durable else NOTHING_INVENTED
                    raise Violation(rule, f"offset {offset} was {known.get(offset)} and is {row}")
                if offset in self.gone and offset >= self.start:
                    raise Violation(CLEANED, f"offset {offset}, {row}, had been taken and is back")
                present.add(offset)
        if at != end and found:
            raise Violation(ACKED_SURVIVES, f"batches go on to {at}, the log to {end}")
        self._check_missing(timeline, set(range(low, end)) - present, known)
        self._check_materialised(timeline, low, present)

    def _check_missing(self, timeline: Timeline, missing: set[int], known: dict[int, Row]) -> None:
        may = self.may_go(timeline)
        for offset in sorted(missing - self.gone):
            row = known.get(offset)
            if row is None:
                bound = max(self.cleaned, self.cleaning.bound if self.cleaning else 0)
                if offset >= bound:
                    raise Violation(
                        COMPACTED, f"the marker at {offset} is missing, cleaned was up to {bound}"
                    )
            elif offset not in may:
                rule = TOMBSTONES if row.value is None else COMPACTED
                raise Violation(rule, f"offset {offset}, {row}, is missing without a reason")

    def _check_materialised(self, timeline: Timeline, low: int, present: set[int]) -> None:
        """The last value of each key is the same with and without what is missing."""
        aborted = aborted_offsets(timeline)
        due: dict[bytes, bytes | None] = {}
        found: dict[bytes, bytes | None] = {}
        for offset, row in rows_of(timeline):
            if (
                offset < low
                or offset in aborted
                or offset in self.wiped
                or self._is_being_erased(offset, row)
            ):
                continue
            due[row.key] = row.value
            if offset in present:
                found[row.key] = row.value
        for key, value in due.items():
            if found.get(key) != value:
                raise Violation(
                    TOMBSTONES, f"the last value of {key!r} was {value!r} and is {found.get(key)!r}"
                )

    def _is_being_erased(self, offset: int, row: Row) -> bool:
        return self.erasing is not None and row.key == self.erasing.key and offset < self.erasing.end

    # --- cleaning ---

    def begin_cleaning(self, now_ms: int, high_watermark: int) -> None:
        """At the latest now: what is asked for may be done in part from here on, wherever it ends."""
        bound = stable_end(self.batches, high_watermark)
        self._hold_promise()
        self.cleaning = Cleaning(bound, now_ms)
        for offset, row in rows_of(self.batches):
            if row.value is None and offset < bound:
                self.horizons.setdefault(offset, now_ms + self.delete_retention_ms)

    def begin_erasing(self, key: bytes) -> None:
        """Every record of the key that is in the log now."""
        self._hold_promise()
        self.erasing = Erasing(key, self.end)

    def _hold_promise(self) -> None:
        if self.promised is None:
            self.promised = frozenset(self.gone)

    def unsettle(self) -> None:
        """What is under way has failed: readers may have seen it done, and a power loss may undo it."""
        if self.promised is not None:
            self.gone &= self.promised
            self.wiped &= self.promised

    def may_go(self, timeline: Timeline) -> set[int]:
        """Data offsets that the cleaning or erasure in flight may have taken."""
        found: set[int] = set()
        if self.erasing is not None:
            found |= {offset for offset, row in rows_of(timeline) if self._is_being_erased(offset, row)}
        if self.cleaning is not None:
            bound, now_ms = self.cleaning
            found |= superseded(timeline, bound)
            found |= {
                offset
                for offset, row in rows_of(timeline)
                if row.value is None and self.horizons.get(offset, now_ms + 1) <= now_ms
            }
        return found

    def looked(self, timeline: Timeline, found: Sequence[Seen], start: int, end: int) -> None:
        """``found``, of [start, end), was checked and is how the log is now: what is missing stays so."""
        present = {offset for seen in found for offset in seen.rows}
        rows = {offset: row for offset, row in rows_of(timeline) if self.start <= offset < end}
        self.gone = {offset for offset in rows.keys() - present if offset >= start or offset in self.gone}
        self.wiped &= rows.keys()
        self.wiped |= {offset for offset in self.gone if self._is_being_erased(offset, rows[offset])}

    def cleaned_up_to(self, end: int, segments_end: int) -> None:
        """A cleaning says that it is through with all before ``end``. ``looked`` was called since."""
        bound = self.cleaning.bound if self.cleaning is not None else 0
        if end > bound:
            raise Violation(STABLE_END, f"cleaned up to {end}, stable is only what lies before {bound}")
        left = {offset for offset in superseded(self.batches, end) if offset >= self.start} - self.gone
        if left:
            raise Violation(
                CLEANED, f"cleaned up to {end} of {segments_end}, and {sorted(left)} are still there"
            )
        self.over()

    def over(self) -> None:
        """No cleaning is under way any more."""
        if self.cleaning is not None:
            self.cleaned = max(self.cleaned, self.cleaning.bound)
        self.cleaning = self.promised = None

    def erased_for_good(self) -> None:
        """The erasure in flight has returned; ``looked`` was called since."""
        if self.erasing is None:
            raise RuntimeError("no erasure was under way")
        key = self.erasing.key
        left = [
            row
            for offset, row in rows_of(self.batches)
            if self._is_being_erased(offset, row) and self.start <= offset and offset not in self.gone
        ]
        if left:
            raise Violation(ERASED, f"{left} are still in the log")
        self.erased = self.erased.union(value for value, of in self.written.items() if of == key)
        self.erasing = self.promised = None

    # --- a new life ---

    def adopt(self, timeline: Timeline, found: Sequence[Seen], end: int, *, power_loss: bool) -> list[Batch]:
        """Go on with what a recovery found; the batches that are lost."""
        before = [batch for _, batch in (*self.batches, *self.refused)]
        before += [self.in_flight] if self.in_flight is not None else []
        self.batches = list(timeline)
        kept = {batch for _, batch in self.batches}
        self.looked(timeline, found, self.start, end)
        self.over()
        self.horizons = {offset: due for offset, due in self.horizons.items() if offset < end}
        self.in_flight, self.refused, self.poisoned, self.erasing, self.trimming = None, [], False, None, 0
        if power_loss:
            self.durable = end
        self.shown = min(self.shown, end)
        return [batch for batch in dict.fromkeys(before) if batch not in kept]


def rows_of(timeline: Iterable[tuple[int, Batch]]) -> list[tuple[int, Row]]:
    """Data records by offset."""
    return [(base + number, row) for base, batch in timeline for number, row in enumerate(batch.rows)]


def stable_end(timeline: Timeline, high_watermark: int) -> int:
    """Where the first transaction begins that is open, or whose end nobody may see yet."""
    begun: dict[int, int] = {}
    unstable = [high_watermark]
    for base, batch in timeline:
        if batch.commits is not None:
            first = begun.pop(batch.producer_id, None)
            if first is not None and base >= high_watermark:
                unstable.append(first)
        elif batch.transactional:
            begun.setdefault(batch.producer_id, base)
    return min(*unstable, *begun.values(), high_watermark)


def aborted_offsets(timeline: Timeline) -> set[int]:
    """Data offsets of transactions that were aborted."""
    found: set[int] = set()
    begun: dict[int, list[int]] = {}
    for base, batch in timeline:
        if batch.commits is not None:
            offsets = begun.pop(batch.producer_id, [])
            found.update(offsets if not batch.commits else [])
        elif batch.transactional:
            begun.setdefault(batch.producer_id, []).extend(range(base, base + batch.size))
    return found


def superseded(timeline: Timeline, bound: int) -> set[int]:
    """Data offsets below ``bound`` that a cleaning up to there takes: aborted, or not the last of their key."""
    aborted = aborted_offsets(timeline)
    last: dict[bytes, int] = {}
    rows = [(offset, row) for offset, row in rows_of(timeline) if offset < bound]
    for offset, row in rows:
        if offset not in aborted:
            last[row.key] = offset
    return {offset for offset, row in rows if offset in aborted or last[row.key] != offset}
