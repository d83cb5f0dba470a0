"""Events of a history: what each process asked for and what it was told, in the process's own order.

A process appends its events to a file of its own, a JSON line each, written before the call and after the answer. An
answer that did not come is therefore no event, and what was asked for is in doubt: neither in nor out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Send:
    """Before values are given to a producer, in this order, all for one partition. ``transaction``: its name, unique
    in the history; "": none. Each value is unique in the history."""

    place: Place
    values: tuple[str, ...]
    transaction: str = ""


@dataclass(frozen=True, slots=True)
class Acked:
    """The offsets of values that were acknowledged, in the same order."""

    values: tuple[str, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Values whose error says that they are not in and never will be."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """Before a transaction writes: the values that its writes are made from. ``group``: whose offsets it moves past
    them, so that no other transaction takes them."""

    transaction: str
    group: str
    read: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """The outcome of a transaction, as it was answered."""

    transaction: str
    committed: bool


@dataclass(frozen=True, slots=True)
class Polled:
    """Records that one poll of a reader of committed records handed out: place, offset, value."""

    records: tuple[tuple[Place, int, str], ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """Positions may have changed other than by reading: partitions came or went, or the consumer was made anew."""

    why: str


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """Offsets of a group, acknowledged."""

    group: str
    offsets: tuple[tuple[Place, int], ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """A producer made anew: it is another process to the log, and its order begins again."""


@dataclass(frozen=True, slots=True)
class End:
    """What is there when everything has ended: committed records of each partition in order, offsets of groups.
    ``drained``: topics and groups whose transactions have read all of them."""

    records: tuple[tuple[Place, tuple[tuple[int, str], ...]], ...]
    groups: tuple[tuple[str, tuple[tuple[Place, int], ...]], ...] = ()
    drained: tuple[tuple[str, str], ...] = ()


Event = Send | Acked | Refused | Decided | Reading | Polled | Moved | OffsetsCommitted | Begun | End
_KINDS: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in Event.__args__}


@dataclass
class History:
    """``processes``: the events of each, by its name. ``end``: what a reader found when all had ended."""

    processes: dict[str, list[Event]] = field(default_factory=dict)
    end: End = field(default_factory=lambda: End(()))


class EventFile:
    """Appends events to a file with one write each, so that a killed process leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, event: Event) -> None:
        line = json.dumps([type(event).__name__, asdict(event)])
        os.write(self._descriptor, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file; a last line that a kill cut short is no event."""
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            kind, fields = json.loads(line)
            yield _KINDS[kind](**{name: _tuples(content) for name, content in fields.items()})


def _tuples(content: Any) -> Any:
    return tuple(_tuples(one) for one in content) if isinstance(content, list) else content
