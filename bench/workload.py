"""What is written: rows of a given size, with and without keys and headers, and ready batches of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeAlias

from logstore.format.batch import encode_batch
from logstore.types import Row

Plain: TypeAlias = list[tuple[bytes | None, bytes]]

KEYS = 10_000  # distinct keys of a keyed workload
NOW_MS = 1_700_000_000_000
BATCH_BYTES = 64 * 1024


def values(count: int, size_bytes: int) -> list[bytes]:
    """Values that do not repeat and do not compress to nothing; the same in each run."""
    noise = random.Random(7).randbytes(size_bytes * 64)
    steps = len(noise) - size_bytes
    return [noise[(at := index * 61 % steps) : at + size_bytes] for index in range(count)]


def unkeyed(count: int, size_bytes: int) -> Plain:
    return [(None, value) for value in values(count, size_bytes)]


def keyed(count: int, size_bytes: int) -> Plain:
    pick = random.Random(11)
    keys = [b"key-%06d" % number for number in range(KEYS)]
    return [(keys[pick.randrange(KEYS)], value) for value in values(count, size_bytes)]


def with_headers(rows: Plain, count: int) -> list[Row]:
    """The same rows, each with ``count`` headers of its own making."""
    names = [f"header-{number}" for number in range(count)]
    return [
        (key, value, tuple((name, b"value-%d" % (index % 100)) for name in names))
        for index, (key, value) in enumerate(rows)
    ]


def chunks(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def ready_batches(total_bytes: int, value_bytes: int, batch_bytes: int = BATCH_BYTES) -> list[bytes]:
    """About ``total_bytes`` in encoded batches of about ``batch_bytes``; a few distinct ones, repeated."""
    each = max(1, batch_bytes // (value_bytes + 10))
    rows = unkeyed(each * 16, value_bytes)
    distinct = [encode_batch(chunk, now_ms=NOW_MS) for chunk in chunks(rows, each)]
    count = max(1, total_bytes // len(distinct[0]))
    return [distinct[index % len(distinct)] for index in range(count)]
