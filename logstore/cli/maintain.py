"""`logstore maintain`: all the maintenance of a store that is due, now; for a timer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from logstore.cli.streams.output import note, print_json, print_table, size_text
from logstore.cli.target import Target, target_options

if TYPE_CHECKING:
    from logstore.types import MaintainedTopic, MaintenanceReport

EXIT_LEFT = 3


@click.command()
@click.argument("names", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Begin nothing more after so long; a compaction under way is ended.  [default: none]",
)
@target_options
@click.pass_obj
def maintain(target: Target, /, names: tuple[str, ...], time_limit_s: float | None) -> None:
    """Retain, compact and expire what is due, of each TOPIC or of all.

    A process that has a store open does this by itself, and each that writes does a little before it ends. Where
    topics are written by short-lived processes only, let a timer run this now and then. Topics that a running
    process owns are left to it.

    Exit codes: 0 all that was due is done, 1 something failed, 3 the time was up before all was done.
    """
    # Without threads: what the background did meanwhile would be missing from the report.
    with target.open(write=True, maintenance_s=0, threads=False) as store:
        report = store.maintain(names or None, time_limit_s=time_limit_s)
    if target.as_json:
        for row in report.topics:
            print_json(_fields(row))
        print_json(_summary(report))
    else:
        _print(report)
    if any(row.error for row in report.topics):
        raise click.exceptions.Exit(1)
    if not report.is_complete:
        raise click.exceptions.Exit(EXIT_LEFT)


def _fields(row: MaintainedTopic) -> dict[str, Any]:
    from dataclasses import asdict

    fields = asdict(row)
    for partition in fields["compacted"]:
        del partition["held_by"]  # of a compaction by hand alone
    return fields


def _summary(report: MaintenanceReport) -> dict[str, Any]:
    return {
        "complete": report.is_complete,
        "by_time": report.by_time,
        "expired_offsets": report.expired_offsets,
        "took_s": round(report.took_s, 3),
    }


def _print(report: MaintenanceReport) -> None:
    columns = ("TOPIC", "RETIRED", "SIZE", "COMPACTED", "RECORDS", "KEPT", "STATE")
    rows = [
        (
            row.topic,
            row.retired_segments,
            size_text(row.retired_bytes),
            len(row.compacted),
            sum(one.records_before for one in row.compacted),
            sum(one.records_after for one in row.compacted),
            _state(row),
        )
        for row in report.topics
        if not row.is_idle or row.owner is not None
    ]
    if rows:
        print_table(columns, rows)
    if report.expired_offsets:
        note(f"{report.expired_offsets} committed offsets have expired")
    if not report.by_time:
        note(
            "the clock was looked at for the first time, or was set: nothing went because of its age, run it again"
        )
    note(f"{len(report.topics)} topics looked at, in {report.took_s:.2f} s")


def _state(row: MaintainedTopic) -> str:
    if row.error is not None:
        return row.error
    if row.left:
        return "time was up" if row.left == "time" else row.left
    return "done" if row.owner is None else f"left to {row.owner}"
