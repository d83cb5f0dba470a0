"""I/O calls of the workload fail in every way, once and for ever: a quarter of them here, all in CI's own step."""

from __future__ import annotations

import pytest

from logstore.seams.faults import FaultKind
from tests.sim.faults import KINDS, cases, run_cases, trace_of_workload

CHUNKS = 25  # shares no factor with the eight ways to fail: every chunk has them all


@pytest.mark.parametrize("chunk", range(0, CHUNKS, 4))
def test_faults(chunk: int) -> None:
    chosen = list(cases())[chunk::CHUNKS]
    counts = run_cases(chosen)
    assert counts.planned == len(chosen)
    assert set(counts.fired) == {kind.value for kind in KINDS}
    assert counts.errors["DiskFullError"] > 0
    assert counts.errors["StorageError"] > 0


def test_the_workload_meets_every_kind_of_call() -> None:
    names = {operation.name for operation in trace_of_workload()}
    assert names >= {
        *("open", "create", "pread", "pwritev", "sync", "size"),
        *("listdir", "stat", "mkdir", "rename", "sync_dir"),
    }


def test_each_kind_is_planned_at_each_call() -> None:
    planned = {(case.call, case.kind, case.forever) for case in cases()}
    calls = len(trace_of_workload())
    assert planned == {
        (call, kind, forever) for call in range(1, calls + 1) for kind in KINDS for forever in (False, True)
    }
    assert FaultKind.FAILED_SYNC in KINDS
