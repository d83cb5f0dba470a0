"""Marks of a query's batches: what tells a batch that comes again from another one under the same number.

Spark runs a batch again when its own note of the batch was lost. That batch is in, and is skipped. But where the
checkpoint lost its newest files, or is an older copy, Spark plans the number anew: other records come under it, and
to skip them would lose them. So the newest marks are kept with the query's counter, in the transaction of the records.

A mark has two sides, and a batch is the same if one of them is. The rows: how many, and a sum of hashes, which does
not depend on their order, on the tasks or on Arrow's batches. The offsets: a hash of what the checkpoint says that the
batch reads, where the checkpoint is a folder that this process can read. The rows of a query with random numbers,
clocks or tables that change are others each time, its offsets are not; offsets are not to be had from a checkpoint in
an object store, rows always are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import mmh3

from logstore import ArrowRows

KEPT: Final = 100
"""Marks that are kept; Spark keeps as many batches in a checkpoint (spark.sql.streaming.minBatchesToRetain)."""

_MOST_CHARACTERS: Final = 4000  # the metadata of a committed offset holds 4096 bytes
_BITS: Final = (1 << 64) - 1
_MARK_BITS: Final = (1 << 48) - 1
_ENTRY = re.compile(r"(?:(\d+):)?(\d+)\.([0-9a-f]+)\.([0-9a-f]*)")


class Content(NamedTuple):
    """What rows there are, in any order. ``digest``: the sum of the rows' hashes, 64 bits."""

    rows: int = 0
    digest: int = 0

    def joined(self, other: Content) -> Content:
        return Content(self.rows + other.rows, self.digest + other.digest & _BITS)


def content_of(topic: str, partition: int | None, rows: ArrowRows) -> Content:
    """The content of rows of one topic. A partition counts where a column says it: the partitioner's is a choice."""
    seed = mmh3.hash(f"{topic} {'' if partition is None else partition}", 0, False)
    return Content(rows.count, rows.digest(seed))


class Mark(NamedTuple):
    """One batch. ``digest``: of its rows; ``offsets``: a hash of what it reads, "" where that is not known."""

    rows: int
    digest: str
    offsets: str

    def is_of(self, other: Mark) -> bool:
        """Whether both are marks of the same batch."""
        same_rows = (self.rows, self.digest) == (other.rows, other.digest)
        return same_rows or (self.offsets != "" and self.offsets == other.offsets)


def mark_of(contents: Iterable[Content], checkpoint: str | None, batch_id: int) -> Mark:
    """``contents``: of what its tasks staged; ``checkpoint``: the query's, if it is a local folder."""
    whole = Content()
    for content in contents:
        whole = whole.joined(content)
    offsets = "" if checkpoint is None else _planned_offsets(checkpoint, batch_id)
    return Mark(whole.rows, f"{whole.digest & _MARK_BITS:x}", offsets)


def _planned_offsets(checkpoint: str, batch_id: int) -> str:
    """A hash of the sources' offsets in Spark's log of planned batches; "" if there is no such file here."""
    try:
        with open(os.path.join(checkpoint, "offsets", str(batch_id)), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return ""  # not on this machine: the rows have to tell
    sources = "\n".join(lines[2:])  # behind the version, and the time at which it was planned
    return f"{mmh3.mmh3_x64_128_uintdigest(sources.encode()) & _MARK_BITS:x}" if sources else ""


@dataclass(frozen=True, slots=True)
class BatchMarks:
    """The newest marks of a query, by number of the batch; as text in the metadata of its counter."""

    marks: Mapping[int, Mark] = field(default_factory=dict)

    def with_batch(self, batch_id: int, mark: Mark) -> BatchMarks:
        marks = dict(sorted({**self.marks, batch_id: mark}.items())[-KEPT:])
        while len(_encoded(marks)) > _MOST_CHARACTERS:
            del marks[min(marks)]
        return BatchMarks(marks)

    def encode(self) -> str:
        """``[NUMBER:]ROWS.DIGEST.OFFSETS,...``, the number only where it does not follow the one before."""
        return _encoded(self.marks)

    @staticmethod
    def decode(metadata: str) -> BatchMarks:
        """Empty for a counter of a version that kept none."""
        return BatchMarks(dict(_decoded(metadata)))


def _encoded(marks: Mapping[int, Mark]) -> str:
    entries, before = [], None
    for batch_id in sorted(marks):
        number = "" if before is not None and batch_id == before + 1 else f"{batch_id}:"
        mark = marks[batch_id]
        entries.append(f"{number}{mark.rows}.{mark.digest}.{mark.offsets}")
        before = batch_id
    return ",".join(entries)


def _decoded(metadata: str) -> Iterator[tuple[int, Mark]]:
    batch_id = -1
    for entry in metadata.split(","):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            return
        batch_id = batch_id + 1 if match[1] is None else int(match[1])
        yield batch_id, Mark(int(match[2]), match[3], match[4])
