"""Named producers as the catalogue keeps them: which producer ids a name has had, and its epoch.

A name's records in a partition are numbered 0, 1, 2, ... for ever, in 64 bits; a batch's sequence has 31. So
an id carries one era of 2^31 numbers: record n travels under the id of era n >> 31, with sequence
n & 0x7fffffff, and what a partition's log remembers of the ids says how many records of the name are in.

Each opening of the name raises its 16-bit epoch, which fences an older self. Where the epochs end a new
generation begins at epoch 0, with ids of its own: an id that a partition has not met may begin with any
sequence, so numbers go on where the generation before left them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from logstore.arguments import shown
from logstore.errors import InvalidArgumentError
from logstore.format.json_document import damaged, items, table, whole
from logstore.log.producers.producer_state import FIRST_NAMED_ID

LAST_EPOCH: Final = 32_766  # 32767 stays free, as in Kafka: nothing is above an epoch that is in use
SEQUENCE_BITS: Final = 31
SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FIELDS: Final = frozenset({"generation", "epoch", "ids", "spread"})


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedId:
    """A producer id of a name: whose records ``era`` << 31 and the 2^31 - 1 after it travel under, in the
    name's ``generation``."""

    generation: int
    era: int
    producer_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedProducer:
    """One name. ``epoch`` is that of the newest opening, within ``generation``; ``ids``: all it ever had;
    ``spread``: topic id -> over how many partitions an import under this name deals its rows."""

    name: str
    generation: int = 0
    epoch: int = -1
    ids: tuple[NamedId, ...] = ()
    spread: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def reopened(self) -> NamedProducer:
        """With the next epoch; an older opening of the name is fenced from then on."""
        if self.epoch < LAST_EPOCH:
            return replace(self, epoch=self.epoch + 1)
        return replace(self, generation=self.generation + 1, epoch=0)

    def with_spread(self, topic_id: str, partitions: int, known: Iterable[str]) -> NamedProducer:
        """With this topic's spread; of topics that are not ``known`` any more none is kept."""
        rest = {other: self.spread[other] for other in known if other in self.spread}
        return replace(self, spread=MappingProxyType({**rest, topic_id: partitions}))

    def id_of(self, era: int) -> int | None:
        """The id for records of ``era`` in this generation; None: it has none yet."""
        for row in self.ids:
            if row.generation == self.generation and row.era == era:
                return row.producer_id
        return None

    def with_id(self, era: int, producer_id: int) -> NamedProducer:
        row = NamedId(generation=self.generation, era=era, producer_id=producer_id)
        return replace(self, ids=(*self.ids, row))

    def records_in(self, last_sequences: Mapping[int, int]) -> int:
        """How many records of the name a partition holds. ``last_sequences``: id -> the last sequence that
        the partition's log remembers, for those of ``ids`` that it knows."""
        ends = (
            (row.era << SEQUENCE_BITS) + last_sequences[row.producer_id] + 1
            for row in self.ids
            if last_sequences.get(row.producer_id, -1) >= 0
        )
        return max(ends, default=0)


def validate_producer_name(name: str) -> None:
    """InvalidArgumentError unless ``name`` may name a producer: 1 to 249 of the characters of a topic."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{shown(name)} cannot name a producer",
            hint="use 1 to 249 letters, digits, '.', '_' and '-'",
        )


# --- JSON values ------------------------------------------------------------------------------------


def encode_producers(producers: Mapping[str, NamedProducer]) -> dict[str, Any]:
    return {
        name: {
            "generation": entry.generation,
            "epoch": entry.epoch,
            "ids": [[row.generation, row.era, row.producer_id] for row in entry.ids],
            "spread": dict(sorted(entry.spread.items())),
        }
        for name, entry in sorted(producers.items())
    }


def decode_producers(value: object, path: str, next_producer_id: int) -> dict[str, NamedProducer]:
    """DamagedStoreError, with ``path``, for what no catalogue can hold: also an id of two names, or one that
    is still to be handed out."""
    found = {name: _decode_one(name, row, path) for name, row in table(value, "producers", path).items()}
    ids = [row.producer_id for entry in found.values() for row in entry.ids]
    given = range(FIRST_NAMED_ID, FIRST_NAMED_ID + next_producer_id)
    if len(set(ids)) != len(ids) or not all(number in given for number in ids):
        raise damaged(path, "a producer id has two owners or is still to be handed out")
    return found


def _decode_one(name: str, value: object, path: str) -> NamedProducer:
    what = f"producer {name!r}"
    fields = table(value, what, path)
    if not _NAME.fullmatch(name):
        raise damaged(path, f"{name!r} cannot name a producer")
    if fields.keys() != _FIELDS:
        odd = sorted(fields.keys() ^ _FIELDS)
        raise damaged(path, f"{what}: fields missing or unknown: {', '.join(odd)}")
    generation = whole(fields["generation"], f"generation of {what}", path)
    rows = items(fields["ids"], f"ids of {what}", path)
    ids = tuple(_decode_ids(rows, what, path, generation))
    if len({(row.generation, row.era) for row in ids}) != len(ids):
        raise damaged(path, f"{what} has two ids for the same records")
    epoch = whole(fields["epoch"], f"epoch of {what}", path, 0, LAST_EPOCH)
    spread = {
        topic_id: whole(partitions, f"spread of {what}", path, 1)
        for topic_id, partitions in table(fields["spread"], f"spread of {what}", path).items()
    }
    return NamedProducer(
        name=name, generation=generation, epoch=epoch, ids=ids, spread=MappingProxyType(spread)
    )


def _decode_ids(rows: Iterable[object], what: str, path: str, generation: int) -> Iterable[NamedId]:
    for row in rows:
        of, era, producer_id = items(row, f"an id of {what}", path, 3)
        yield NamedId(
            generation=whole(of, f"an id's generation of {what}", path, 0, generation),
            era=whole(era, f"an id's era of {what}", path, 0, 1 << 32),
            producer_id=whole(producer_id, f"an id of {what}", path),
        )
