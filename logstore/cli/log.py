"""`logstore log`: the files beneath. Works on files alone and takes no lock, also beside a live writer; all but
`compact` (``compact.py``), which owns the topic meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from logstore.cli.compact import compact
from logstore.cli.streams.failures import EXIT_FAILED
from logstore.cli.streams.output import (
    bytes_text,
    note,
    print_json,
    print_table,
    progress,
    size_text,
    time_text,
)
from logstore.cli.target import Target, target_options

if TYPE_CHECKING:
    from logstore.log.inspection.inspect import BadSpan, PartitionFolder
    from logstore.log.inspection.verify import Fault, Totals
    from logstore.log.recovery.salvage import SalvageReport

_TABLE_ROWS = 500  # rows whose widths are aligned together: a listing of any length takes bounded memory


class _Place(NamedTuple):
    """One segment to be shown."""

    folder: PartitionFolder
    base_offset: int
    path: str


@click.group()
def log() -> None:
    """The files beneath a store: dump, verify, salvage, compact."""


log.add_command(compact)


# --- dump -------------------------------------------------------------------------------------------


@log.command()
@click.argument("what", required=False)
@click.option("--batches", "view", flag_value="batches", default=True, help="The batches' headers (default).")
@click.option("--records", "view", flag_value="records", help="The records.")
@click.option("--indexes", "view", flag_value="indexes", help="Entries of the offset and time indexes.")
@click.option("-n", "--limit", type=click.IntRange(1, sys.maxsize), help="Stop after so many rows.")
@target_options
@click.pass_obj
def dump(target: Target, /, what: str | None, view: str, limit: int | None) -> None:
    """Show what segments hold. WHAT is a segment file, a partition's folder, a store's directory, or with
    --path a topic or TOPIC-PARTITION. Damage is shown between what is intact; exit code 1 if there is any."""
    if what == "":
        raise click.UsageError("WHAT is empty: name a segment file, a folder, a store or a topic")
    places = list(_places(target, what))
    if not places:
        note("there is no segment")
    views = {"batches": _batch_rows, "indexes": _index_rows}
    rows = _record_rows(places, target.as_json) if view == "records" else views[view](places)
    damaged = False
    shown = islice(rows, limit)
    while page := list(islice(shown, _TABLE_ROWS)):
        damaged = damaged or any("damage" in row for row in page)
        if target.as_json:
            for row in page:
                print_json(row)
        else:
            _print_page(page)
    if damaged:
        raise click.exceptions.Exit(EXIT_FAILED)


def _print_page(page: list[dict[str, Any]]) -> None:
    """Runs of like rows as tables, a line for each damage and each new segment."""
    start = 0
    for number in range(1, len(page) + 1):
        if (
            number < len(page)
            and page[number].keys() == page[start].keys()
            and _same_segment(page, start, number)
        ):
            continue
        first = page[start]
        if "damage" in first:
            for row in page[start:number]:
                place = f"{row['segment']} at byte {row['position']}"
                click.echo(f"!! {place}: {row['damage']}, {row['bytes']} bytes: {row['message']}")
        else:
            columns = [name for name in first if name != "segment"]
            click.echo(f"# {first['segment']}")
            rows = [[_shown(name, row[name]) for name in columns] for row in page[start:number]]
            print_table([name.upper() for name in columns], rows)
        start = number


def _same_segment(page: list[dict[str, Any]], start: int, number: int) -> bool:
    return bool(page[number]["segment"] == page[start]["segment"])


def _shown(name: str, value: Any) -> Any:
    if name.endswith("timestamp_ms"):
        return time_text(value)
    if name in ("key", "value") and not isinstance(value, int):
        return bytes_text(value)
    if name == "headers":
        return ",".join(f"{header}={bytes_text(content, 20)}" for header, content in value)
    return value


def _places(target: Target, what: str | None) -> Iterator[_Place]:
    from logstore.log.inspection.inspect import (
        partition_folder,
        partition_folders,
        segment_base_offset,
        segment_base_offsets,
        segment_path,
    )
    from logstore.seams.fs import OsFileSystem

    fs = OsFileSystem()
    if what is not None and os.path.isfile(what):
        base = segment_base_offset(what)
        folder = partition_folder(os.path.dirname(os.path.abspath(what)))
        if base is None or folder is None:
            raise click.UsageError(f"{what} is no segment: those are TOPIC-PARTITION/<20 digits>.log")
        yield _Place(folder, base, what)
        return
    folders = _named_folders(target, what)
    if folders is None:
        folders = []
        for place in [os.path.normpath(what)] if what is not None else target.directories():
            one = partition_folder(os.path.abspath(place))
            is_one = one is not None and segment_base_offsets(fs, place)
            folders += [one] if one is not None and is_one else partition_folders(fs, place)
    for found in folders:
        for base in segment_base_offsets(fs, found.path):
            yield _Place(found, base, segment_path(found.path, base))


def _named_folders(target: Target, what: str | None) -> list[PartitionFolder] | None:
    """The folders of the topic or partition ``what`` in the target's store; None if ``what`` is a path."""
    from logstore.errors import UnknownTopicError
    from logstore.log.inspection.inspect import partition_folders
    from logstore.seams.fs import OsFileSystem

    if what is None or target.path is None or "/" in what:
        return None
    fs = OsFileSystem()
    roots = map(os.path.normpath, target.directories())
    folders = [folder for root in roots for folder in partition_folders(fs, root)]
    named = [folder for folder in folders if what in (folder.topic, f"{folder.topic}-{folder.partition}")]
    if named or (what and os.path.isdir(what)):
        return named or None
    if _is_topic(target.path, what):
        note(f"topic {what!r} holds no segment yet")
        return []
    raise UnknownTopicError(
        f"no topic or partition of {target.path} is called {what!r}, and no file or folder is"
    )


def _is_topic(path: str, what: str) -> bool:
    """Whether the catalogue knows the topic or partition ``what``: one without records has no folder."""
    from logstore.directory.catalogue import CatalogueFile
    from logstore.errors import LogStoreError
    from logstore.seams.fs import OsFileSystem

    file = CatalogueFile(OsFileSystem(), path)
    try:
        topics = file.load().topics
    except LogStoreError:
        return False  # folders are what there is to go by
    finally:
        file.close()
    return what in topics or any(
        what == f"{name}-{number}" for name, entry in topics.items() for number in range(entry.partitions)
    )


def _batch_rows(places: list[_Place]) -> Iterator[dict[str, Any]]:
    from logstore.log.inspection.inspect import BadSpan, dump_batches
    from logstore.seams.fs import OsFileSystem

    for place in places:
        for row in dump_batches(OsFileSystem(), place.path, place.base_offset):
            if isinstance(row, BadSpan):
                yield _damage_row(place, row)
            else:
                yield {"segment": place.path, **row._asdict()}


def _record_rows(places: list[_Place], as_json: bool) -> Iterator[dict[str, Any]]:
    from logstore.cli.streams.record_json import record_fields
    from logstore.log.inspection.inspect import BadSpan, dump_records
    from logstore.seams.fs import OsFileSystem

    for place in places:
        for records in dump_records(OsFileSystem(), place.folder, place.path, place.base_offset):
            if isinstance(records, BadSpan):
                yield _damage_row(place, records)
            elif as_json:
                yield from ({"segment": place.path, **record_fields(record)} for record in records)
            else:
                yield from ({"segment": place.path, **_record_row(record)} for record in records)


def _record_row(record: Any) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": record.key,
        "value": record.value,
        "headers": record.headers,
    }


def _index_rows(places: list[_Place]) -> Iterator[dict[str, Any]]:
    from logstore.log.inspection.inspect import dump_indexes
    from logstore.seams.fs import OsFileSystem

    names = {"offset": ("last_offset", "position"), "time": ("timestamp_ms", "last_offset")}
    for place in places:
        for row in dump_indexes(OsFileSystem(), place.folder.path, place.base_offset):
            key, value = names[row.kind]
            yield {
                "segment": place.path,
                "index": row.kind,
                "entry": row.entry,
                key: row.key,
                value: row.value,
            }


def _damage_row(place: _Place, span: BadSpan) -> dict[str, Any]:
    return {
        "segment": place.path,
        "position": span.position,
        "bytes": span.length,
        "damage": span.kind,
        "message": span.message,
    }


# --- verify -----------------------------------------------------------------------------------------


@log.command()
@click.argument("topics", nargs=-1)
@target_options
@click.pass_obj
def verify(target: Target, /, topics: tuple[str, ...]) -> None:
    """Read everything (or just TOPICS) and name each fault with its file and position.

    Exit code 0: no fault; 1: faults. What the next open repairs by itself, such as the torn end that a crash
    or a writer at work leaves, is a warning and no fault.
    """
    from logstore.errors import UnknownTopicError
    from logstore.log.inspection.verify import Totals
    from logstore.log.inspection.verify_store import store_bytes, verify_store
    from logstore.seams.clock import SystemClock
    from logstore.seams.fs import OsFileSystem

    fs, roots = OsFileSystem(), [os.path.normpath(root) for root in target.directories()]
    totals = Totals()
    found: list[Fault] = []
    wanted = {root: _topics_in(root, topics, alone=len(roots) == 1) for root in roots}
    if topics and not any(wanted.values()):
        raise UnknownTopicError(f"no folder of {', '.join(roots)} belongs to a topic {' or '.join(topics)}")
    total = sum(store_bytes(fs, root, chosen) for root, chosen in wanted.items() if os.path.isdir(root))
    with progress("verifying", total or None) as totals.progress:
        for root, chosen in wanted.items():
            if topics and not chosen:
                continue  # all of them are in the broker's other directories
            for fault in verify_store(fs, root, SystemClock().boot_id(), totals, topics=chosen):
                found.append(fault)
                if not target.as_json:
                    _print_fault(fault)
    _report_verified(found, totals, target.as_json)
    if any(not fault.warning for fault in found):
        raise click.exceptions.Exit(EXIT_FAILED)


def _topics_in(root: str, topics: tuple[str, ...], *, alone: bool) -> tuple[str, ...] | None:
    """Which of ``topics`` are in one of several directories; None: all that there is."""
    from logstore.log.inspection.inspect import partition_folders
    from logstore.seams.fs import OsFileSystem

    if alone or not topics:
        return topics or None
    here = {folder.topic for folder in partition_folders(OsFileSystem(), root)}
    return tuple(name for name in topics if name in here)


def _print_fault(fault: Fault) -> None:
    place = fault.path if fault.position < 0 else f"{fault.path} at byte {fault.position}"
    click.echo(f"{'warning' if fault.warning else 'FAULT'}  {fault.kind}  {place}: {fault.message}")


def _report_verified(found: list[Fault], totals: Totals, as_json: bool) -> None:
    faults = sum(not fault.warning for fault in found)
    if as_json:
        print_json(
            {
                "clean": faults == 0,
                "faults": [fault._asdict() for fault in found if not fault.warning],
                "warnings": [fault._asdict() for fault in found if fault.warning],
                "partitions": totals.partitions,
                "segments": totals.segments,
                "batches": totals.batches,
                "records": totals.records,
                "bytes": totals.bytes,
            }
        )
        return
    read = f"{totals.records:,} records in {totals.batches:,} batches, {size_text(totals.bytes)}"
    verdict = f"{faults} faults" if faults else "no fault"
    warnings = len(found) - faults
    if warnings:
        verdict += f", {warnings} warnings"
    note(f"{verdict}: read {totals.partitions} partitions, {totals.segments} segments, {read}")


# --- salvage ----------------------------------------------------------------------------------------


@log.command()
@click.argument("source", type=click.Path(exists=True, file_okay=False))
@click.argument("new_store", metavar="TARGET", type=click.Path())
@target_options
@click.pass_obj
def salvage(target: Target, /, source: str, new_store: str) -> None:
    """Copy all that is readable of the damaged store SOURCE into the new directory TARGET.

    Records keep their offsets. Every range that is lost is listed; its offsets stay empty in the copy. SOURCE
    is only read. Exit code 0 when the copy is complete, whatever was lost.
    """
    from logstore.log.inspection.verify_store import store_bytes
    from logstore.log.recovery.salvage import salvage as run_salvage
    from logstore.seams.clock import SystemClock
    from logstore.seams.fs import OsFileSystem

    if not new_store:
        raise click.UsageError("TARGET is empty: name a new directory")
    fs, root = OsFileSystem(), os.path.normpath(source)
    with progress("copying", store_bytes(fs, root)) as advance:
        report = run_salvage(fs, root, os.path.normpath(new_store), SystemClock(), progress=advance)
    _report_salvaged(report, new_store, target.as_json)


def _report_salvaged(report: SalvageReport, new_store: str, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({"target": new_store, **asdict(report)})
        return
    if report.lost:
        click.echo("lost:")
    for lost in report.lost:
        end = "the end" if lost.end_exclusive < 0 else str(lost.end_exclusive - 1)
        click.echo(f"  {lost.topic}-{lost.partition}  offsets {lost.start} to {end}: {lost.reason}")
    for text in report.notes:
        note(f"note: {text}")
    copied = f"{report.records:,} records in {report.batches:,} batches, {size_text(report.bytes)}"
    ranges = f"{len(report.lost)} ranges lost" if report.lost else "nothing lost"
    note(f"{ranges}: copied {report.topics} topics, {report.partitions} partitions, {copied} to {new_store}")
