"""The report says what was measured: missed targets too, and README quotes the same figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import machine, report
from bench.harness import Row, alone, compared
from tests.house import ROOT


def rows() -> list[Row]:
    figures = {"ours": [1.0, 2.0, 4.0], "peer": [2.0, 2.0, 2.0]}
    return [
        compared("q", "met", figures, ours="ours", peer="peer", unit="k/s", at_least=1.0, note="page cache"),
        alone("q", "missed", [1234.5], unit="us", at_most=60),
        alone("q", "no | target", [0.12345], unit="s"),
    ]


def made() -> report.Report:
    facts = {
        "processor": "P", "cores": "2", "memory_mb": "1", "system": "S", "python": "Y", "file_system": "ext4",
        "logstore": "0", "peers": "none", "pace_before": "load 0", "pace_after": "load 1",
    }  # fmt: skip
    when = "2026-01-02 03:04 UTC"
    return report.Report(machine=facts, quick=False, finished=when, seconds=9.0, rows=rows())


def test_table_has_even_columns_and_verdicts() -> None:
    head, met, missed, plain = report.table(rows()).split("\n")
    assert head.index("target") == met.index(">= 1 x") == missed.index("<= 60 us")
    assert met.endswith("met")
    assert missed.endswith("MISSED")
    assert plain.endswith("(0.123-0.123)")


def test_markdown_names_what_was_missed() -> None:
    page = report.markdown(made())
    assert "Targets: 1 of 2 met." in page
    assert "Missed: q, missed (<= 60 us)" in page
    assert "no \\| target" in page
    assert "page cache" in page


def test_json_comes_back() -> None:
    assert report.from_json(report.as_json(made())) == made()


def test_readme_gets_the_rows_with_a_target() -> None:
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    new = report.with_results(page, made())
    assert new.startswith(f"before\n{report.BEGIN}\n")
    assert new.endswith(f"{report.END}\nafter\n")
    assert "old" not in new
    assert "| q: missed | 1,234 us |  |  | <= 60 us | missed |" in new
    assert "no | target" not in new
    with pytest.raises(ValueError, match="no place for results"):
        report.with_results("nothing", made())


NUMBERS = [(12345.6, "12,346"), (99.94, "99.9"), (9.876, "9.88"), (0.5, "0.5")]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers(value: float, text: str) -> None:
    assert report.number(value) == text


def test_pace_counts_time() -> None:
    assert float(machine.pace().split()[-2]) > 0


def test_machine_is_named_without_paths(tmp_path: Path) -> None:
    facts = machine.describe(str(tmp_path))
    assert facts["processor"]
    assert int(facts["cores"]) >= 1
    assert not any(str(tmp_path) in text or "/" in text for text in facts.values())


def test_results_in_the_tree_agree() -> None:
    """The JSON, the page and README come from one run."""
    results = ROOT / "bench" / "results"
    kept = report.from_json((results / "latest.json").read_text("utf-8"))
    assert (results / "RESULTS.md").read_text("utf-8") == report.markdown(kept)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert report.with_results(readme, kept) == readme
