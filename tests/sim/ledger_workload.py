"""Calls of programs with keys, producers, transactions, compaction and erasure; values that print short."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

from tests.sim.workload import ROLLING_BYTES, Flush, Read, Reopen, Tick, Trim

Acks = Literal[1, "all"]
TOPIC: Final = "k"
NAME: Final = "import"


@dataclass(frozen=True, slots=True)
class Put:
    """One batch without a producer. A letter is a record: "a" a value of key a, "A" its tombstone."""

    keys: str
    acks: Acks = "all"
    value_bytes: int = 24


@dataclass(frozen=True, slots=True)
class Send:
    """The next batch of a producer; what it has lost goes first. 0 is idempotent, others are transactional."""

    producer: int
    keys: str = "a"
    acks: Acks = 1
    value_bytes: int = 24


@dataclass(frozen=True, slots=True)
class Resend:
    """What the producer has lost; if that is nothing, its batch ``back`` before the last once more."""

    producer: int
    back: int = 0
    acks: Acks = "all"


@dataclass(frozen=True, slots=True)
class Gap:
    """A batch that leaves a sequence out: it must be refused."""

    producer: int


@dataclass(frozen=True, slots=True)
class NewId:
    """The producer begins anew under another id."""

    producer: int


@dataclass(frozen=True, slots=True)
class End:
    """Commit or abort what the producer has begun."""

    producer: int
    commit: bool


@dataclass(frozen=True, slots=True)
class Import:
    """A named producer opens, asks where it is, sends its next records, and closes."""

    records: int = 2


@dataclass(frozen=True, slots=True)
class Clean:
    """Compact by hand, everything that is stable if the active segment is closed first."""

    roll: bool = True


@dataclass(frozen=True, slots=True)
class Slice:
    """Some pieces of a cleaning in the background, beside the other calls."""

    pieces: int = 3


@dataclass(frozen=True, slots=True)
class Erase:
    key: str


@dataclass(frozen=True, slots=True)
class Recreate:
    """Delete the topic and make one of the same name."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Another process opens the store and reads it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerSettings:
    """The topic's settings in one run; small, so that segments close and tombstones come of age at once."""

    policy: str = "compact"
    segment_bytes: int = 1024
    index_interval_bytes: int = 200
    flush_ms: int = 100
    delete_retention_ms: int = 30_000
    file_delete_delay_ms: int = 0

    @property
    def compacts(self) -> bool:
        return "compact" in self.policy

    def config(self) -> dict[str, str]:
        return {
            "cleanup.policy": self.policy,
            "segment.bytes": str(self.segment_bytes),
            "index.interval.bytes": str(self.index_interval_bytes),
            "flush.ms": str(self.flush_ms),
            "delete.retention.ms": str(self.delete_retention_ms),
            "file.delete.delay.ms": str(self.file_delete_delay_ms),
            "min.cleanable.dirty.ratio": "0.01",
        }


ALPHABET: Final[tuple[object, ...]] = (
    Send(0, "a"),
    Send(1, "ab"),
    End(1, commit=False),
    Resend(0),
    Clean(),
    Erase("a"),
    Recreate(),
)


def random_settings(source: random.Random) -> LedgerSettings:
    return LedgerSettings(
        policy=source.choice(("compact", "compact", "compact,delete", "delete")),
        segment_bytes=source.choice((1024, 1024, 1500, 4000)),
        index_interval_bytes=source.choice((0, 200, 4096)),
        flush_ms=source.choice((0, 100, 10_000)),
        delete_retention_ms=source.choice((0, 5_000, 5_000, 60_000)),
        file_delete_delay_ms=source.choice((0, 0, 10_000)),
    )


def random_call(source: random.Random, settings: LedgerSettings) -> object:
    acks: Acks = source.choice((1, 1, "all"))
    keys = "".join(source.choice("aabbcdABC") for _ in range(source.choice((1, 1, 2, 3))))
    size = source.choice((8, 24, 24, 100, 250))
    if source.random() < 0.1:
        keys, size = keys[0], ROLLING_BYTES
    producer = source.choice((0, 0, 1, 1, 2))
    drawn = source.random()
    steps: tuple[tuple[float, object], ...] = (
        (0.14, Put(keys, acks, size)),
        (0.28, Send(producer, keys, acks, size)),
        (0.09, Resend(producer, source.choice((0, 0, 1, 2, 6)), acks)),
        (0.02, Gap(producer)),
        (0.02, NewId(producer)),
        (0.11, End(source.choice((1, 1, 2)), source.random() < 0.5)),
        (0.04, Import(source.choice((1, 2, 3)))),
        (0.07, Clean(source.random() < 0.6) if settings.compacts else Watch()),
        (0.06, Slice(source.choice((3, 9, 30, 120))) if settings.compacts else Read()),
        (0.03, Erase(source.choice("abcd"))),
        (0.02, Recreate()),
        (0.03, Watch()),
        (0.02, Flush()),
        (0.02, Read()),
        (0.02, Reopen()),
        (0.02, Trim() if "delete" in settings.policy else Flush()),
    )
    for share, call in steps:
        drawn -= share
        if drawn < 0:
            return call
    return Tick(source.choice((150, 6_000, 16_000)))
