"""`logstore topic get`: the latest value of a key."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from logstore.cli.erase import key_bytes
from logstore.cli.streams.failures import Failure
from logstore.cli.streams.output import print_json
from logstore.cli.streams.record_json import record_fields
from logstore.cli.streams.rows import parse_timestamp
from logstore.cli.target import Target, target_options

if TYPE_CHECKING:
    from logstore.client.table.table import KeyTable

_NO_LIMIT_BYTES = 2**63 - 1  # values stay on the disk, keys are in memory


@click.command("get")
@click.argument("name", metavar="TOPIC")
@click.argument("key")
@click.option("--as-of", metavar="TIME", help="As it was then: ms since 1970, or 2026-01-31T12:00:00+01:00.")
@click.option("--any-policy", is_flag=True, help="Also of a topic that does not compact.")
@click.option("--hex", "as_hex", is_flag=True, help="The key is given in hexadecimal.")
@click.option("--encoding", default="utf-8", show_default=True, help="How the text of the key becomes bytes.")
@target_options
@click.pass_obj
def get(
    target: Target, /, name: str, key: str, as_of: str | None, any_policy: bool, as_hex: bool, encoding: str
) -> None:
    """Print the latest value of KEY in the compacted topic TOPIC, as it is, and a newline; with --json its record.

    The topic is read from its beginning. Exit code 1 if the key has no value, or was deleted.
    """
    wanted = key_bytes(key, as_hex, encoding)
    moment = None if as_of is None else _moment(as_of)
    with target.client() as store:
        table: KeyTable[bytes] = store.table(name, max_memory_bytes=_NO_LIMIT_BYTES, any_policy=any_policy)
        view = table.frozen() if moment is None else table.as_of(moment)
        try:
            partition, offset = view.place(wanted)
        except KeyError:
            raise Failure(f"topic {name!r} has no value for key {key!r}") from None
        if target.as_json:
            with store.consumer([(name, partition)], start=offset, until_end=True) as consumer:
                for record in consumer.poll(max_records=1):
                    print_json(record_fields(record))
            return
        value = view[wanted]
    sys.stdout.buffer.write(value + b"\n")


def _moment(text: str) -> datetime:
    try:
        return datetime.fromtimestamp(parse_timestamp(text) / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise click.UsageError(f"--as-of {text!r}: {error}") from None
