"""What one batch or trigger reads, and in which pieces. Pure: facts and limits in, ranges out.

Offsets are counted, not records: compaction's gaps, markers and aborted records take offsets and give no rows,
as in Spark's Kafka source.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from logstore import TopicPartition
from logstore.errors import InvariantError


class Range(NamedTuple):
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def prorate(backlogs: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """How many offsets of each backlog to take so that they make ``limit`` together.

    Each share is within one of its proportion, and at least one where there is a backlog, so that none starves:
    what that takes is given up by the largest shares. With less than one each to give, every partition gets one
    and the limit is passed by that (as in Spark's Kafka source).
    """
    waiting = {place: size for place, size in backlogs.items() if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return {place: max(size, 0) for place, size in backlogs.items()}
    shares = {place: max(1, limit * size // total) for place, size in waiting.items()}
    spare = limit - sum(shares.values())
    if spare > 0:
        # What rounding down left, one each to those that it took most from, and not to who was lifted to one.
        cut = [place for place in waiting if shares[place] * total <= limit * waiting[place]]
        for place in sorted(cut, key=lambda place: (-(limit * waiting[place] % total), place))[:spare]:
            shares[place] += 1
    elif spare < 0:
        shares = _lowered(shares, -spare)
    return {place: shares.get(place, 0) for place in backlogs}


def _lowered(shares: dict[TopicPartition, int], excess: int) -> dict[TopicPartition, int]:
    """Take ``excess`` from the largest shares, one by one, none below one."""
    heap = [(-share, place) for place, share in shares.items() if share > 1]
    heapq.heapify(heap)
    lowered = dict(shares)
    while excess and heap:
        share, place = heap[0]
        lowered[place] = -share - 1
        excess -= 1
        if -share - 1 > 1:
            heapq.heapreplace(heap, (share + 1, place))
        else:
            heapq.heappop(heap)
    return lowered


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission:
    """The limits of a trigger, in offsets. ``max_delay_ms``: how long ``least`` may hold a trigger back."""

    most: int | None = None
    least: int | None = None
    max_delay_ms: int = 0

    def admit(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        waited_ms: float,
    ) -> dict[TopicPartition, int]:
        """Where the trigger's ranges end; ``starts`` themselves when it should wait for more.

        ``waited_ms``: since the last trigger that read something.
        """
        backlogs = {place: max(0, ends[place] - starts[place]) for place in ends}
        available = sum(backlogs.values())
        if self.least is not None and available < self.least and waited_ms < self.max_delay_ms:
            return {place: starts[place] for place in ends}
        if self.most is not None:
            backlogs = prorate(backlogs, self.most)
        return {place: starts[place] + backlogs[place] for place in ends}


def split(
    ranges: Iterable[Range], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[Range]:
    """The ranges in pieces of at most ``max_records`` offsets, at least ``min_partitions`` of them if there are
    so many offsets. Each offset is in one piece; a range's pieces differ by one offset at the most."""
    whole = sorted(piece for piece in ranges if piece.size > 0)
    counts = [1 if max_records is None else -(-piece.size // max_records) for piece in whole]
    missing = 0 if min_partitions is None else min_partitions - sum(counts)
    if missing > 0:
        # The largest piece is halved, so to say, again and again.
        heap = [(-piece.size / counts[number], number) for number, piece in enumerate(whole)]
        heapq.heapify(heap)
        while missing and heap:
            _, number = heapq.heappop(heap)
            if counts[number] >= whole[number].size:
                continue
            counts[number] += 1
            missing -= 1
            heapq.heappush(heap, (-whole[number].size / counts[number], number))
    return [part for piece, count in zip(whole, counts, strict=True) for part in _pieces(piece, count)]


def _pieces(piece: Range, count: int) -> list[Range]:
    if not 0 < count <= piece.size:
        raise InvariantError(f"{count} pieces of {piece.size} offsets: each holds at least one")
    cuts = [piece.start + piece.size * number // count for number in range(count + 1)]
    return [Range(piece.topic, piece.partition, start, end) for start, end in pairwise(cuts)]
