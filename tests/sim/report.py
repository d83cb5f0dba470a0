"""The simulator's report: what was run, what it found, and how many seeds each planted bug took.

    python -m tests.sim.report [--long] [--seeds N] [--mixed-seeds N] [--start K] [--longest CALLS]
        [--mixed-longest CALLS] [--share N] [--json FILE] [--markdown FILE]

Only runs whose fault fired are counted. Seeds are resumable: ``--start`` goes on where a run ended. ``--long`` sets
the figures of a long campaign; any of them may be given as well.
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
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from tests.sim.damage import run_flips, run_truncations
from tests.sim.exhaustive import Counts, Explorer, Workload, workloads
from tests.sim.fault_run import FaultCounts
from tests.sim.faults import Case, cases, run_cases
from tests.sim.files import Check, FileCounts, run_file_checks, run_file_flips, run_file_lengths
from tests.sim.ledger_plants import PLANTS
from tests.sim.ledger_workload import ALPHABET as MIXED_ALPHABET
from tests.sim.mixed import CRITICAL, MixedSchedule, mixed_explorer
from tests.sim.model import Violation
from tests.sim.plants import Caught, hunt
from tests.sim.schedules import Totals, run_schedules
from tests.sim.sweep import SweepCase, run_sweep, sweep_cases

SUMS = ("schedules", "calls", "crashes", "kills", "amid", "recrashed", "records")
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class Report:
    """Counts of all parts; ``violations`` is what was found in the engine as it is: none, hopefully.

    "Mixed" are producers, transactions, cleaning, erasure and deletion. ``share``: of the damage that single bits
    and lengths can do, one of so many was looked at.
    """

    first_seed: int
    seeds: int
    longest_workload: int
    mixed_seeds: int = 0
    mixed_longest: int = 0
    share: int = 1
    mixed_exhaustive: Counts = field(default_factory=Counts)
    mixed: Totals = field(default_factory=Totals)
    sweep: FaultCounts = field(default_factory=FaultCounts)
    files: FileCounts = field(default_factory=FileCounts)
    exhaustive: Counts = field(default_factory=Counts)
    schedules: Totals = field(default_factory=Totals)
    faults: FaultCounts = field(default_factory=FaultCounts)
    flips: int = 0
    lengths: int = 0
    plants: list[Caught] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def quieten() -> None:
    """For each process of the pool: the engine's complaints are counted instead."""
    logging.getLogger("logstore").setLevel(logging.CRITICAL)


def explore(chosen: Sequence[Workload]) -> Counts | str:
    explorer = Explorer()
    try:
        return explorer.explore(chosen)
    except Violation as violation:
        return str(violation)


def explore_mixed(chosen: Sequence[Workload]) -> Counts | str:
    try:
        return mixed_explorer().explore(chosen)
    except Violation as violation:
        return str(violation)


def sweep(chosen: Sequence[SweepCase]) -> FaultCounts | str:
    try:
        return run_sweep(chosen)
    except Violation as violation:
        return str(violation)


def damage_files(checks: Sequence[Check]) -> FileCounts:
    return run_file_checks(checks)


def disturb(chosen: Sequence[Case]) -> FaultCounts | str:
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


def schedule_mixed(seeds: Sequence[int]) -> Totals:
    return run_schedules(seeds, MixedSchedule)


def plant(names: Sequence[str]) -> list[Caught]:
    return [hunt(PLANTS[name]) for name in names]


def chunks(items: Iterable[Item], size: int) -> list[list[Item]]:
    listed = list(items)
    return [listed[start : start + size] for start in range(0, len(listed), size)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How much to run. ``first_seed``: of both kinds of schedules. ``fault_cases``, ``sweep_cases``, ``plants``:
    None for all of them."""

    first_seed: int = 0
    seeds: int = 10_000
    longest: int = 3
    mixed_seeds: int = 2_000
    mixed_longest: int = 2
    share: int = 32
    fault_cases: Sequence[Case] | None = None
    sweep_cases: Sequence[SweepCase] | None = None
    plants: Sequence[str] | None = None


LONG = Plan(seeds=1_000_000, longest=4, mixed_seeds=200_000, mixed_longest=3, share=1)


class Builder:
    """Runs the parts of a plan, one after another, on all processors."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self._say = say
        self.report = Report(
            plan.first_seed,
            plan.seeds,
            plan.longest,
            mixed_seeds=plan.mixed_seeds,
            mixed_longest=plan.mixed_longest,
            share=plan.share,
        )

    def build(self) -> Report:
        with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), quieten) as pool:
            self._pool = pool
            self._plain()
            self._mixed()
            self._plants()
        return self.report

    def _run(self, part: str, work: Callable[[list[Item]], Result], split: list[list[Item]]) -> list[Result]:
        began = time.monotonic()
        results = list(self._pool.map(work, split))
        self.report.seconds[part] = round(time.monotonic() - began, 1)
        self._say(f"{part}: {self.report.seconds[part]} s")
        return results

    def _plain(self) -> None:
        plan, report = self.plan, self.report
        for counts in self._run("exhaustive", explore, chunks(workloads(plan.longest), 60)):
            merge(report, report.exhaustive, counts)
        seeds = range(plan.first_seed, plan.first_seed + plan.seeds)
        for totals in self._run("schedules", schedule, chunks(seeds, 250)):
            merge_totals(report, report.schedules, totals, "seed")
        fault_cases = cases() if plan.fault_cases is None else plan.fault_cases
        for fault_counts in self._run("faults", disturb, chunks(fault_cases, 100)):
            merge(report, report.faults, fault_counts)
        flips, lengths = list(run_flips()), list(run_truncations())
        report.flips, report.lengths = len(flips), len(lengths)
        for found in self._run("damage", damage, chunks([*flips, *lengths], 200)):
            report.violations += found

    def _mixed(self) -> None:
        plan, report = self.plan, self.report
        chosen = [*CRITICAL, *workloads(plan.mixed_longest, MIXED_ALPHABET)]
        for counts in self._run("mixed exhaustive", explore_mixed, chunks(chosen, 5)):
            merge(report, report.mixed_exhaustive, counts)
        seeds = range(plan.first_seed, plan.first_seed + plan.mixed_seeds)
        for totals in self._run("mixed schedules", schedule_mixed, chunks(seeds, 100)):
            merge_totals(report, report.mixed, totals, "mixed seed")
        chosen_cases = sweep_cases() if plan.sweep_cases is None else plan.sweep_cases
        for fault_counts in self._run("sweep", sweep, chunks(chosen_cases, 100)):
            merge(report, report.sweep, fault_counts)
        checks = [*run_file_flips(plan.share), *run_file_lengths(plan.share)]
        for file_counts in self._run("files", damage_files, chunks(checks, 200)):
            report.files.add(file_counts)
        report.violations += report.files.violations

    def _plants(self) -> None:
        for caught in self._run("plants", plant, chunks(self.plan.plants or PLANTS, 1)):
            self.report.plants += caught


def build(plan: Plan, say: Callable[[str], None]) -> Report:
    """Run every part of the plan; ``say`` is told of each that is done."""
    return Builder(plan, say).build()


def merge(report: Report, total: Any, counts: Any) -> None:
    if isinstance(counts, str):
        report.violations.append(counts)
    else:
        total.add(counts)


def merge_totals(report: Report, mine: Totals, totals: Totals, seed: str) -> None:
    """``seed``: how a seed of this kind is called."""
    for name in SUMS:
        setattr(mine, name, getattr(mine, name) + getattr(totals, name))
    for outcome in totals.violations:
        report.violations.append(f"{seed} {outcome.seed}: {outcome.violation}")


def as_json(report: Report) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "first_seed": report.first_seed,
        "seeds": report.seeds,
        "longest_workload": report.longest_workload,
        "exhaustive": asdict(report.exhaustive),
        "faults": _faults_as_json(report.faults),
        "damage": {"flips": report.flips, "lengths": report.lengths},
        "schedules": {name: getattr(report.schedules, name) for name in SUMS},
        "mixed": {
            "seeds": report.mixed_seeds,
            "longest_workload": report.mixed_longest,
            "exhaustive": asdict(report.mixed_exhaustive),
            "schedules": {name: getattr(report.mixed, name) for name in SUMS},
            "sweep": _faults_as_json(report.sweep),
            "files": {"share": report.share, **report.files.as_json()},
        },
        "plants": [asdict(caught) for caught in report.plants],
        "violations": report.violations,
        "seconds": report.seconds,
    }
    return fields


def _faults_as_json(counts: FaultCounts) -> dict[str, Any]:
    return {
        "planned": counts.planned,
        "fired": dict(counts.fired),
        "errors": dict(counts.errors),
        "poisoned": counts.poisoned,
    }


def _states_row(what: str, states: Counts) -> str:
    return (
        f"| {what} | {states.workloads:,} workloads, {states.boundaries:,} I/O boundaries,"
        f" {states.states:,} crash states ({states.distinct:,} different),"
        f" {states.crashed_recoveries:,} recoveries cut off |"
    )


def _schedules_row(what: str, runs: Totals, first: int, seeds: int) -> str:
    return (
        f"| {what}, seeds {first} to {first + seeds - 1} | {runs.schedules:,} schedules, {runs.calls:,} calls,"
        f" {runs.records:,} records, {runs.crashes:,} power losses, {runs.kills:,} kills ({runs.amid:,} amid a call),"
        f" {runs.recrashed:,} recoveries cut off |"
    )


def _faults_row(what: str, faults: FaultCounts) -> str:
    fired = ", ".join(f"{kind} {count:,}" for kind, count in sorted(faults.fired.items()))
    return f"| {what} | {faults.planned:,} planned, {sum(faults.fired.values()):,} fired: {fired} |"


def as_markdown(report: Report) -> str:
    """The report as a page; figures only, "none found in N" where nothing was found."""
    found = f"{len(report.violations)} found" if report.violations else "none found"
    first, files = report.first_seed, report.files
    lines = [
        "# Crash simulator",
        "",
        "| part | what was run |",
        "|---|---|",
        _states_row(f"every workload of up to {report.longest_workload} calls", report.exhaustive),
        _schedules_row("random schedules", report.schedules, first, report.seeds),
        _faults_row("disk faults", report.faults),
        f"| damaged log files | {report.flips:,} flipped bits, {report.lengths:,} lengths |",
        _states_row(
            "producers, transactions, cleaning, erasure, deletion: every workload of up to"
            f" {report.mixed_longest} calls, and {len(CRITICAL)} longer ones",
            report.mixed_exhaustive,
        ),
        _schedules_row("the same in random schedules", report.mixed, first, report.mixed_seeds),
        _faults_row("the same, a fault at every call that it can hit", report.sweep),
        f"| all kinds of files damaged, one of {report.share} places | {files.flips:,} flipped bits, {files.lengths:,}"
        f" lengths: {files.data:,} gave the data, {files.errors:,} a named error,"
        f" {files.uncovered:,} lie where no checksum covers |",
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
    parser.add_argument("--long", action="store_true", help="the figures of a long campaign")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--mixed-seeds", type=int)
    parser.add_argument("--longest", type=int, help="calls in the longest exhaustive workload")
    parser.add_argument("--mixed-longest", type=int, help="the same with producers and cleaning")
    parser.add_argument("--share", type=int, help="look at one of so many bits and lengths")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    chosen = parser.parse_args(arguments)
    asked = {
        name: getattr(chosen, name) for name in ("seeds", "mixed_seeds", "longest", "mixed_longest", "share")
    }
    given = {name: value for name, value in asked.items() if value is not None}
    plan = replace(LONG if chosen.long else Plan(), first_seed=chosen.start, **given)
    report = build(plan, lambda line: print(line, file=sys.stderr))
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
