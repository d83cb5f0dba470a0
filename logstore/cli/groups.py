"""`logstore group`: committed offsets of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from logstore.cli.streams.output import note, print_json, print_table
from logstore.cli.target import Target, target_options
from logstore.errors import UnknownGroupError

if TYPE_CHECKING:
    from logstore.client.admin import GroupDescription, GroupMove
    from logstore.client.store_client import StoreClient

OFFSETS_TOPIC = "__consumer_offsets"


@click.group()
def group() -> None:
    """Consumer groups: list, describe, seek, delete."""


@group.command("list")
@target_options
@click.pass_obj
def list_(target: Target, /) -> None:
    """List groups with their members and how far behind they are."""
    with target.client() as store:
        found = [store.admin.describe_group(summary.group) for summary in store.admin.list_groups()]
        _note_missing(target, store, found)
    if target.as_json:
        print_json(
            [
                {
                    "group": one.group,
                    "state": one.state,
                    "members": len(one.members),
                    "partitions": len(one.partitions) + len(one.elsewhere),
                    "lag": one.lag,
                }
                for one in found
            ]
        )
        return
    rows = [
        (one.group, one.state, len(one.members), len(one.partitions) + len(one.elsewhere), one.lag)
        for one in found
    ]
    print_table(("GROUP", "STATE", "MEMBERS", "PARTITIONS", "LAG"), rows)


@group.command()
@click.argument("names", nargs=-1, required=True)
@target_options
@click.pass_obj
def describe(target: Target, /, names: tuple[str, ...]) -> None:
    """Show the groups NAMES: their members, and each partition's reader, committed offset, end and lag."""
    with target.client() as store:
        try:
            found = [store.admin.describe_group(name) for name in names]
        except UnknownGroupError:
            target.note_missing(store, [OFFSETS_TOPIC])
            raise
        _note_missing(target, store, found)
    if target.as_json:
        print_json([_description_json(one) for one in found])
        return
    for number, one in enumerate(found):
        if number:
            click.echo()
        click.echo(f"group     {one.group}")
        click.echo(f"state     {one.state}")
        click.echo(f"assignor  {one.assignor}")
        if one.members:
            print_table(
                ("MEMBER", "INSTANCE", "CLIENT", "PARTITIONS", "REVOKING"),
                [
                    (
                        member.member_id,
                        member.instance_id or "-",
                        member.client + (" (left)" if member.left else ""),
                        len(member.assigned),
                        len(member.revoking),
                    )
                    for member in one.members
                ],
            )
        rows: list[tuple[object, ...]] = [
            (
                row.topic,
                row.partition,
                "-" if row.committed is None else row.committed.offset,
                row.end_offset,
                row.lag,
                row.member or "-",
            )
            for row in one.partitions
        ]
        rows += [
            (*where, "-" if committed is None else committed.offset, "elsewhere", "-", "-")
            for where, committed in one.elsewhere.items()
        ]
        print_table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"), rows)


def _note_missing(target: Target, store: StoreClient, found: list[GroupDescription]) -> None:
    """What the answer lacks: groups of partitions of the offsets topic, and ends of partitions, elsewhere."""
    target.note_missing(
        store, [OFFSETS_TOPIC, *sorted({where.topic for one in found for where in one.elsewhere})]
    )


def _description_json(found: GroupDescription) -> dict[str, Any]:
    partitions = [
        {
            "topic": row.topic,
            "partition": row.partition,
            "member": row.member,
            "committed_offset": None if row.committed is None else row.committed.offset,
            "leader_epoch": None if row.committed is None else row.committed.leader_epoch,
            "metadata": None if row.committed is None else row.committed.metadata,
            "log_start_offset": row.log_start_offset,
            "end_offset": row.end_offset,
            "lag": row.lag,
        }
        for row in found.partitions
    ]
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client": member.client,
            "topics": list(member.topics),
            "epoch": member.epoch,
            "assigned": [list(place) for place in member.assigned],
            "revoking": [list(place) for place in member.revoking],
            "session_timeout_ms": member.session_timeout_ms,
            "left": member.left,
        }
        for member in found.members
    ]
    return {
        "group": found.group,
        "state": found.state,
        "assignor": found.assignor,
        "epoch": found.epoch,
        "members": members,
        "lag": found.lag,
        "partitions": partitions,
        "elsewhere": [
            {
                "topic": where.topic,
                "partition": where.partition,
                "committed_offset": None if committed is None else committed.offset,
            }
            for where, committed in found.elsewhere.items()
        ],
    }


@group.command()
@click.argument("name")
@click.option("--to-earliest", is_flag=True, help="To the oldest record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="To this offset.")
@click.option(
    "--to-timestamp", metavar="TIME", help="To the first record at least that new (ms or ISO 8601)."
)
@click.option("--shift", type=int, metavar="N", help="By N records; negative goes back.")
@click.option(
    "-t", "--topic", "topics", multiple=True, help="Only this topic, all its partitions; repeat for more."
)
@click.option("--execute/--dry-run", default=False, help="Do it. Without --execute it is only shown.")
@target_options
@click.pass_obj
def seek(target: Target, /, name: str, topics: tuple[str, ...], execute: bool, **where: Any) -> None:
    """Move the committed offsets of the group NAME, kept within what its logs hold.

    Nothing is changed without --execute. A group that has members is refused.
    """
    destination, shift = _destination(where)
    with target.client(write=True) as store:
        moves = store.admin.seek_group(
            name, destination, shift=shift, topics=topics or None, dry_run=not execute
        )
    _print_moves(name, moves, execute, target.as_json)


def _destination(where: dict[str, Any]) -> tuple[Any, int | None]:
    from logstore.cli.consume import parse_moment

    given = [option for option, value in where.items() if value is not None and value is not False]
    if len(given) != 1:
        options = ", ".join(f"--{option.replace('_', '-')}" for option in where)
        raise click.UsageError(f"say where to: exactly one of {options}")
    if given[0] == "shift":
        return None, where["shift"]
    if given[0] == "to_timestamp":
        return parse_moment(where["to_timestamp"], "--to-timestamp"), None
    if given[0] == "to_offset":
        return where["to_offset"], None
    return ("earliest" if given[0] == "to_earliest" else "latest"), None


def _print_moves(name: str, moves: list[GroupMove], execute: bool, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        print_json({"group": name, "executed": execute, "moves": [asdict(move) for move in moves]})
        return
    rows = [(move.topic, move.partition, move.before, move.after) for move in moves]
    print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER"), rows)
    note(f"moved group {name!r}" if execute else "nothing was changed: add --execute to do it")


@group.command()
@click.argument("name")
@target_options
@click.pass_obj
def delete(target: Target, /, name: str) -> None:
    """Forget the group NAME and its committed offsets. One that has members is refused."""
    with target.client(write=True) as store:
        store.admin.delete_group(name)
    if target.as_json:
        print_json({"group": name, "deleted": True})
    else:
        note(f"deleted group {name!r}")
