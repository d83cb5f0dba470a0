"""`logstore topic`: create, list, describe, alter, delete, trim, add-partitions.

``get`` is in ``get.py``, ``erase-key`` in ``erase.py``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.erase import erase_key
from logstore.cli.get import get
from logstore.cli.streams.output import note, print_json, print_table, size_text, time_text
from logstore.cli.streams.record_json import LineError
from logstore.cli.streams.rows import parse_timestamp
from logstore.cli.target import Target, check_partition, target_options

if TYPE_CHECKING:
    from logstore.types import TopicDescription


@click.group()
def topic() -> None:
    """Topics: create, list, describe, alter, delete, trim, add-partitions, get, erase-key."""


topic.add_command(erase_key)
topic.add_command(get)


def parse_settings(pairs: tuple[str, ...]) -> dict[str, str]:
    """``key=value`` texts as a dict. UsageError for one without "="."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--config {pair!r} is not key=value")
        if key.strip() in settings:
            raise click.UsageError(f"--config {key.strip()} is given twice")
        settings[key.strip()] = value.strip()
    return settings


def settings_help() -> str:
    """The table of topic settings, for the end of a help text."""
    from logstore.config import SETTINGS

    width = max(map(len, SETTINGS))
    lines = [f"  {key.ljust(width)}  {row.doc} [{row.default}]" for key, row in SETTINGS.items() if row.field]
    return "\b\nSettings for --config, with their defaults:\n" + "\n".join(lines)


class _WithSettings(click.Command):
    """A command whose help ends with the topic settings; the table is only read for that."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = settings_help()
        super().format_epilog(ctx, formatter)


@topic.command(cls=_WithSettings)
@click.argument("name")
@click.option("-p", "--partitions", type=int, default=1, show_default=True, help="How many partitions.")
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="On how many brokers of a cluster each partition is.  [default: 3, or all where there are fewer]",
)
@click.option(
    "-c", "--config", "pairs", metavar="KEY=VALUE", multiple=True, help="A setting; repeat for more."
)
@click.option("--if-not-exists", is_flag=True, help="A topic of that name is fine, and is left as it is.")
@target_options
@click.pass_obj
def create(
    target: Target,
    /,
    name: str,
    partitions: int,
    replication_factor: int | None,
    pairs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create the topic NAME; the store too, if there is none at --path."""
    from logstore.errors import TopicExistsError

    settings = parse_settings(pairs)
    with target.client(write=True, create=True) as store:
        created = True
        try:
            store.admin.create_topic(
                name, partitions=partitions, config=settings, replication_factor=replication_factor
            )
        except TopicExistsError:
            if not if_not_exists:
                raise
            created = False
        if target.as_json:
            print_json({**description_json(store.admin.describe_topic(name)), "created": created})
        else:
            text = f"created topic {name!r} with" if created else f"topic {name!r} exists, asked for"
            note(f"{text} {partitions} partition{'s' if partitions != 1 else ''}")


@topic.command("list")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@target_options
@click.pass_obj
def list_(target: Target, /, internal: bool) -> None:
    """List topics with their partitions, records and sizes."""
    with target.client() as store:
        names = sorted(store.admin.list_topics(internal=internal))
        found = [store.admin.describe_topic(name) for name in names]
        target.note_missing(store, names)
    if target.as_json:
        print_json([description_json(description) for description in found])
        return
    rows = [
        (
            description.name,
            len(description.partitions) + len(description.missing),
            sum(row.high_watermark - row.log_start_offset for row in description.partitions),
            size_text(sum(row.size_bytes for row in description.partitions)),
        )
        for description in found
    ]
    print_table(("TOPIC", "PARTITIONS", "RECORDS", "SIZE"), rows)


@topic.command()
@click.argument("names", nargs=-1, required=True)
@target_options
@click.pass_obj
def describe(target: Target, /, names: tuple[str, ...]) -> None:
    """Show the topics NAMES: id, settings, owner, and each partition's offsets and files."""
    with target.client() as store:
        found = [store.admin.describe_topic(name) for name in names]
        target.note_missing(store, names)
    if target.as_json:
        print_json([description_json(description) for description in found])
        return
    for number, description in enumerate(found):
        if number:
            click.echo()
        _print_description(description)


def _print_description(description: TopicDescription) -> None:
    click.echo(f"topic     {description.name}{' (internal)' if description.internal else ''}")
    click.echo(f"id        {description.topic_id}")
    click.echo(f"owner     {description.owner or 'nobody'}")
    settings = ", ".join(f"{key}={value}" for key, value in sorted(description.config.items()))
    unset = "defaults" if description.config_known else "not known: the metadata log is in another directory"
    click.echo(f"settings  {settings or unset}")
    if description.missing:
        click.echo(f"elsewhere partitions {', '.join(map(str, description.missing))}")
    columns = ("PARTITION", "START", "STABLE", "HIGH WATERMARK", "END", "EPOCH", "SEGMENTS", "SIZE")
    rows = [
        (
            row.partition,
            row.log_start_offset,
            row.last_stable_offset,
            row.high_watermark,
            row.log_end_offset,
            row.leader_epoch,
            row.segments,
            size_text(row.size_bytes),
        )
        for row in description.partitions
    ]
    print_table(columns, rows)
    _print_compaction(description)


def _print_compaction(description: TopicDescription) -> None:
    """How far each partition is clean, what is under way, and what went wrong."""
    compacting = [(row.partition, row.compaction) for row in description.partitions if row.compaction]
    if not compacting:
        return
    rows = [
        (
            partition,
            found.cleaner_point,
            size_text(found.dirty_bytes),
            f"{found.dirty_ratio:.0%}",
            found.running and f"{found.running.phase} {size_text(found.running.bytes_done)}",
            found.last and time_text(found.last.finished_ms),
            found.last and f"{found.last.records_before} to {found.last.records_after} records",
        )
        for partition, found in compacting
    ]
    click.echo()
    print_table(("PARTITION", "CLEAN TO", "DIRTY", "RATIO", "RUNNING", "LAST", "KEPT"), rows)
    for partition, found in compacting:
        if found.error is not None:
            click.echo(
                f"partition {partition} failed, tried again in {found.retry_in_s or 0:.0f} s: {found.error}"
            )


def description_json(description: TopicDescription) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(description)


@topic.command(cls=_WithSettings)
@click.argument("name")
@click.option("-c", "--config", "pairs", metavar="KEY=VALUE", multiple=True, help="Set it; repeat for more.")
@click.option("-d", "--delete-config", "removed", metavar="KEY", multiple=True, help="Put it to its default.")
@target_options
@click.pass_obj
def alter(target: Target, /, name: str, pairs: tuple[str, ...], removed: tuple[str, ...]) -> None:
    """Change settings of the topic NAME; a process that owns it obeys within moments."""
    change: dict[str, str | None] = {**parse_settings(pairs), **dict.fromkeys(removed)}
    both = sorted({key for key in removed if change[key] is None} & parse_settings(pairs).keys())
    if both:
        raise click.UsageError(f"{both[0]} is given both to --config and to --delete-config")
    if not change:
        raise click.UsageError("nothing to change: say --config KEY=VALUE or --delete-config KEY")
    with target.client(write=True) as store:
        store.admin.alter_topic(name, change)
        description = store.admin.describe_topic(name)
    if target.as_json:
        print_json(description_json(description))
    else:
        settings = ", ".join(f"{key}={value}" for key, value in sorted(description.config.items()))
        note(f"topic {name!r} now has {settings or 'default settings'}")


@topic.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@target_options
@click.pass_obj
def delete(target: Target, /, name: str, yes: bool) -> None:
    """Delete the topic NAME with all its records. There is no way back."""
    with target.client(write=True) as store:
        description = store.admin.describe_topic(name)
        records = sum(row.high_watermark - row.log_start_offset for row in description.partitions)
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError(
                    f"deleting {name!r} ({records} records) needs --yes where nobody can be asked"
                )
            click.confirm(f"Delete topic {name!r} with {records} records?", abort=True, err=True)
        store.admin.delete_topic(name)
    if target.as_json:
        print_json({"topic": name, "deleted": True, "records": records})
    else:
        note(f"deleted topic {name!r} with {records} records")


@topic.command("trim")
@click.argument("name")
@click.option("-p", "--partition", type=int, help="Only this partition.  [default: all]")
@click.option("--before-offset", type=int, help="Delete records before this offset; -1: all that is visible.")
@click.option("--before-timestamp", help="Delete records before this time (ISO 8601, or ms since 1970).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, on a terminal.")
@target_options
@click.pass_obj
def trim(
    target: Target,
    /,
    name: str,
    partition: int | None,
    before_offset: int | None,
    before_timestamp: str | None,
    yes: bool,
) -> None:
    """Delete the oldest records of the topic NAME: its partitions then start later.

    Readers see the new start at once, also after a restart; the files go when file.delete.delay.ms is over, on a
    full disk at once.
    """
    if (before_offset is None) == (before_timestamp is None):
        raise click.UsageError("give one of --before-offset and --before-timestamp")
    when_ms = None
    if before_timestamp is not None:
        try:
            when_ms = parse_timestamp(before_timestamp)
        except LineError as error:
            raise click.UsageError(f"--before-timestamp: {error}") from None
    with target.client(write=True) as store:
        if partition is not None:
            check_partition(store.backend, name, partition)
        places = range(store.backend.topic(name).partitions) if partition is None else [partition]
        if when_ms is not None:
            from logstore.types import TopicPartition

            wanted = [TopicPartition(name, place) for place in places]
            found = store.backend.list_offsets(wanted, when_ms, "read_uncommitted")
            before = {at.partition: -1 if it.offset is None else it.offset for at, it in found.items()}
        else:
            before = dict.fromkeys(places, before_offset if before_offset is not None else -1)
        if not yes and sys.stdin.isatty():
            click.confirm(f"Delete the oldest records of {name!r}?", abort=True, err=True)
        moved = store.admin.delete_records(name, before)
    rows = [
        {"topic": place.topic, "partition": place.partition, "log_start_offset": start}
        for place, start in moved.items()
    ]
    if target.as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(["PARTITION", "STARTS AT"], [[row["partition"], row["log_start_offset"]] for row in rows])


@topic.command("add-partitions")
@click.argument("name")
@click.option("-t", "--total", type=int, required=True, help="How many partitions there are to be in all.")
@click.option("--allow-keyed", is_flag=True, help="Also if it has keyed records: their keys then map anew.")
@target_options
@click.pass_obj
def add_partitions(target: Target, /, name: str, total: int, allow_keyed: bool) -> None:
    """Give the topic NAME more partitions."""
    with target.client(write=True) as store:
        store.admin.add_partitions(name, total, allow_keyed=allow_keyed)
        description = store.admin.describe_topic(name)
    if target.as_json:
        print_json(description_json(description))
    else:
        note(f"topic {name!r} now has {len(description.partitions)} partitions")
