"""Opening: after a clean stop with many partitions and few descriptors, and after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator

from bench import child
from bench.child_work import DESCRIPTORS, TOPICS
from bench.harness import Bench, Row, alone

QUESTION = "open"
SIZES = (100, 1_000, 10_000)
TARGET_SECONDS = 1.0


def run(bench: Bench) -> Iterator[Row]:
    for partitions in SIZES:
        with bench.scratch() as folder:
            filled = child.call("fill_partitions", folder=folder, partitions=partitions)
            rounds = [child.call("open_clean", folder=folder) for _ in range(bench.rounds)]
        yield alone(
            QUESTION,
            f"{partitions:,} partitions, first writes",
            [filled["seconds"]],
            unit="s",
            note=f"make {TOPICS} topics, send a record to each partition, close; {DESCRIPTORS} descriptors",
        )
        target = TARGET_SECONDS if partitions == SIZES[-1] else None
        yield alone(
            QUESTION,
            f"{partitions:,} partitions, clean stop",
            [figures["open"] + figures["ends"] for figures in rounds],
            unit="s",
            at_most=target,
            note=f"open and learn every end offset; {DESCRIPTORS} descriptors, {TOPICS} topics",
        )
        yield alone(
            QUESTION,
            f"{partitions:,} partitions, clean stop, own all",
            [figures["open"] + figures["own"] for figures in rounds],
            unit="s",
            at_most=target,
            note=f"open and append to each topic; {DESCRIPTORS} descriptors, {TOPICS} topics",
        )
    yield from _unclean(bench)


def _bytes_in(folder: str) -> int:
    files = (os.path.join(at, name) for at, _folders, names in os.walk(folder) for name in names)
    return sum(os.path.getsize(path) for path in files)


def _unclean(bench: Bench) -> Iterator[Row]:
    total = bench.size(512 << 20, 128 << 20)
    speeds, with_loading = [], []
    for _ in range(bench.rounds):
        with bench.scratch() as folder:
            child.call("crash_with_unsynced", folder=folder, total_bytes=total)
            size, took = _bytes_in(folder), child.call("open_unclean", folder=folder)
            speeds.append(size / took["seconds"])
            with_loading.append(size / (took["seconds"] + took["loaded"]))
    case = f"unclean, {total >> 20} MiB past the recovery point"
    note = "writer died in the same boot; open and own; files in the page cache"
    yield alone(QUESTION, case, speeds, unit="GB/s", scale=1e-9, at_least=1.0, note=note)
    note = "the same, and the library's code loaded, as by a process's first call"
    yield alone(QUESTION, f"{case}, first call", with_loading, unit="GB/s", scale=1e-9, note=note)
