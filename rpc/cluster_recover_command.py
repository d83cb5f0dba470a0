"""`logstore cluster recover`: a node goes on alone, as a majority of its cluster is gone for good."""

from __future__ import annotations

from typing import Any

import click

from logstore.cli.streams.output import note, print_json, print_table
from logstore.cli.target import Target, target_options


@click.command()
@click.option(
    "--data", metavar="DIR", type=click.Path(), required=True, help="The node's directory; it must not run."
)
@click.option("--node-id", metavar="N", type=click.IntRange(min=0), required=True, help="The node's number.")
@click.option(
    "--unclean", is_flag=True, required=True, help="Needed: records that only the lost nodes had are lost."
)
@click.option("--dry-run", is_flag=True, help="Show what the node has and what may be lost; change nothing.")
@target_options
@click.pass_obj
def recover(target: Target, /, data: str, node_id: int, unclean: bool, dry_run: bool) -> None:
    """Make one node the only one that has its partitions, when a majority of its cluster will never come back.

    Look first with --dry-run, at each node that is left, and take the one with the highest offsets. Then start that
    node with --peers naming itself alone, and give it brokers with empty directories and new numbers. The old ones must
    never come back with their directories: they would go on with another truth.
    """
    del unclean  # asked for by name, so that nobody recovers by mistake
    from logstore.seams.clock import SystemClock
    from logstore.seams.fs import OsFileSystem
    from replication.unclean import recover as carry_out

    rows = carry_out(OsFileSystem(), data, node_id, SystemClock(), dry_run=dry_run)
    if target.as_json:
        print_json([row._asdict() for row in rows])
        return
    table: list[tuple[Any, ...]] = [
        (
            f"{row.topic}-{row.partition}",
            ", ".join(map(str, row.voters)),
            row.high_watermark,
            row.log_end_offset,
        )
        for row in rows
    ]
    print_table(("PARTITION", "VOTERS", "COMMITTED UP TO", "HELD UP TO"), table)
    what = "would be" if dry_run else "are"
    note(
        f"{len(rows)} partitions {what} node {node_id}'s alone; what others acknowledged behind HELD UP TO is lost, "
        "what is held behind COMMITTED UP TO counts although it may never have been acknowledged"
    )
