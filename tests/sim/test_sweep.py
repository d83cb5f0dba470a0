"""Faults at the calls of cleaning, markers, snapshots, erasure, rolls and deletions, sampled; every one by hand."""

from __future__ import annotations

import pytest

from logstore.seams.faults import FaultKind
from tests.sim.sweep import KINDS, SWEEPS, SweepCase, SweepRun, run_sweep, sweep_cases, trace_of

SHARE = 9  # shares no factor with the ways to fail: every kind comes up, at calls of every workload
# Cases that once found a bug.
FOUND = {
    SweepCase("erasure", 29, FaultKind.EIO, True): "index pages that a failed sync had dropped were believed",
    SweepCase("erasure", 112, FaultKind.EIO, True): "the search for a key let an OSError out",
    SweepCase(
        "named producers", 33, FaultKind.EIO, True
    ): "index pages that a failed sync had dropped were believed",
}


@pytest.mark.slow
def test_a_sample() -> None:
    chosen = list(sweep_cases())[::SHARE]
    counts = run_sweep(chosen)
    assert counts.planned == len(chosen)
    assert {case.name for case in chosen} == set(SWEEPS)
    assert set(counts.fired) == {kind.value for kind in KINDS}
    assert sum(counts.fired.values()) == counts.planned
    assert counts.errors["DiskFullError"] > 0
    assert counts.errors["StorageError"] > 0
    assert counts.poisoned > 0


@pytest.mark.parametrize("case", FOUND, ids=str)
def test_cases_that_found_something(case: SweepCase) -> None:
    assert sum(SweepRun(case).run().fired.values()) == 1


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", SWEEPS)
def test_every_call(name: str) -> None:
    chosen = [case for case in sweep_cases() if case.name == name]
    counts = run_sweep(chosen)
    assert sum(counts.fired.values()) == len(chosen)


def test_the_workloads_write_all_kinds_of_files() -> None:
    paths = [
        operation.path
        for name in SWEEPS
        for operation in trace_of(name)
        if operation.name in ("create", "rename")
    ]
    for ending in (
        ".log",
        ".txnindex",
        ".snapshot.tmp",
        ".log.cleaned",
        ".swap.tmp",
        ".json.tmp",
        ".deleting.tmp",
    ):
        assert any(path.endswith(ending) for path in paths), ending
