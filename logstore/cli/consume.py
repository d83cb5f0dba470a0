"""`logstore consume`: records to stdout, with or without a group that remembers where it was."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.streams.interrupts import Interrupts
from logstore.cli.streams.record_out import RecordOut
from logstore.cli.target import Target, target_options
from logstore.errors import LogStoreError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from logstore.api.backend import Backend
    from logstore.cli.streams.rendering import Renderer
    from logstore.client.consumer.consumer import Consumer
    from logstore.client.store_client import StoreClient
    from logstore.types import Record, TopicPartition

_POLL_RECORDS = 500
_POLL_S = 0.25  # how long Ctrl-C may go unseen
_COMMIT_EVERY_S = 5.0
_LONGEST_NUMBER = 1000  # digits; Python refuses to read some more


@click.command(
    epilog="""\b
Where to start (-o), in a group only for partitions without a committed offset:
  start        the oldest record (default)      end    what comes from now on
  OFFSET       this offset                      -N     the last N records of each partition
  @TIMESTAMP   the first record at least that new: ms since 1970, or ISO 8601 (UTC if it has no zone)

\b
Format tokens (-f), as in kcat; nothing is added to them:
  %t topic  %p partition  %o offset  %T time in ms  %k key  %K its length  %s value  %S its length
  %h headers (name=value, by commas)  %%  \\n \\t \\r \\\\ \\0 \\xHH     lengths are -1 for null
Without -f each value is printed with a newline. --json prints what `logstore produce --format json` takes."""
)
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "-o", "--offset", "start", default="start", show_default=True, help="Where to start; see below."
)
@click.option("-n", "--count", type=click.IntRange(1, sys.maxsize), help="Stop after so many records.")
@click.option("-e", "--exit", "exit_at_end", is_flag=True, help="Stop at the end that is there now.")
@click.option("-f", "--format", "format_text", metavar="TEXT", help="How to print a record; see below.")
@click.option("-g", "--group", help="Go on where this group was, and commit what was printed.")
@click.option(
    "-p", "--partition", "partitions", type=int, multiple=True, help="Only this one; repeat for more."
)
@target_options
@click.pass_obj
def consume(
    target: Target,
    /,
    topics: tuple[str, ...],
    start: str,
    count: int | None,
    exit_at_end: bool,
    format_text: str | None,
    group: str | None,
    partitions: tuple[int, ...],
) -> None:
    """Print the records of TOPICS, and wait for more until Ctrl-C (or -n, -e).

    With --group the position is committed for what was printed, also after Ctrl-C and a closed pipe.
    """
    renderer = _renderer(format_text, target.as_json)
    begin, last = parse_start(start)
    wanted: Any = [(topic, number) for topic in topics for number in partitions] or list(topics)
    settings = {"group": group, "start": begin, "until_end": exit_at_end}
    with Interrupts() as interrupts:
        try:
            with (
                target.client(write=group is not None) as store,
                _consumer(store, _readable(target, store, wanted), settings, last) as consumer,
            ):
                _print_records(consumer, renderer, count, group is not None, interrupts)
        except KeyboardInterrupt:
            if not interrupts.exit_code:
                raise
    if interrupts.exit_code:
        raise click.exceptions.Exit(interrupts.exit_code)


def _readable(target: Target, store: StoreClient, wanted: Any) -> Any:
    """Whole topics as those partitions of them that are in the directory, where some are not."""
    if not all(isinstance(one, str) for one in wanted):
        return wanted
    target.note_missing(store, wanted)
    if not target.partial:
        return wanted
    topics = [store.backend.topic(name) for name in wanted]
    here = [
        (one.name, number) for one in topics for number in range(one.partitions) if number not in one.missing
    ]
    return here or wanted


def _renderer(format_text: str | None, as_json: bool) -> Renderer:
    from logstore.cli.streams.record_json import encode_records
    from logstore.cli.streams.rendering import compile_format, values

    if format_text is None:
        return encode_records if as_json else values
    if as_json:
        raise click.UsageError("--format and --json exclude each other")
    try:
        return compile_format(format_text)
    except ValueError as error:
        raise click.UsageError(f"--format {format_text!r}: {error}") from None


def parse_start(text: str) -> tuple[Any, int | None]:
    """``consumer(start=...)`` for what -o says, and N for "-N". UsageError for anything else."""
    names = {
        "start": "earliest",
        "beginning": "earliest",
        "earliest": "earliest",
        "end": "latest",
        "latest": "latest",
    }
    if text in names:
        return names[text], None
    if text.startswith("@"):
        return parse_moment(text[1:], "--offset @"), None
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER:
        return ("earliest", int(digits)) if text.startswith("-") else (int(text), None)
    raise click.UsageError(f"--offset {text!r} is neither start, end, OFFSET, -N nor @TIMESTAMP")


def parse_moment(text: str, option: str) -> datetime:
    """A time in ms since 1970 or ISO 8601. UsageError names ``option``."""
    from logstore.cli.streams.rows import parse_timestamp

    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=parse_timestamp(text))
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None
    except OverflowError:
        raise click.UsageError(f"{option}: {text} lies outside the years 1 to 9999") from None


def _consumer(
    store: StoreClient, wanted: Any, settings: dict[str, Any], last: int | None
) -> Consumer[Any, Any]:
    """The consumer; for "-N" set back from the ends, where no committed offset says more."""
    consumer = store.consumer(wanted, **settings)
    if last is None:
        return consumer
    starts, ends = consumer.beginning_offsets(), consumer.end_offsets()
    for where in consumer.assignment():
        if settings["group"] is None or consumer.committed(*where) is None:
            consumer.seek(*where, start_of_last(store.backend, where, last, starts[where], ends[where]))
    return consumer


def start_of_last(backend: Backend, where: TopicPartition, count: int, start: int, end: int) -> int:
    """The offset of the ``count``-th record before ``end``, or ``start`` if there are fewer. Offsets of markers, of
    aborted records and of what compaction took are no records, so that they are counted from the end."""
    from logstore.client.reverse_reader import newest_first

    if not 0 < count < end - start:
        return start if count else end
    found = 0
    with suppress(OffsetOutOfRangeError):  # retention came past the start meanwhile
        for record in newest_first(backend, where, start, end):
            found += 1
            if found == count:
                return record.offset
    return max(start, backend.describe_partitions([where])[where].log_start_offset)


def _print_records(
    consumer: Consumer[Any, Any], renderer: Renderer, count: int | None, commits: bool, interrupts: Interrupts
) -> None:
    left = count
    printed = 0
    out = RecordOut()
    committed_s = time.monotonic()
    try:
        while left != 0 and not interrupts.exit_code:
            most = _POLL_RECORDS if left is None else min(_POLL_RECORDS, left)
            records = next(consumer.batches(most, _POLL_S), None)
            if records is None:
                break
            if records:
                printed += len(records)
                _write(consumer, records, renderer, out, interrupts)
                left = None if left is None else left - len(records)
            if commits and time.monotonic() - committed_s > _COMMIT_EVERY_S:
                consumer.commit()
                committed_s = time.monotonic()
    except LogStoreError:
        commits = commits and printed > 0  # a position that nothing was read from may be what is wrong
        raise
    finally:
        if commits:
            consumer.commit()


def _write(
    consumer: Consumer[Any, Any],
    records: Sequence[Record],
    renderer: Renderer,
    out: RecordOut,
    interrupts: Interrupts,
) -> None:
    """Print records; those that do not get out are given back, so that the position covers only what did."""
    data = renderer(records)
    try:
        out.write(data, lambda: interrupts.exit_code != 0)
    finally:
        if out.written < len(data):
            _give_back(consumer, records[_printed(records, renderer, out.written) :])


def _printed(records: Sequence[Record], renderer: Renderer, written: int) -> int:
    """How many records lie whole in the first ``written`` bytes."""
    for number, record in enumerate(records):
        written -= len(renderer([record]))
        if written < 0:
            return number
    return len(records)


def _give_back(consumer: Consumer[Any, Any], records: Sequence[Record]) -> None:
    first: dict[tuple[str, int], int] = {}
    for record in records:
        first.setdefault((record.topic, record.partition), record.offset)
    for (topic, partition), offset in first.items():
        consumer.seek(topic, partition, offset)
