"""The report runs from the command line, writes what it prints, and says when something was found."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.sim import report
from tests.sim.faults import cases
from tests.sim.mixed import CRITICAL
from tests.sim.model import CALM, Violation
from tests.sim.plants import Caught
from tests.sim.report import LONG, Plan, Report, as_json, as_markdown, main
from tests.sim.schedules import Outcome, Totals, run_schedules
from tests.sim.sweep import sweep_cases
from tests.sim.workload import ALPHABET

SMALL = ("--mixed-seeds", "10", "--mixed-longest", "0", "--share", "9001")


@pytest.mark.slow
def test_a_small_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = partial(
        Plan,
        fault_cases=list(cases())[::200],
        sweep_cases=list(sweep_cases())[::200],
        plants=["ack before sync", "stable end ignored"],
    )
    monkeypatch.setattr(report, "Plan", small)
    files = [f"{tmp_path}/report.json", f"{tmp_path}/report.md"]
    asked = [
        "--seeds",
        "20",
        "--start",
        "7",
        "--longest",
        "1",
        *SMALL,
        "--json",
        files[0],
        "--markdown",
        files[1],
    ]
    assert main(asked) == 0
    page = Path(files[1]).read_text("utf-8")
    assert page in capsys.readouterr().out
    assert "seeds 7 to 26" in page
    assert "**none found**" in page
    told = json.loads(Path(files[0]).read_text("utf-8"))
    assert told["schedules"]["schedules"] == 20
    assert told["exhaustive"]["workloads"] == 1 + len(ALPHABET)
    assert [plant["by"] for plant in told["plants"]] == ["schedules", "mixed schedules"]
    assert told["mixed"]["schedules"]["schedules"] == 10
    assert told["mixed"]["exhaustive"]["workloads"] == 1 + len(CRITICAL)
    assert sum(told["mixed"]["sweep"]["fired"].values()) > 10
    assert told["mixed"]["files"]["flips"] > 50
    assert told["mixed"]["files"]["lengths"] > 5


def test_ranges_of_seeds_add_up() -> None:
    whole, first, second = (run_schedules(seeds) for seeds in (range(20), range(12), range(12, 20)))
    for name in ("schedules", "calls", "crashes", "kills", "amid", "recrashed", "records"):
        assert getattr(whole, name) == getattr(first, name) + getattr(second, name)


def test_what_was_found_is_said() -> None:
    found = Report(first_seed=0, seeds=1, longest_workload=0)
    found.violations = ["seed 3: broken"]
    found.plants = [Caught("weak", "never shows")]
    page = as_markdown(found)
    assert "**1 found**" in page
    assert "seed 3: broken" in page
    assert "**not caught**" in page
    assert as_json(found)["violations"] == ["seed 3: broken"]


def test_a_violation_of_a_schedule_reaches_the_report() -> None:
    totals = Totals()
    totals.add(Outcome(seed=5, crashes=1, violation=Violation(CALM, "planted")))
    told = Report(first_seed=0, seeds=1, longest_workload=0)
    report.merge_totals(told, told.schedules, totals, "seed")
    assert told.violations == [f"seed 5: {CALM}: planted"]
    assert told.schedules.schedules == 1


def test_the_long_campaign_reaches_the_figures_that_were_set() -> None:
    assert (LONG.seeds, LONG.longest, LONG.share) == (1_000_000, 4, 1)
