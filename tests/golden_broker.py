"""The golden directories of a real broker (tests/golden/broker), unpacked, and what Java consumers read there."""

from __future__ import annotations

import base64
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from logstore.types import Record

FOLDER = Path(__file__).parent / "golden" / "broker"
KINDS = ("clean", "killed")


class Expected(NamedTuple):
    """One partition as Java consumers saw it. ``committed``: offsets a read_committed consumer got."""

    start: int
    end: int
    stable: int
    committed: list[int]
    records: list[tuple[Any, ...]]


def unpack(kind: str, target: Path) -> Path:
    """The broker's directory as it was left, under ``target``."""
    with tarfile.open(FOLDER / f"{kind}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target / "broker"


@cache
def expected(kind: str) -> dict[tuple[str, int], Expected]:
    places = {}
    for place, seen in json.loads((FOLDER / f"{kind}.json").read_text()).items():
        topic, _, partition = place.rpartition("-")
        records = [_row(*row) for row in seen["records"]]
        places[topic, int(partition)] = Expected(
            seen["start"], seen["end"], seen["stable"], seen["committed"], records
        )
    return places


def _row(offset: int, timestamp_ms: int, key: str | None, value: str | None, headers: Any) -> tuple[Any, ...]:
    return offset, timestamp_ms, _raw(key), _raw(value), [(name, _raw(content)) for name, content in headers]


def _raw(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def row_of(record: Record) -> tuple[Any, ...]:
    return record.offset, record.timestamp_ms, record.key, record.value, list(record.headers)
