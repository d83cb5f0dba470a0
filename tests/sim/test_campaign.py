"""A long campaign goes on where it was cut, counts each unit once, and keeps what it finds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sim import campaign
from tests.sim.campaign import Came, Part, Progress, load, main, next_part, page, parts
from tests.sim.exhaustive import Counts, Explorer, Workload, workloads
from tests.sim.model import Violation
from tests.sim.report import LONG
from tests.sim.schedules import Outcome, Totals
from tests.sim.workload import ALPHABET


def count(start: int, end: int) -> Came:
    return Came({"units": end - start, "sum": sum(range(start, end))})


def find(start: int, end: int) -> Came:
    return Came({"units": end - start}, [f"unit {unit}" for unit in range(start, end) if unit % 40 == 7])


KNOWN = {"a": Part("all a", 101, 10, count), "b": Part("all b", 20, 3, find)}


def test_it_goes_on_where_it_was_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.json"
    record = {"a": Progress(done=30, counts={"units": 30, "sum": sum(range(30))}, ranges=[[0, 30, "older"]])}
    campaign.save(str(path), record, KNOWN)
    assert main(["--minutes", "1", "--record", str(path), "--part", "a"], KNOWN) == 0
    told = json.loads(path.read_text("utf-8"))
    assert told["a"]["counts"] == {"units": 101, "sum": sum(range(101))}
    assert [row[:2] for row in told["a"]["ranges"]] == [[0, 30], [30, 101]]
    assert "b" not in told
    assert main(["--minutes", "1", "--record", str(path)], KNOWN) == 1, "something was found"
    assert load(str(path))["b"].violations == ["unit 7"]
    text = (tmp_path / "record.md").read_text("utf-8")
    assert text in capsys.readouterr().out
    assert "| all a | 101 | 101 |" in text
    assert "**1 found**" in text
    assert "- b: unit 7" in text
    before = path.read_bytes()
    assert main(["--minutes", "1", "--record", str(path)], KNOWN) == 1, "what was found stays so"
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--minutes", "0"], "give it more than none"),
        (["--minutes", "nan"], "give it more than none"),
        (["--minutes", "1", "--record", "/nowhere/record.json"], "make it first"),
    ],
)
def test_what_is_asked_wrongly_is_refused_before_any_work(
    wrong: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(wrong, {})
    assert words in capsys.readouterr().err


def test_what_is_furthest_behind_goes_next() -> None:
    assert next_part({}, KNOWN) == "a"
    assert next_part({"a": Progress(done=10)}, KNOWN) == "b"
    assert next_part({"a": Progress(done=10), "b": Progress(done=3)}, KNOWN) == "a"
    assert next_part({"a": Progress(done=101), "b": Progress(done=19)}, KNOWN) == "b"
    assert next_part({"a": Progress(done=101), "b": Progress(done=20)}, KNOWN) is None
    assert "**none found**" in page({}, KNOWN)


@pytest.mark.parametrize(
    ("name", "start", "end", "counted"),
    [
        ("seeds", 40, 44, {"schedules": 4}),
        ("mixed-seeds", 40, 42, {"schedules": 2}),
        ("workloads", 3, 6, {"workloads": 3}),
        ("mixed-workloads", 2, 4, {"workloads": 2}),
        ("log-damage", 1000, 1005, {"checks": 5}),
        ("file-damage", 2000, 2010, {"flips": 10, "lengths": 0}),
    ],
)
def test_each_part_runs_the_units_it_is_asked_for(
    name: str, start: int, end: int, counted: dict[str, int]
) -> None:
    part = parts()[name]
    came = part.run(start, end)
    assert came.violations == []
    assert came.counts.items() >= counted.items()
    assert part.run(part.units, part.units + 5).counts.get("workloads", 0) == 0 or "seeds" in name
    if name == "file-damage":
        assert part.run(part.units - 5, part.units).counts["lengths"] == 5


def test_the_parts_have_the_long_figures() -> None:
    known = parts()
    assert known["seeds"].units == LONG.seeds == 1_000_000
    assert known["workloads"].units == len(list(workloads(LONG.longest)))
    assert known["log-damage"].units == len(list(campaign._log_checks()))
    assert known["file-damage"].units == len(list(campaign._file_checks()))


def test_a_violation_names_its_run_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Outcome(seed=6, violation=Violation("rule", "gone"))
    monkeypatch.setattr(campaign, "run_schedules", lambda _: Totals(schedules=2, violations=[bad]))
    came = campaign.run_seeds(5, 7)
    assert came.violations == ["seed 6: rule: gone"]
    assert came.counts["schedules"] == 2
    explore = Explorer.explore

    def found(explorer: Explorer, chosen: Sequence[Workload]) -> Counts:
        if len(chosen[0]) == 1:
            raise Violation("rule", f"in {chosen[0]}")
        return explore(explorer, chosen)

    monkeypatch.setattr(Explorer, "explore", found)
    came = campaign.run_workloads(0, 13)
    assert len(came.violations) == len(ALPHABET) == 10
    assert came.counts["workloads"] == 3
