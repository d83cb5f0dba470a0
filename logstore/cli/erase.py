"""`logstore topic erase-key`: every record of some keys leaves a topic, and it is proved."""

from __future__ import annotations

import sys
from typing import Any

import click

from logstore.cli.streams.failures import Failure
from logstore.cli.streams.output import note, print_json, print_table, size_text
from logstore.cli.target import Target, target_options


@click.command("erase-key")
@click.argument("name", metavar="TOPIC")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False),
    help='Keys, one a line ("-": from stdin); repeats count once.',
)
@click.option("--hex", "as_hex", is_flag=True, help="Keys are given in hexadecimal.")
@click.option("--encoding", default="utf-8", show_default=True, help="How the text of a key becomes bytes.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@target_options
@click.pass_obj
def erase_key(
    target: Target,
    /,
    name: str,
    keys: tuple[str, ...],
    key_file: str | None,
    as_hex: bool,
    encoding: str,
    yes: bool,
) -> None:
    """Remove every record that has one of the KEYs from the topic TOPIC, for good, and prove it.

    Offsets of other records do not change. Retired files of the topic go at once, and so do ends that recovery
    had cut off and set aside, if they may hold a key. Then every file is read again. Copies are out of reach:
    backups, what a consumer has read, a file that another process has open.
    """
    texts = [*keys, *(_lines(key_file) if key_file is not None else [])]
    if not texts:
        raise click.UsageError("which keys? Name them, or give --key-file FILE")
    wanted = sorted({key_bytes(text, as_hex, encoding) for text in texts})
    with target.client(write=True) as store:
        store.admin.describe_topic(name)
        if not yes:
            _ask(name, len(wanted))
        report = store.admin.erase_keys(name, wanted)
    if target.as_json:
        from dataclasses import asdict

        print_json({**asdict(report), "records_removed": report.records_removed})
        return
    rows: list[tuple[Any, ...]] = []
    for row in report.partitions:
        rows.append((row.partition, row.records_removed, row.segments_rewritten, len(row.removed_files)))
        for file in row.removed_files:
            note(f"removed {name}-{row.partition}/{file}")
    print_table(("PARTITION", "RECORDS ERASED", "SEGMENTS REWRITTEN", "FILES REMOVED"), rows)
    read = size_text(sum(row.scanned_bytes for row in report.partitions))
    note(f"{report.records_removed:,} records of {report.keys} keys erased; proved by reading {read} again")


def _ask(name: str, count: int) -> None:
    what = f"{count} key{'s' if count != 1 else ''} from {name!r}"
    if not sys.stdin.isatty():
        raise click.UsageError(f"erasing {what} needs --yes where nobody can be asked")
    click.confirm(f"Erase every record of {what}? There is no way back.", abort=True, err=True)


def _lines(path: str) -> list[str]:
    """Lines as the command line would give them; the last line may lack its end."""
    try:
        with click.open_file(path, "r", encoding="utf-8", errors="surrogateescape") as file:
            return [line.rstrip("\r\n") for line in file]
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error


def key_bytes(text: str, as_hex: bool, encoding: str) -> bytes:
    try:
        if as_hex:
            return bytes.fromhex(text)
        # Bytes of the command line that are no UTF-8 come as surrogates, and are meant as they are.
        return text.encode(encoding, "surrogateescape")
    except LookupError:
        raise click.UsageError(f"--encoding {encoding}: there is no such encoding") from None
    except ValueError as error:
        raise click.UsageError(f"key {text!r}: {error}") from None
