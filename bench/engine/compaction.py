"""Compaction by hand, at full speed: records a second, growth, the memory of the key map; and erasure.

Every key is written twice, in random order, so that nearly every batch loses about half of its records and is
written anew: the dear case. A batch that keeps all or nothing is copied or left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import logstore
from bench import child, ours
from bench.harness import Bench, Row, Run, Side, alone, compared, rates
from bench.workload import Plain, chunks, values

QUESTION = "compaction"
MILLION = 1e-6
NANOSECONDS = 1e9
KEY_BYTES = 16
KEY_MAP_BYTES = 512 << 20  # all keys of a run fit
BESIDE_MAP_MB = 48  # what a compaction may take beside its key map
COMPACTED = ours.CACHED | {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 << 20),
    "min.cleanable.dirty.ratio": "1.0",  # nothing is cleaned but by hand
}
HALF = f"{KEY_BYTES} B keys, 100 B values, each key twice in random order"


def twice(count: int, value_bytes: int = 100, *, uneven: bool = False) -> Plain:
    """``count`` rows, each key in two of them. ``uneven``: values of 80 to 120 % of the size, not all alike."""
    keys = [b"key-%012d" % number for number in range(count // 2)] * 2
    random.Random(5).shuffle(keys)
    given = values(len(keys), value_bytes * 6 // 5 if uneven else value_bytes)
    if uneven:
        spare = len(given[0]) * 2 // 6
        given = [value[index % (spare + 1) :] for index, value in enumerate(given)]
    return list(zip(keys, given, strict=True))


def fill(store: logstore.LogStore, rows: Plain, compression: str) -> None:
    """Rows in a compacted topic, on the disk: the first sync of a compaction would write what they left to the page
    cache, which is the cost of the appends."""
    store.create_topic(ours.TOPIC, config=COMPACTED)
    add(store, rows, compression)


def add(store: logstore.LogStore, rows: Plain, compression: str) -> None:
    with store.producer(acks=1, compression=compression) as producer:
        for call in chunks(rows, 5_000):
            producer.send_many(ours.TOPIC, call)
    store.partition(ours.TOPIC, 0).flush()


def compact(rows: Plain, compression: str = "none", *, again: bool = False) -> Side:
    """A whole compaction, its syncs and its swap included; units are the records read. ``again``: of a log that
    was compacted before, and got half as much on top."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder, cleaner_key_map_bytes=KEY_MAP_BYTES) as store:
            fill(store, rows, compression)
            if again:
                store.admin.compact(ours.TOPIC, roll=True)
                add(store, rows[: len(rows) // 2], compression)

            def run() -> int:
                (done,) = store.admin.compact(ours.TOPIC, roll=True)
                return done.records_before

            yield run

    return side


def erase(rows: Plain, keys: Sequence[bytes]) -> Side:
    """Erasure of a few keys from all segments, with its proof; units are the records looked through."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder) as store:
            fill(store, rows, "none")

            def run() -> int:
                report = store.admin.erase_keys(ours.TOPIC, keys)
                return len(rows) if report.proven else 0

            yield run

    return side


def run(bench: Bench) -> Iterator[Row]:
    yield from _speed(bench)
    yield from _growth(bench)
    yield from _memory(bench)


def _speed(bench: Bench) -> Iterator[Row]:
    rows = twice(bench.size(400_000, 150_000))
    uneven = twice(len(rows), uneven=True)
    sides = {
        "none": compact(rows),
        "zstd": compact(rows, "zstd"),
        "uneven": compact(uneven),
        "again": compact(rows, again=True),
        "erase": erase(rows, [rows[len(rows) // 2][0] or b"", b"another key"]),
    }
    figures = rates(bench, sides, rounds=3)
    for name, case, target in (
        ("none", f"uncompressed, {HALF}", 2.0),
        ("zstd", f"zstd, {HALF}", None),
        ("uneven", "uncompressed, the same, values of 80 to 120 B", 1.2),
        ("again", "uncompressed, compacted before, half as much on top", None),
    ):
        note = "by hand, full speed, of a log that is on the disk; its own syncs and swap included"
        yield alone(QUESTION, case, figures[name], unit="M/s", scale=MILLION, at_least=target, note=note)
    note = "by hand; rewrite of the one segment that holds one, and a proof by a scan of all"
    yield alone(
        "erasure", "two keys, one of them there", figures["erase"], unit="M/s", scale=MILLION, note=note
    )


def _growth(bench: Bench) -> Iterator[Row]:
    small = bench.size(30_000, 20_000)
    sizes = (small, small * 6, small * 36) if not bench.quick else (small, small * 3, small * 9)
    seen = rates(bench, {f"{size}": compact(twice(size)) for size in sizes}, rounds=3)
    costs = {name: [1 / rate for rate in figures] for name, figures in seen.items()}
    for size in sizes[:-1]:
        yield alone(QUESTION, f"{size:,} records", costs[f"{size}"], unit="ns a record", scale=NANOSECONDS)
    yield compared(
        QUESTION,
        f"{sizes[-1]:,} records",
        costs,
        ours=f"{sizes[-1]}",
        peer=f"{sizes[0]}",
        unit="ns a record",
        scale=NANOSECONDS,
        note=f"peer: ourselves with {sizes[0]:,}, where a fixed cost of a dozen syncs shows",
    )


def _memory(bench: Bench) -> Iterator[Row]:
    """More keys than any of the settings holds: the log is cleaned in several rounds."""
    keys = 700_000
    for setting_mb in (4, 16, 64):
        with bench.scratch() as folder:
            child.call("fill_keys", folder=folder, keys=keys)
            grown = child.call("compact_within", folder=folder, map_bytes=setting_mb << 20)["grown_mb"]
        yield alone(
            QUESTION,
            f"memory beyond the process's own, key map of {setting_mb} MiB, {keys:,} keys of {KEY_BYTES} B",
            [grown],
            unit="MiB",
            at_most=setting_mb + BESIDE_MAP_MB if setting_mb == 64 else None,
            note="peak resident; buffers, compiled tables and the dictionary's growth come on top of the map",
        )
    keys = bench.size(2_000_000, 500_000)
    yield alone(
        QUESTION,
        f"key map, {keys:,} keys of {KEY_BYTES} B",
        [child.call("key_map", keys=keys)["bytes"] for _ in range(3)],
        unit="B a key",
        at_most=40,
        note="resident, the key itself included",
    )
