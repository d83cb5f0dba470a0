"""``Trail``: what Raft knows of a replica's log without its records: bounds, terms, memberships."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from logstore.invariants import invariant
from logstore.log.epochs import Epochs
from replication.raft.types import Entry, Membership


class Trail:
    """A position is named by the end offset of the batch before it, so that 0 is the position before all records.

    ``start``: the log's first offset; ``start_term``: of the record before it, -1 where there is none. ``end``: where
    the next batch goes. Memberships count from their entry on, committed or not (Raft, section 6).
    """

    def __init__(
        self,
        epochs: Iterable[tuple[int, int]] = (),
        start: int = 0,
        end: int = 0,
        memberships: Iterable[tuple[int, Membership]] = (),
    ) -> None:
        self._epochs = Epochs(epochs)
        self.start, self.end = start, end
        self._memberships = sorted(memberships, key=lambda one: one[0])

    # --- terms ---

    @property
    def last_term(self) -> int:
        """Of the newest record, -1 in an empty log."""
        return self.term_before(self.end)

    def term_before(self, position: int) -> int:
        """Term of the record before ``position``; -1 for position 0."""
        return self._epochs.epoch_at(position - 1) if position > 0 else -1

    def end_of_term(self, term: int) -> tuple[int, int]:
        """The newest term up to ``term`` that there are records of (-1: none), and the position behind those."""
        return self._epochs.floor(term, self.end)

    def knows(self, position: int) -> bool:
        """Whether the term before ``position`` is known: it is not in what a snapshot stands for."""
        return self.start <= position <= self.end

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        return self._epochs.entries

    # --- memberships ---

    @property
    def membership(self) -> Membership | None:
        """The newest; None: this log has never heard of one."""
        return self._memberships[-1][1] if self._memberships else None

    @property
    def membership_end(self) -> int:
        """Position behind the newest membership's entry."""
        return self._memberships[-1][0] if self._memberships else 0

    def membership_at(self, position: int) -> Membership | None:
        """The one in force for the records before ``position``."""
        number = bisect_right([end for end, _ in self._memberships], position)
        return self._memberships[number - 1][1] if number else None

    # --- changes ---

    def append(self, entry: Entry) -> None:
        invariant(
            entry.base_offset == self.end, f"an entry at {entry.base_offset}, the log ends at {self.end}"
        )
        invariant(entry.end_offset > entry.base_offset, "an entry holds a record")
        invariant(entry.term >= self.last_term, f"term {entry.term} behind {self.last_term}")
        self._epochs.assign(entry.term, entry.base_offset)
        self.end = entry.end_offset
        if entry.membership is not None:
            self._memberships.append((entry.end_offset, entry.membership))

    def truncate(self, position: int) -> None:
        self._epochs.truncate(position)
        self.end = position
        while self._memberships and self._memberships[-1][0] > position:
            self._memberships.pop()

    def raise_start(self, position: int) -> None:
        """Records before ``position`` are gone from this log: retention, or records that were deleted."""
        self.start = max(self.start, position)

    def reset(self, position: int, epochs: Iterable[tuple[int, int]], membership: Membership) -> None:
        """A snapshot stands for all records before ``position``."""
        self._epochs = Epochs(epochs)
        self.start = self.end = position
        self._memberships = [(position, membership)]
