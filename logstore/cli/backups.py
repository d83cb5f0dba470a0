"""`logstore backup` and `logstore restore`: a consistent copy beside live writers, and the way back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from logstore.cli.streams.output import note, print_json, progress, size_text
from logstore.cli.target import Target, target_options

if TYPE_CHECKING:
    from logstore.directory.backup import BackupReport


@click.command()
@click.argument("directory", type=click.Path())
@click.option("--copy", is_flag=True, help="Copy every byte; share none by hard links.")
@click.option("--topic", "topics", multiple=True, help="Only this topic (may be repeated).")
@target_options
@click.pass_obj
def backup(target: Target, /, directory: str, copy: bool, topics: tuple[str, ...]) -> None:
    """Copy the store at --path to the new DIRECTORY, while others may be writing to it.

    The copy shows all topics, groups and transactions as they were at one moment; writers wait for nothing.
    Transactions that were decided then are whole in it, the others are aborted there. Segments that never
    change again are hard-linked where the file system can (so they take no room, and share the fate of one
    disk), else copied. The copy opens like a store that was closed in order; `logstore restore` brings it
    back.
    """
    from logstore.log.inspection.verify_store import store_bytes
    from logstore.seams.fs import OsFileSystem

    if not directory:
        raise click.UsageError("DIRECTORY is empty: name a new directory")
    root = os.path.normpath(target.directory())
    total = store_bytes(OsFileSystem(), root, topics or None)
    with target.open() as store, progress("copying", total) as advance:
        report = store.backup(directory, topics=topics or None, link=not copy, progress=advance)
    _report(report, directory, target.as_json)
    if not target.as_json:
        note(f"check it with: logstore --path {directory} log verify")


@click.command()
@click.argument("source", type=click.Path(exists=True, file_okay=False))
@click.argument("directory", type=click.Path())
@click.option(
    "--link", is_flag=True, help="Share closed segments with the backup by hard links; copy no more."
)
@click.option("--topic", "topics", multiple=True, help="Only this topic (may be repeated).")
@target_options
@click.pass_obj
def restore(target: Target, /, source: str, directory: str, link: bool, topics: tuple[str, ...]) -> None:
    """Put the backup SOURCE into the new DIRECTORY, which may then be used like any store.

    All of SOURCE is read and verified first: if it has a fault nothing is written (exit code 1). A DIRECTORY
    that is not empty is refused. SOURCE stays as it is.
    """
    from logstore.log.inspection.verify_store import store_bytes
    from logstore.seams.fs import OsFileSystem
    from logstore.store import restore as run_restore

    if not directory:
        raise click.UsageError("DIRECTORY is empty: name a new directory")
    total = 2 * store_bytes(OsFileSystem(), os.path.normpath(source), topics or None)
    with progress("verifying and copying", total) as advance:
        report = run_restore(source, directory, topics=topics or None, link=link, progress=advance)
    _report(report, directory, target.as_json)


def _report(report: BackupReport, directory: str, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({"directory": directory, **asdict(report)})
        return
    sizes = f"{size_text(report.copied_bytes)} copied, {size_text(report.linked_bytes)} linked"
    note(f"{report.records:,} records of {report.topics} topics, {report.partitions} partitions: {sizes}")
    if report.finished_transactions or report.aborted_transactions:
        counts = f"{report.finished_transactions} committed or aborted before and not marked everywhere, now they are"
        note(
            f"transactions under way: {counts}; {report.aborted_transactions} not decided, aborted in the copy"
        )
    for name in report.skipped_topics:
        note(f"note: topic {name!r} was deleted meanwhile and is not in the copy")
