"""`logstore log compact`: clean a compacted topic now."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.streams.interrupts import Interrupts
from logstore.cli.streams.output import note, print_json, print_table, size_text
from logstore.cli.target import Target, target_options

if TYPE_CHECKING:
    from logstore.types import CleaningProgress, CompactedPartition, OpenTransaction, TopicPartition

_PHASES = {"map": "reading keys", "write": "writing", "swap": "swapping", "done": "done"}
_LINE_EVERY_S = 1.0


@click.command()
@click.argument("name", metavar="TOPIC")
@click.option("-p", "--partition", type=int, help="Only this partition.  [default: all]")
@click.option("--roll", is_flag=True, help="Close the active segment first, so that all of it is cleaned.")
@click.option(
    "--progress", "lines", is_flag=True, help="Tell progress on stderr also where it is no terminal."
)
@target_options
@click.pass_obj
def compact(target: Target, /, name: str, partition: int | None, roll: bool, lines: bool) -> None:
    """Clean the compacted topic TOPIC now, at full speed, whatever its dirty ratio.

    Keeps the last value of each key; offsets do not change. The segment that is appended to is left alone
    unless --roll says otherwise. A process that owns the topic has to give it up first: the error names it.
    """
    with Interrupts() as interrupts, target.open(write=True) as store, _progress(lines) as tell:

        def between_slices(place: TopicPartition, at: CleaningProgress) -> None:
            interrupts.check()
            if tell is not None:
                tell(place, at)

        started_s = time.monotonic()
        done = store.admin.compact(name, partition, roll=roll, on_progress=between_slices)
        took_s = time.monotonic() - started_s
    interrupts.check()
    if target.as_json:
        for row in done:
            print_json({"topic": name, **_fields(row)})
        return
    _print(done)
    before, after = sum(row.bytes_before for row in done), sum(row.bytes_after for row in done)
    for row in done:
        if row.held_by is not None:
            note(f"{name}-{row.partition}: {_held_text(row.held_by)}")
    note(f"{name}: {size_text(before)} before, {size_text(after)} after, in {took_s:.2f} s")


def _fields(row: CompactedPartition) -> dict[str, Any]:
    from dataclasses import asdict

    held = row.held_by
    return asdict(row) | {"held_by": None if held is None else held._asdict()}


def _held_text(held: OpenTransaction) -> str:
    who = f"producer id {held.producer_id}"
    if held.transactional_id is not None:
        who = f"transactional id {held.transactional_id!r}, {who}"
    return f"held back by the open transaction at offset {held.first_offset} ({who}): what follows is not cleaned"


def _print(done: list[CompactedPartition]) -> None:
    columns = ("PARTITION", "CLEAN TO", "RECORDS", "KEPT", "SIZE", "NOW", "SEGMENTS", "NOW")
    rows = [
        (
            row.partition,
            row.cleaned_to,
            row.records_before,
            row.records_after,
            size_text(row.bytes_before),
            size_text(row.bytes_after),
            row.segments_before,
            row.segments_after,
        )
        for row in done
    ]
    print_table(columns, rows)


@contextmanager
def _progress(lines: bool) -> Iterator[Callable[[TopicPartition, CleaningProgress], None] | None]:
    """What to tell progress to: a bar on a terminal, else lines if they are wanted, else nothing."""
    if sys.stderr.isatty():
        with _bars() as tell:
            yield tell
    elif lines:
        yield _Lines().tell
    else:
        yield None


@contextmanager
def _bars() -> Iterator[Callable[[TopicPartition, CleaningProgress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[TopicPartition, Any] = {}

        def tell(place: TopicPartition, at: CleaningProgress) -> None:
            text = f"{place.topic}-{place.partition} {_PHASES.get(at.phase, at.phase)}"
            if place not in tasks:
                tasks[place] = bars.add_task(text, total=None)
            bars.update(tasks[place], description=text, completed=at.bytes_done, total=at.bytes_total or None)

        yield tell


class _Lines:
    """A line a second, and one for each phase."""

    def __init__(self) -> None:
        self._told: tuple[TopicPartition, str] | None = None
        self._next_s = 0.0

    def tell(self, place: TopicPartition, at: CleaningProgress) -> None:
        now_s = time.monotonic()
        if (place, at.phase) == self._told and now_s < self._next_s:
            return
        self._told, self._next_s = (place, at.phase), now_s + _LINE_EVERY_S
        share = f" {at.bytes_done / at.bytes_total:.0%}" if at.bytes_total else ""
        note(f"{place.topic}-{place.partition}: {_PHASES.get(at.phase, at.phase)}{share}")
