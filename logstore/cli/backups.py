"""`logstore backup`: a consistent copy beside live writers."""

from __future__ import annotations

import os

import click

from logstore.cli.output import note, print_json, progress, size_text
from logstore.cli.target import Target, target_options


@click.command()
@click.argument("directory", type=click.Path())
@click.option("--copy", is_flag=True, help="Copy every byte; share none by hard links.")
@target_options
@click.pass_obj
def backup(target: Target, /, directory: str, copy: bool) -> None:
    """Copy the store at --path to the new DIRECTORY, while others may be writing to it.

    Each partition comes up to its last stable offset. Segments that never change again are hard-linked where
    the file system can (so they take no room, and share the fate of one disk), else copied. The copy opens
    like a store that was closed in order.
    """
    from dataclasses import asdict

    from logstore.directory.backup import backup as run_backup
    from logstore.log.inspection.verify_store import store_bytes
    from logstore.seams.clock import SystemClock
    from logstore.seams.fs import OsFileSystem

    if not directory:
        raise click.UsageError("DIRECTORY is empty: name a new directory")
    root = os.path.normpath(target.directory())
    fs = OsFileSystem()
    with target.open() as store, progress("copying", store_bytes(fs, root)) as advance:
        place = os.path.normpath(directory)
        report = run_backup(fs, root, place, SystemClock(), store.partition, link=not copy, progress=advance)
    if target.as_json:
        print_json({"directory": directory, **asdict(report)})
        return
    sizes = f"{size_text(report.copied_bytes)} copied, {size_text(report.linked_bytes)} linked"
    note(f"{report.records:,} records of {report.topics} topics, {report.partitions} partitions: {sizes}")
    for name in report.skipped_topics:
        note(f"note: topic {name!r} was deleted meanwhile and is not in the copy")
    note(f"check it with: logstore --path {directory} log verify")
