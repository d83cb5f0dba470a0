"""One table for the terminal, one JSON, one page of Markdown, and the lines README quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.harness import Row, Spread

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
HEAD = ("question", "case", "here", "peer", "ratio", "target", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A whole run: the machine, how it was run, every row."""

    machine: dict[str, str]
    quick: bool
    finished: str
    seconds: float
    rows: Sequence[Row]


def number(value: float) -> str:
    """Three digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def _spread(seen: Spread, unit: str) -> str:
    return f"{number(seen.median)} {unit} ({number(seen.low)}-{number(seen.high)})"


def verdict(row: Row) -> str:
    return "" if row.met is None else "met" if row.met else "MISSED"


def cells(row: Row) -> tuple[str, ...]:
    peer = f"{row.peer} {_spread(row.peer_value, row.unit)}" if row.peer_value else ""
    ratio = ""
    if row.ratio:
        ratio = f"{row.ratio.median:.2f} ({row.ratio.low:.2f}-{row.ratio.high:.2f})"
    return (row.question, row.case, _spread(row.value, row.unit), peer, ratio, row.target, verdict(row))


def table(rows: Iterable[Row]) -> str:
    """Columns of even width, for a terminal."""
    lines = [HEAD, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(parts).rstrip() for parts in padded)


def _markdown_row(parts: Iterable[str]) -> str:
    return "| " + " | ".join(part.replace("|", "\\|") for part in parts) + " |"


def _machine_sentence(machine: dict[str, str]) -> str:
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_mb']} MB, {machine['system']}, "
        f"{machine['python']}, {machine['file_system']} (before: {machine['pace_before']}; "
        f"after: {machine['pace_after']})"
    )


def markdown(report: Report) -> str:
    """The whole table with notes."""
    targets = [row for row in report.rows if row.met is not None]
    missed = [row for row in targets if not row.met]
    lines = [
        "# Results",
        "",
        f"Machine: {_machine_sentence(report.machine)}. logstore {report.machine['logstore']}; "
        f"{report.machine['peers']}.",
        f"{'Quick' if report.quick else 'Full'} run, finished {report.finished}, {report.seconds:.0f} s. The "
        "machine is shared: ratios say more than times.",
        "Each cell is a median with the lowest and highest seen; a ratio is the median over rounds of here / "
        "peer, both in the same round.",
        "",
        f"Targets: {len(targets) - len(missed)} of {len(targets)} met.",
        *(f"- Missed: {row.question}, {row.case} ({row.target})" for row in missed),
        "",
        _markdown_row((*HEAD[:-1], "verdict", "note")),
        _markdown_row(["---"] * 8),
        *(_markdown_row((*cells(row), row.note)) for row in report.rows),
    ]
    return "\n".join(lines) + "\n"


def as_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=1) + "\n"


def from_json(text: str) -> Report:
    """The report back from its JSON."""
    found = json.loads(text)

    def spread(values: list[float] | None) -> Spread | None:
        return None if values is None else Spread(*values)

    def row(fields: dict[str, Any]) -> Row:
        spreads = {name: spread(fields[name]) for name in ("value", "peer_value", "ratio")}
        return Row(**{**fields, **spreads})

    return Report(**{**found, "rows": [row(fields) for fields in found["rows"]]})


def readme_lines(report: Report) -> str:
    """What README quotes: the rows that have a target, and the machine."""
    lines = [
        f"{_machine_sentence(report.machine)}; {'quick' if report.quick else 'full'} run of "
        f'{report.finished[:10]}. Medians; "ratio" is here / peer in the same round.',
        "",
        _markdown_row(("what", "here", "peer", "ratio", "target", "")),
        _markdown_row(["---"] * 6),
    ]
    for row in report.rows:
        if row.met is None:
            continue
        peer = f"{row.peer} {number(row.peer_value.median)} {row.unit}" if row.peer_value else ""
        ratio = f"{row.ratio.median:.2f}" if row.ratio else ""
        here = f"{number(row.value.median)} {row.unit}"
        what = f"{row.question}: {row.case}"
        lines.append(_markdown_row((what, here, peer, ratio, row.target, verdict(row).lower())))
    return "\n".join(lines)


def with_results(readme: str, report: Report) -> str:
    """README with its quoted rows replaced."""
    pattern = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
    if not pattern.search(readme):
        raise ValueError(f"README has no place for results: it needs {BEGIN} and {END}")
    block = f"{BEGIN}\n{readme_lines(report)}\n{END}"
    return pattern.sub(lambda _found: block, readme)
