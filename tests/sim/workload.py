"""What a simulated program does: calls of the public engine, as values that print short and compare."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

TOPIC: Final = "t"
GROUP: Final = "g"


@dataclass(frozen=True, slots=True)
class Append:
    """Append ``records`` records of about ``value_bytes`` each in one batch."""

    acks: Literal[1, "all"]
    records: int = 2
    value_bytes: int = 24
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Flush:
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """Read everything from the start, and look one timestamp up."""

    partition: int = 0


@dataclass(frozen=True, slots=True)
class Reopen:
    """Close in order, and open again."""


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create the next topic (u1, u2, ...) with one partition."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the end that readers see as the group's position."""

    partition: int = 0


@dataclass(frozen=True, slots=True)
class Trim:
    """Delete the older half of the records that readers see."""

    partition: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes, then the housekeeper has its turn."""

    milliseconds: int = 150


Call: TypeAlias = Append | Flush | Read | Reopen | CreateTopic | Commit | Trim | Tick


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """A topic's settings in one run; small on purpose, so that rolls and index entries happen at once."""

    segment_bytes: int = 1024
    index_interval_bytes: int = 200
    flush_ms: int = 100
    flush_messages: int | None = None
    visible_after: Literal["flush", "append"] = "flush"
    compression: str = "producer"
    partitions: int = 1

    def config(self) -> dict[str, str]:
        """The settings as ``create_topic`` takes them."""
        config = {
            "segment.bytes": str(self.segment_bytes),
            "index.interval.bytes": str(self.index_interval_bytes),
            "flush.ms": str(self.flush_ms),
            "visible.after": self.visible_after,
            "compression.type": self.compression,
        }
        if self.flush_messages is not None:
            config["flush.messages"] = str(self.flush_messages)
        return config


# A batch of more than half a segment: with anything before it in its segment it rolls.
ROLLING_BYTES: Final = 700

ALPHABET: Final[tuple[Call, ...]] = (
    Append("all"),
    Append(1),
    Append("all", 1, ROLLING_BYTES),
    Append(1, 1, ROLLING_BYTES),
    Flush(),
    Read(),
    Reopen(),
    CreateTopic(),
    Commit(),
    Trim(),
)


def random_settings(source: random.Random) -> Settings:
    return Settings(
        segment_bytes=source.choice((1024, 1024, 2048, 5000)),
        index_interval_bytes=source.choice((0, 100, 200, 4096)),
        flush_ms=source.choice((0, 100, 100, 10_000)),
        flush_messages=source.choice((None, None, None, 1, 4)),
        visible_after="append" if source.random() < 0.1 else "flush",
        compression=source.choice(("producer", "producer", "producer", "gzip")),
        partitions=source.choice((1, 1, 2)),
    )


def random_call(source: random.Random, settings: Settings) -> Call:
    partition = source.randrange(settings.partitions)
    drawn = source.random()
    if drawn < 0.62:
        acks: Literal[1, "all"] = 1 if source.random() < 0.55 else "all"
        size = source.choice((0, 8, 24, 24, 100, 300, ROLLING_BYTES))
        return Append(acks, source.choice((1, 1, 2, 3, 8)) if size < 300 else 1, size, partition)
    if drawn < 0.70:
        return Flush(partition)
    if drawn < 0.78:
        return Read(partition)
    if drawn < 0.83:
        return Reopen()
    if drawn < 0.86:
        return CreateTopic()
    if drawn < 0.91:
        return Commit(partition)
    if drawn < 0.94:
        return Trim(partition)
    return Tick(source.choice((10, 150, 150, 6_000)))
