"""Where the rows of a named import go, and which of them are in already.

A row's partition depends on nothing but the row, its number in the input and the producer's spread: the same at
each run. So what a partition holds of the name is always a prefix of its rows, and its length says where to go
on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from logstore.client.partitioner import key_partitioner

if TYPE_CHECKING:
    from logstore.cli.streams.rows import RowChunk


class Placement:
    """``fixed``: where all rows go; None: by key as ``partitioner`` says, rows without one by their number.

    ``records_in``: partition -> how many records of the name it has. Rows must come in the input's order.
    """

    def __init__(
        self, partitioner: str, partitions: int, fixed: int | None, records_in: Callable[[int], int]
    ) -> None:
        self._partitions = partitions
        self._fixed = 0 if fixed is None and partitions == 1 else fixed
        self._by_key = None if partitioner == "round_robin" else key_partitioner(partitioner, partitions)
        self._records_in = records_in
        self._number = 0  # of the next row in the whole input
        self._left: dict[int, int] = {}  # by partition: rows to come that are in already
        self.skipped = 0

    def new_rows(self, chunk: RowChunk) -> list[tuple[RowChunk, int]]:
        """The chunk's rows that are not in yet, by partition."""
        first, self._number = self._number, self._number + len(chunk.rows)
        if self._fixed is not None:
            parts = [(chunk, self._fixed)]
        else:
            places = self._places(chunk, first)
            parts = [(_only(chunk, places, wanted), wanted) for wanted in sorted(set(places))]
        rests = [(self._without_known(part, partition), partition) for part, partition in parts]
        return [(part, partition) for part, partition in rests if part.rows]

    def missing(self) -> dict[int, int]:
        """By partition: how many records of the name are in that the input, now at its end, had no rows for."""
        return {partition: left for partition, left in self._left.items() if left}

    def _places(self, chunk: RowChunk, first: int) -> Sequence[int]:
        count, by_key = self._partitions, self._by_key
        turns = range(first, first + len(chunk.rows))
        named = chunk.partitions
        if by_key is None:
            places: list[int] = [turn % count for turn in turns]
        else:
            keys = [row[0] for row in chunk.rows]
            places = [
                turn % count if key is None else by_key(key) for turn, key in zip(turns, keys, strict=True)
            ]
        if named is not None:
            places = [place if at is None else at for place, at in zip(places, named, strict=True)]
        return places

    def _without_known(self, part: RowChunk, partition: int) -> RowChunk:
        left = self._left.get(partition)
        if left is None:
            left = self._records_in(partition)
        known = min(left, len(part.rows))
        self._left[partition] = left - known
        self.skipped += known
        if not known:
            return part
        named = None if part.partitions is None else part.partitions[known:]
        return part._replace(rows=part.rows[known:], lines=part.lines[known:], partitions=named)


def _only(chunk: RowChunk, places: Sequence[int], wanted: int) -> RowChunk:
    """The rows that go to one partition, in order."""
    here = [place == wanted for place in places]
    named = None if chunk.partitions is None else list(compress(chunk.partitions, here))
    return chunk._replace(
        rows=list(compress(chunk.rows, here)), lines=list(compress(chunk.lines, here)), partitions=named
    )
