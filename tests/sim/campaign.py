"""The long figures, a piece at a time: goes on where it was left, and keeps what it has counted.

    python -m tests.sim.campaign --minutes M [--part NAME ...] [--record FILE]

The part of which least is done goes next, so that all grow together. Counts are kept in ``CAMPAIGN.json`` with the
commit that each range was run at (a seed and a commit give one trace), and told in ``CAMPAIGN.md`` beside it. A
violation is kept with what names its run, and ends nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final

from tests.sim import damage, files
from tests.sim.exhaustive import Explorer, workloads
from tests.sim.ledger_workload import ALPHABET as MIXED_ALPHABET
from tests.sim.mixed import MixedSchedule, mixed_explorer
from tests.sim.model import Violation
from tests.sim.report import LONG, SUMS
from tests.sim.schedules import Totals, run_schedules
from tests.sim.workload import ALPHABET

RECORD: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "CAMPAIGN.json")


@dataclass(slots=True)
class Came:
    """What a piece came to."""

    counts: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """``units``: how many there are; ``piece``: so many in one go; ``run``: units [start, end)."""

    what: str
    units: int
    piece: int
    run: Callable[[int, int], Came]


# --- the parts ---


def _totals(totals: Totals) -> Came:
    violations = [f"seed {outcome.seed}: {outcome.violation}" for outcome in totals.violations]
    return Came({name: getattr(totals, name) for name in SUMS}, violations)


def run_seeds(start: int, end: int) -> Came:
    return _totals(run_schedules(range(start, end)))


def run_mixed_seeds(start: int, end: int) -> Came:
    return _totals(run_schedules(range(start, end), MixedSchedule))


def _explored(explorer: Explorer, chosen: Sequence[Any]) -> Came:
    came = Came()
    for workload in chosen:  # one by one: what is found in one ends nothing
        try:
            explorer.explore([workload])
        except Violation as violation:
            came.violations.append(str(violation))  # which names the workload
    came.counts = asdict(explorer.counts)
    return came


def run_workloads(start: int, end: int) -> Came:
    return _explored(Explorer(), list(islice(workloads(LONG.longest), start, end)))


def run_mixed_workloads(start: int, end: int) -> Came:
    chosen = islice(workloads(LONG.mixed_longest, MIXED_ALPHABET), start, end)
    return _explored(mixed_explorer(), list(chosen))


def _log_checks() -> Iterator[Callable[[], None]]:
    yield from damage.run_flips(1)
    yield from damage.run_truncations(1)


def run_log_damage(start: int, end: int) -> Came:
    came = Came({"checks": end - start})
    for check in islice(_log_checks(), start, end):
        try:
            check()
        except Violation as violation:
            came.violations.append(f"{check}: {violation}")
    return came


def _file_checks() -> Iterator[files.Check]:
    yield from files.run_file_flips(1)
    yield from files.run_file_lengths(1)


def run_file_damage(start: int, end: int) -> Came:
    counts = files.run_file_checks(islice(_file_checks(), start, end))
    return Came(counts.as_json(), counts.violations)


def parts() -> dict[str, Part]:
    log_bytes = sum(map(len, damage.template().files.values()))
    file_bytes = sum(map(len, files.reference().files.values()))
    plain = sum(len(ALPHABET) ** calls for calls in range(LONG.longest + 1))
    mixed = sum(len(MIXED_ALPHABET) ** calls for calls in range(LONG.mixed_longest + 1))
    return {
        "seeds": Part("random schedules", LONG.seeds, 250, run_seeds),
        "mixed-seeds": Part(
            "random schedules with producers, transactions, cleaning, erasure, deletion",
            LONG.mixed_seeds,
            100,
            run_mixed_seeds,
        ),
        "workloads": Part(f"every workload of up to {LONG.longest} calls", plain, 20, run_workloads),
        "mixed-workloads": Part(
            f"every workload of up to {LONG.mixed_longest} calls with producers and so on",
            mixed,
            2,
            run_mixed_workloads,
        ),
        "log-damage": Part("every bit and every length of log files", 9 * log_bytes, 500, run_log_damage),
        "file-damage": Part(
            "every bit and every length of all kinds of files", 9 * file_bytes, 2_000, run_file_damage
        ),
    }


# --- the record ---


@dataclass(slots=True)
class Progress:
    """Units [0, ``done``) were run. ``ranges``: (first, end, commit)."""

    done: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    ranges: list[list[Any]] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, end: int, came: Came, commit: str) -> None:
        if self.ranges and self.ranges[-1][2] == commit:
            self.ranges[-1][1] = end
        else:
            self.ranges.append([self.done, end, commit])
        self.done = end
        _add(self.counts, came.counts)
        self.violations += came.violations


def _add(sums: dict[str, int], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        sums[name] = sums.get(name, 0) + count


Record = dict[str, Progress]


def load(path: str) -> Record:
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return {name: Progress(**kept) for name, kept in json.load(file).items()}


def save(path: str, record: Record, known: Mapping[str, Part]) -> None:
    """The counts, and the page beside them; each is replaced whole, as a campaign may be cut off anywhere."""
    told = {name: asdict(progress) for name, progress in record.items()}
    for at, text in (
        (path, json.dumps(told, indent=1) + "\n"),
        (os.path.splitext(path)[0] + ".md", page(record, known)),
    ):
        with open(at + ".tmp", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(at + ".tmp", at)


def page(record: Record, known: Mapping[str, Part]) -> str:
    found = sum(len(progress.violations) for progress in record.values())
    lines = [
        "# Long campaign of the crash simulator",
        "",
        "`python -m tests.sim.campaign --minutes M` goes on where this ends.",
        "",
        "| part | done | of | came to | at commits | processor hours |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in known.items():
        progress = record.get(name, Progress())
        came = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in progress.counts.items())
        ranges = ", ".join(f"{first:,} to {end - 1:,} at {commit}" for first, end, commit in progress.ranges)
        lines.append(
            f"| {part.what} | {progress.done:,} | {part.units:,} | {came} | {ranges} | {progress.seconds / 3600:.2f} |"
        )
    lines += ["", f"Violations: **{found or 'none'} found** in these runs.", ""]
    for name, progress in record.items():
        lines += [f"- {name}: {violation}" for violation in progress.violations]
    return "\n".join(lines).rstrip() + "\n"


# --- running ---


def next_part(record: Record, known: Mapping[str, Part]) -> str | None:
    """That of which the smallest share is done; None: all is."""
    shares = {name: record[name].done / part.units if name in record else 0.0 for name, part in known.items()}
    left = [name for name, share in shares.items() if share < 1]
    return min(left, key=lambda name: shares[name], default=None)


def timed(run: Callable[[int, int], Came], start: int, end: int) -> tuple[int, Came, float]:
    logging.getLogger("logstore").setLevel(logging.CRITICAL)  # the engine's complaints are many here
    gc.set_threshold(100_000)  # looking for cycles more often takes an eighth of the time
    began = time.process_time()
    came = run(start, end)
    return end, came, time.process_time() - began


def advance(progress: Progress, part: Part, pieces: int, commit: str, pool: Executor) -> None:
    """Some pieces further, in order."""
    first = range(progress.done, part.units, part.piece)[:pieces]
    ends = [min(start + part.piece, part.units) for start in first]
    for end, came, seconds in pool.map(timed, [part.run] * len(first), first, ends):
        progress.note(end, came, commit)
        progress.seconds += seconds


def this_commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=os.path.dirname(RECORD),
        capture_output=True,
        text=True,
        check=True,
    )
    return asked.stdout.strip()


def main(arguments: Sequence[str] | None = None, known: Mapping[str, Part] | None = None) -> int:
    """0: nothing was found, now or before; 1 otherwise."""
    known = parts() if known is None else known
    parser = argparse.ArgumentParser(prog="python -m tests.sim.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, required=True, help="a piece that has begun is finished")
    parser.add_argument("--part", action="append", choices=list(known), help="these alone")
    parser.add_argument("--record", default=RECORD, metavar="FILE")
    chosen = parser.parse_args(arguments)
    if not chosen.minutes > 0:
        parser.error(f"--minutes {chosen.minutes:g}: give it more than none")
    if not os.path.isdir(os.path.dirname(os.path.abspath(chosen.record))):
        parser.error(f"--record {chosen.record}: there is no such folder, make it first")
    until_s = time.monotonic() + chosen.minutes * 60
    asked = {name: part for name, part in known.items() if not chosen.part or name in chosen.part}
    record, commit, processors = load(chosen.record), this_commit(), os.cpu_count() or 1
    with ProcessPoolExecutor(processors, multiprocessing.get_context("spawn")) as pool:
        while time.monotonic() < until_s and (name := next_part(record, asked)) is not None:
            progress = record.setdefault(name, Progress())
            advance(progress, asked[name], 4 * processors, commit, pool)
            save(chosen.record, record, known)
            print(f"{name}: {progress.done:,} of {asked[name].units:,}", file=sys.stderr, flush=True)
    print(page(record, known))
    return 1 if any(progress.violations for progress in record.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
