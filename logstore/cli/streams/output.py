"""How commands show things: tables, JSON, sizes and times, progress on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import click

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def print_json(value: Any) -> None:
    """One line of UTF-8, whatever the terminal's encoding; halves of surrogate pairs as escapes."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = json.dumps(value).encode("ascii")
    click.echo(data)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns: text to the left, numbers to the right. Plain, so that it can be piped on."""
    lines = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[number]) for line in [list(columns), *lines]) for number in range(len(columns))]
    numeric = [
        bool(rows) and all(isinstance(row[number], int | float) for row in rows)
        for number in range(len(columns))
    ]
    for line in [list(columns), *lines]:
        cells = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def note(text: str) -> None:
    """Words for a person: to stderr, so that stdout holds data alone."""
    try:
        click.echo(text, err=True)
    except OSError:
        pass  # nobody can read it: what was done is done, and the exit code says so


def size_text(count: int) -> str:
    """Bytes in a unit that reads well."""
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{count} B"


def rate_text(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}/s" if seconds > 0 else "-"


def time_text(timestamp_ms: int) -> str:
    """A record's time in UTC; the bare number where the calendar ends."""
    if timestamp_ms == -1:  # what Kafka writes for no time
        return "-1"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def bytes_text(value: bytes | None, limit: int = 60) -> str:
    """A key or value for a person: text if it is some, else hex; cut to ``limit`` characters."""
    if value is None:
        return "null"
    try:
        text = value[: 4 * limit].decode("utf-8", "strict" if len(value) <= 4 * limit else "ignore")
    except UnicodeDecodeError:
        text = "0x" + value[:limit].hex()
    text = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


@contextmanager
def progress(label: str, total: int | None, *, unit_bytes: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while the block runs, if that is a terminal. Yields what to call with each step."""
    if not sys.stderr.isatty():
        yield _nowhere
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    counter = DownloadColumn() if unit_bytes else MofNCompleteColumn()
    columns = (TextColumn(label), BarColumn(), counter, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(step: int) -> None:
            bar.advance(task, step)

        yield advance


def _nowhere(step: int) -> None:
    """No terminal, no bar."""
