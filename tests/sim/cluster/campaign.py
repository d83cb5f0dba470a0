"""Many seeds of all three simulators, a few at a time: goes on where it was left.

    python -m tests.sim.cluster.campaign FOLDER [--seeds 20000] [--level core ...] [--minutes M]

``FOLDER`` keeps of each level which seeds are done, what they counted, and the seeds that failed (which end nothing).
The level of which the smallest share is done goes next. ``--told`` prints what is there.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.replication.sim import schedule, storage_schedule
from tests.sim.cluster.coverage import STATES, table
from tests.sim.cluster.run import run_seed


class Came(NamedTuple):
    """Of one seed. ``hits``: (fault, what its node was doing)."""

    counts: Counter[str]
    hits: Counter[tuple[str, str]]
    broken: str = ""


def _core(seed: int) -> Came:
    try:
        run = schedule.run_seed(seed)
    except schedule.SeedFailedError as error:
        return Came(Counter(), Counter(), str(error))
    counts = Counter(run.counts)
    counts["elections won"] = len(run.checks.leaders)
    counts["entries committed"] = len(run.checks.committed)
    counts["reads answered"] = run.checks.reads
    return Came(counts, Counter())


def _storage(seed: int) -> Came:
    try:
        run = storage_schedule.run_seed(seed)
    except schedule.SeedFailedError as error:
        return Came(Counter(), Counter(), str(error))
    return Came(run.events, run.hits)


def _cluster(seed: int) -> Came:
    outcome = run_seed(seed)
    counts = outcome.counts + Counter({"turns": outcome.turns, "looks at replicas": outcome.looks})
    return Came(counts, outcome.hits, outcome.broken and f"seed {seed}: {outcome.broken}")


LEVELS: Final[dict[str, tuple[int, Callable[[int], Came]]]] = {
    "core": (50, _core),
    "storage": (50, _storage),
    "cluster": (10, _cluster),
}
"""How many seeds in one go, and how one is run."""


class Record:
    """What is done of one level, in a file."""

    def __init__(self, folder: Path, level: str) -> None:
        self._path = folder / f"{level}.json"
        self.level = level
        self.ranges: list[list[int]] = []  # [first, behind the last], apart from each other
        self.counts: Counter[str] = Counter()
        self.hits: Counter[tuple[str, str]] = Counter()
        self.failures: list[str] = []
        if self._path.exists():
            found: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
            self.ranges, self.failures = found["ranges"], found["failures"]
            self.counts = Counter(found["counts"])
            self.hits = Counter({tuple(key.split("|")): count for key, count in found["hits"].items()})  # type: ignore[misc]

    @property
    def done(self) -> int:
        return sum(end - start for start, end in self.ranges)

    def next_range(self, most: int) -> tuple[int, int]:
        """The first seeds that were not run."""
        if not self.ranges or self.ranges[0][0] > 0:
            return 0, min(most, self.ranges[0][0] if self.ranges else most)
        start = self.ranges[0][1]
        return start, min(start + most, self.ranges[1][0] if len(self.ranges) > 1 else start + most)

    def add(self, start: int, end: int, came: list[Came]) -> None:
        """Durable when it returns."""
        joined: list[list[int]] = []
        for one in sorted([*self.ranges, [start, end]]):
            if joined and one[0] <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], one[1])
            else:
                joined.append(list(one))
        self.ranges = joined
        for one_came in came:
            self.counts += one_came.counts
            self.hits += one_came.hits
            if one_came.broken:
                self.failures.append(one_came.broken)
        fields = {
            "ranges": self.ranges,
            "counts": dict(sorted(self.counts.items())),
            "hits": {"|".join(key): count for key, count in sorted(self.hits.items())},
            "failures": self.failures,
        }
        beside = self._path.with_suffix(".new")
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(fields, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._path)


def run_some(records: list[Record], seeds: int) -> bool:
    """A few seeds of the level of which least is done; False: all are done."""
    left = [one for one in records if one.done < seeds]
    if not left:
        return False
    record = min(left, key=lambda one: one.done)
    piece, run = LEVELS[record.level]
    start, end = record.next_range(min(piece, seeds - record.done))
    record.add(start, end, [run(seed) for seed in range(start, end)])
    return True


def told(records: list[Record]) -> list[str]:
    """As ``REPORT.md`` has it."""
    lines = ["| level | seeds run | failed |", "|---|---:|---:|"]
    lines += [f"| {one.level} | {one.done:,} | {len(one.failures):,} |" for one in records]
    for one in records:
        lines += ["", f"{one.level}: " + ", ".join(f"{n:,} {what}" for what, n in sorted(one.counts.items()))]
        lines += [f"  {failure}" for failure in one.failures]
        if one.level == "cluster":
            lines += ["", *table(one.hits, STATES)]
    return lines


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--level", action="append", choices=sorted(LEVELS))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--told", action="store_true", help="print what is done and end")
    given = parser.parse_args(words)
    logging.disable(logging.CRITICAL)
    given.folder.mkdir(parents=True, exist_ok=True)
    records = [Record(given.folder, level) for level in given.level or LEVELS]
    ends_s = time.monotonic() + given.minutes * 60 if given.minutes else float("inf")
    while not given.told and time.monotonic() < ends_s and run_some(records, given.seeds):
        pass
    sys.stdout.write("\n".join(told(records)) + "\n")
    return 1 if any(one.failures for one in records) else 0


if __name__ == "__main__":
    sys.exit(main())
