"""The simulator's report: what was run, what it found, and how many seeds each planted bug took.

    python -m tests.sim.report [--seeds N] [--start K] [--longest CALLS] [--json FILE] [--markdown FILE]

Only runs whose fault fired are counted. Seeds are resumable: ``--start`` goes on where a run ended.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from tests.sim.damage import run_flips, run_truncations
from tests.sim.exhaustive import Counts, Explorer, Workload, workloads
from tests.sim.faults import Case, FaultCounts, cases, run_cases
from tests.sim.model import Violation
from tests.sim.plants import PLANTS, Caught, hunt
from tests.sim.schedules import Totals, run_schedules

_SUMS = ("schedules", "calls", "crashes", "kills", "amid", "recrashed", "records")
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class Report:
    """Counts of all parts; ``violations`` is what was found in the engine as it is: none, hopefully."""

    first_seed: int
    seeds: int
    longest_workload: int
    exhaustive: Counts = field(default_factory=Counts)
    schedules: Totals = field(default_factory=Totals)
    faults: FaultCounts = field(default_factory=FaultCounts)
    flips: int = 0
    lengths: int = 0
    plants: list[Caught] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def explore(chosen: Sequence[Workload]) -> Counts | str:
    explorer = Explorer()
    try:
        return explorer.explore(chosen)
    except Violation as violation:
        return str(violation)


def disturb(chosen: Sequence[Case]) -> FaultCounts | str:
    logging.getLogger("logstore").setLevel(logging.CRITICAL)  # the engine's complaints are counted instead
    try:
        return run_cases(chosen)
    except Violation as violation:
        return str(violation)


def damage(checks: Sequence[Callable[[], None]]) -> list[str]:
    """What was found by checks of ``tests.sim.damage``."""
    found = []
    for check in checks:
        try:
            check()
        except Violation as violation:
            found.append(str(violation))
    return found


def schedule(seeds: Sequence[int]) -> Totals:
    return run_schedules(seeds)


def plant(names: Sequence[str]) -> list[Caught]:
    return [hunt(PLANTS[name]) for name in names]


def chunks(items: Iterable[Item], size: int) -> list[list[Item]]:
    listed = list(items)
    return [listed[start : start + size] for start in range(0, len(listed), size)]


def build(
    first_seed: int,
    seeds: int,
    longest: int,
    say: Callable[[str], None],
    *,
    fault_cases: Iterable[Case] | None = None,
    plants: Sequence[str] | None = None,
) -> Report:
    """Run every part on all processors; ``fault_cases`` and ``plants`` default to all of them."""
    report = Report(first_seed, seeds, longest)
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:

        def run(part: str, work: Callable[[list[Item]], Result], split: list[list[Item]]) -> list[Result]:
            began = time.monotonic()
            results = list(pool.map(work, split))
            report.seconds[part] = round(time.monotonic() - began, 1)
            say(f"{part}: {report.seconds[part]} s")
            return results

        for counts in run("exhaustive", explore, chunks(workloads(longest), 60)):
            merge(report, report.exhaustive, counts)
        for totals in run("schedules", schedule, chunks(range(first_seed, first_seed + seeds), 250)):
            merge_totals(report, totals)
        for fault_counts in run(
            "faults", disturb, chunks(cases() if fault_cases is None else fault_cases, 100)
        ):
            merge(report, report.faults, fault_counts)
        flips, lengths = list(run_flips()), list(run_truncations())
        report.flips, report.lengths = len(flips), len(lengths)
        for found in run("damage", damage, chunks([*flips, *lengths], 200)):
            report.violations += found
        for caught in run("plants", plant, chunks(PLANTS if plants is None else plants, 1)):
            report.plants += caught
    return report


def merge(report: Report, total: Any, counts: Any) -> None:
    if isinstance(counts, str):
        report.violations.append(counts)
    else:
        total.add(counts)


def merge_totals(report: Report, totals: Totals) -> None:
    mine = report.schedules
    for name in _SUMS:
        setattr(mine, name, getattr(mine, name) + getattr(totals, name))
    for outcome in totals.violations:
        report.violations.append(f"seed {outcome.seed}: {outcome.violation}")


def as_json(report: Report) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "first_seed": report.first_seed,
        "seeds": report.seeds,
        "longest_workload": report.longest_workload,
        "exhaustive": asdict(report.exhaustive),
        "faults": {
            "planned": report.faults.planned,
            "fired": dict(report.faults.fired),
            "errors": dict(report.faults.errors),
            "poisoned": report.faults.poisoned,
        },
        "damage": {"flips": report.flips, "lengths": report.lengths},
        "schedules": {name: getattr(report.schedules, name) for name in _SUMS},
        "plants": [asdict(caught) for caught in report.plants],
        "violations": report.violations,
        "seconds": report.seconds,
    }
    return fields


def as_markdown(report: Report) -> str:
    """The report as a page; figures only, "none found in N" where nothing was found."""
    runs, states, faults = report.schedules, report.exhaustive, report.faults
    found = f"{len(report.violations)} found" if report.violations else "none found"
    lines = [
        "# Crash simulator",
        "",
        "| part | what was run |",
        "|---|---|",
        f"| every workload of up to {report.longest_workload} calls | {states.workloads:,} workloads,"
        f" {states.boundaries:,} I/O boundaries, {states.states:,} crash states ({states.distinct:,} different),"
        f" {states.crashed_recoveries:,} recoveries cut off |",
        f"| random schedules, seeds {report.first_seed} to {report.first_seed + report.seeds - 1} |"
        f" {runs.schedules:,} schedules, {runs.calls:,} calls, {runs.records:,} records,"
        f" {runs.crashes:,} power losses, {runs.kills:,} kills ({runs.amid:,} amid a call),"
        f" {runs.recrashed:,} recoveries cut off |",
        f"| disk faults | {faults.planned:,} planned, {sum(faults.fired.values()):,} fired: "
        + ", ".join(f"{kind} {count:,}" for kind, count in sorted(faults.fired.items()))
        + " |",
        f"| damaged files | {report.flips:,} flipped bits, {report.lengths:,} lengths |",
        "",
        f"Violations: **{found}** in these runs.",
        "",
        *(f"- {violation}" for violation in report.violations),
        "",
        "## Planted bugs",
        "",
        "| planted | caught by | runs it took | caught in | as |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {caught.name}: {caught.what} | {caught.by or '**not caught**'} | {caught.runs_taken} |"
        f" {caught.caught_in} of {caught.runs} | {caught.rule} |"
        for caught in report.plants
    ]
    lines += ["", "Seconds: " + ", ".join(f"{part} {spent}" for part, spent in report.seconds.items()), ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing found and every planted bug caught; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.report", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--longest", type=int, default=3, help="calls in the longest exhaustive workload")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    chosen = parser.parse_args(arguments)
    report = build(chosen.start, chosen.seeds, chosen.longest, lambda line: print(line, file=sys.stderr))
    page = as_markdown(report)
    print(page)
    if chosen.markdown:
        _write(chosen.markdown, page)
    if chosen.json:
        _write(chosen.json, json.dumps(as_json(report), indent=1) + "\n")
    return 1 if report.violations or not all(caught.by for caught in report.plants) else 0


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    raise SystemExit(main())
