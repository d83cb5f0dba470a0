"""What must hold, as plain lists: which records, topics and commits a crash may take, must leave, or may add.

The model is told each call before it is made and again when it has returned; between the two the call is in
flight and may have happened or not. It knows nothing of files, segments or syncs: an acknowledgement, or a
high watermark that a reader saw, is a promise, and a promise is what the next start is held to.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ACKED_SURVIVES = "acked records survive, in order, at their offsets"
NOTHING_INVENTED = "nothing appears that was not appended"
WATERMARK_SAFE = "the high watermark never covers what a crash takes, and never goes back"
EPOCH_GROWS = "an (offset, epoch) pair names one record for ever; the epoch grows at an unclean start"
IDEMPOTENT = "recovery is idempotent, also when it crashes itself"
START_STAYS = "deleted records stay deleted, and no others are"
INDEXES = "indexes are a function of the segment's bytes"
TOPICS_SURVIVE = "created topics survive"
COMMITS_SURVIVE = "committed offsets survive and never go back"
STARTS = "a store always opens after a crash"
NAMED_ERRORS = "every failure is a named error"
CALM = "no call fails while the disk works"
READS_GO_ON = "reads go on after a failed append"
WORKS_AGAIN = "appends work again when space returns"
POISONED = "after a failed sync nothing is accepted until the store is reopened"
USABLE = "a recovered store takes and shows new records"


class Violation(AssertionError):  # noqa: N818 - what it says, not an error of the engine
    """A property did not hold. ``rule``: which one; ``detail``: what was seen instead."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


ROW_OVERHEAD_BYTES = 24  # more than a record's own fields and its share of a batch header take


class Row(NamedTuple):
    """A record as the model compares it; its offset is its place."""

    timestamp_ms: int
    value: bytes

    def __repr__(self) -> str:
        return f"<{self.value[:6].decode('latin-1')}>"


class Place(NamedTuple):
    topic: str
    partition: int


def rows_of(counter: int, count: int, value_bytes: int, now_ms: int) -> tuple[Row, ...]:
    """Unique records. Values start with their number; times go up and down a little."""
    rows = []
    for number in range(counter, counter + count):
        filling = random.Random(number).randbytes(value_bytes)
        rows.append(Row(now_ms - number * 37 % 90, b"%05d:" % number + filling))
    return tuple(rows)


@dataclass(slots=True)
class PartitionModel:
    """One partition as its users know it."""

    rows: list[Row] = field(default_factory=list)  # what the running store has, by offset
    durable: int = 0  # offsets below were acknowledged as durable
    shown: int = 0  # highest watermark that a reader saw (where it promises durability)
    epoch: int = -1  # last leader epoch seen
    in_flight: tuple[Row, ...] = ()  # the batch being appended
    batch_limit_bytes: int = 1 << 20  # rows that are sure to fit one batch
    in_use: bool = False  # appended to since it was last closed in order: a crash makes its epoch go up
    start: int = 0  # records below were deleted, and that was acknowledged
    trimming: int = 0  # a deletion in flight would move the start up to here
    poisoned: bool = False  # a sync failed: the running store may hold more than it acknowledged
    refused: list[tuple[int, tuple[Row, ...]]] = field(
        default_factory=list
    )  # (base offset, batch) that failed
    named: dict[tuple[int, int], bytes] = field(default_factory=dict)  # (offset, epoch) -> value

    def copy(self) -> PartitionModel:
        return PartitionModel(
            list(self.rows),
            self.durable,
            self.shown,
            self.epoch,
            self.in_flight,
            self.batch_limit_bytes,
            self.in_use,
            self.start,
            self.trimming,
            self.poisoned,
            list(self.refused),
            dict(self.named),
        )

    def appended(self, offset: int, epoch: int, acks: object) -> None:
        """The batch in flight was acknowledged at ``offset`` under ``epoch``."""
        if offset != len(self.rows):
            raise Violation(
                ACKED_SURVIVES, f"appended at offset {offset}, the log's end was {len(self.rows)}"
            )
        batch, self.in_flight = self.in_flight, ()
        self.rows += batch
        self.name(offset, epoch, batch)
        self.saw_epoch(epoch)
        self.in_use = True
        if acks == "all":
            self.durable = len(self.rows)

    def refuse(self, kept_end: int, *, poisoned: bool) -> None:
        """The batch in flight failed with an error; a crash may still show it.

        Rows that did not fit one batch may have gone in up to the batch that failed: those stay, up to
        ``kept_end``.
        """
        self.poisoned = self.poisoned or poisoned
        stayed = kept_end - len(self.rows)
        if 0 < stayed < len(self.in_flight) and self._splits(self.in_flight):
            self.rows += self.in_flight[:stayed]
            self.in_flight = self.in_flight[stayed:]
        self.refused.append((len(self.rows), self.in_flight))
        self.in_flight = ()

    def name(self, offset: int, epoch: int, batch: Iterable[Row]) -> None:
        for place, row in enumerate(batch, offset):
            known = self.named.setdefault((place, epoch), row.value)
            if known != row.value:
                raise Violation(
                    EPOCH_GROWS, f"offset {place} of epoch {epoch} was {known[:6]!r} and is {row.value[:6]!r}"
                )

    def saw_epoch(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise Violation(EPOCH_GROWS, f"epoch {self.epoch} was followed by {epoch}")
        self.epoch = epoch

    def saw_ends(self, high_watermark: int, log_end_offset: int, *, promises: bool) -> None:
        """Both ends as the running store tells them; ``promises``: readers see only what is durable."""
        if log_end_offset != len(self.rows) and not self.poisoned:
            raise Violation(NOTHING_INVENTED, f"the log ends at {log_end_offset}, not at {len(self.rows)}")
        if not self.durable <= high_watermark <= len(self.rows):
            raise Violation(
                WATERMARK_SAFE,
                f"high watermark {high_watermark}, durable {self.durable}, end {len(self.rows)}",
            )
        if high_watermark < self.shown:
            raise Violation(WATERMARK_SAFE, f"high watermark went from {self.shown} to {high_watermark}")
        if promises:
            self.shown = high_watermark

    def check_start(self, log_start_offset: int) -> None:
        """A start that was acknowledged stays; one in flight may have come or not."""
        if not self.start <= log_start_offset <= max(self.start, self.trimming):
            raise Violation(
                START_STAYS,
                f"the log starts at {log_start_offset}, deleted was up to {self.start}, asked for {self.trimming}",
            )

    def all_durable(self) -> None:
        self.durable = len(self.rows)

    def check_shown(self, found: Sequence[Row], high_watermark: int) -> None:
        """``found``: what a reader sees before recovery; it never sees less than before."""
        if len(found) != high_watermark or high_watermark < self.shown:
            raise Violation(
                WATERMARK_SAFE,
                f"{len(found)} records under a high watermark of {high_watermark}, {self.shown} were shown before",
            )
        self._check_known(found, self.shown)

    def check_survivors(self, found: Sequence[Row], *, power_loss: bool) -> None:
        """``found``: every record the store has after a crash."""
        must = self._must(power_loss)
        self._check_known(found, must)
        if len(found) < must:
            rule = WATERMARK_SAFE if power_loss and len(found) >= self.durable else ACKED_SURVIVES
            raise Violation(
                rule,
                f"{len(found)} records left of {len(self.rows)}: {self.durable} were acknowledged as durable,"
                f" {self.shown} were shown",
            )

    def _check_known(self, found: Sequence[Row], must: int) -> None:
        """Every record found is one that was appended there, and from ``must`` on may be one that failed."""
        kept = len(self.rows)
        for place, (row, mine) in enumerate(zip(found, self.rows, strict=False)):
            if row != mine:
                if place >= must and self._is_refused(place, found):
                    return
                rule = ACKED_SURVIVES if place < self.durable else NOTHING_INVENTED
                raise Violation(rule, f"offset {place} was {mine} and is {row}")
        if len(found) > kept and not (
            self._may_stand(found[kept:], self.in_flight) or self._is_refused(kept, found)
        ):
            raise Violation(
                NOTHING_INVENTED, f"behind offset {kept}: {list(found[kept:])}, in flight: {self.in_flight}"
            )

    def _must(self, power_loss: bool) -> int:
        return max(self.durable, self.shown) if power_loss else len(self.rows)

    def _is_refused(self, place: int, found: Sequence[Row]) -> bool:
        """Whether what is found from ``place`` on is a batch that failed there: its error said unknown."""
        return any(base == place and self._may_stand(found[place:], batch) for base, batch in self.refused)

    def _may_stand(self, found: Sequence[Row], batch: tuple[Row, ...]) -> bool:
        """A batch is there whole or not at all; rows that do not fit one batch may be there in part."""
        return tuple(found) == (batch[: len(found)] if self._splits(batch) else batch)

    def _splits(self, batch: tuple[Row, ...]) -> bool:
        return sum(len(row.value) + ROW_OVERHEAD_BYTES for row in batch) > self.batch_limit_bytes

    def adopt(self, found: Sequence[Row], *, power_loss: bool) -> None:
        """A new life begins with what was found. After a power loss all of it is on the disk."""
        self.rows = list(found)
        self.in_flight = ()
        self.in_use = True
        self.poisoned = False
        self.refused = []
        if power_loss:
            self.durable = len(self.rows)
        self.shown = min(self.shown, len(self.rows))


@dataclass(slots=True)
class Model:
    """The whole store as its users know it."""

    partitions: dict[Place, PartitionModel] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)  # seen after a kill, never acknowledged
    creating: str | None = None
    committed: dict[Place, int] = field(default_factory=dict)
    committing: dict[Place, int] = field(default_factory=dict)
    counter: int = 0
    segment_bytes: int = 1 << 20

    def copy(self) -> Model:
        return Model(
            {place: partition.copy() for place, partition in self.partitions.items()},
            set(self.topics),
            set(self.unsure),
            self.creating,
            dict(self.committed),
            dict(self.committing),
            self.counter,
            self.segment_bytes,
        )

    def next_rows(self, count: int, value_bytes: int, now_ms: int) -> tuple[Row, ...]:
        self.counter += count
        return rows_of(self.counter - count, count, value_bytes, now_ms)

    def created(self, topic: str, partitions: int) -> None:
        self.creating = None
        self.topics.add(topic)
        for number in range(partitions):
            mine = PartitionModel(batch_limit_bytes=self.segment_bytes - 100)
            self.partitions.setdefault(Place(topic, number), mine)

    def check_topics(self, found: Iterable[str]) -> None:
        names = set(found)
        for name in self.unsure - names:
            self._forget(name)
        if not self.topics <= names:
            raise Violation(TOPICS_SURVIVE, f"{sorted(self.topics - names)} are gone")
        invented = names - self.topics - {self.creating}
        if invented:
            raise Violation(NOTHING_INVENTED, f"topics {sorted(invented)}")

    def _forget(self, topic: str) -> None:
        self.unsure.discard(topic)
        self.topics.discard(topic)
        for place in [place for place in self.partitions if place.topic == topic]:
            del self.partitions[place]

    def check_commits(self, found: dict[Place, int]) -> None:
        for place in self.committed.keys() | self.committing.keys() | found.keys():
            allowed = {self.committed.get(place), self.committing.get(place, self.committed.get(place))}
            if found.get(place) not in allowed:
                raise Violation(COMMITS_SURVIVE, f"{place} is at {found.get(place)}, allowed: {allowed}")
        # A commit in flight that does not show yet may be in the log all the same, and show later.
        self.committing = {place: at for place, at in self.committing.items() if found.get(place) != at}
        self.committed = dict(found)

    def signature(self) -> int:
        """Equal for models that hold the next start to the same promises."""
        parts: list[object] = [
            sorted(self.topics),
            sorted(self.unsure),
            self.creating,
            sorted(self.committed.items()),
        ]
        parts.append(sorted(self.committing.items()))
        for place, partition in sorted(self.partitions.items()):
            parts += [place, tuple(partition.rows), partition.durable, partition.shown, partition.epoch]
            parts += [partition.in_use, partition.start, partition.trimming]
            parts += [partition.in_flight, tuple(partition.refused), tuple(partition.named.items())]
        return hash(tuple(map(_hashable, parts)))


def _hashable(part: object) -> object:
    return tuple(part) if isinstance(part, list) else part
