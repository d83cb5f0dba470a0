"""`logstore produce`: files or stdin into a topic."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import click

from logstore.cli.streams.failures import Failure, InputError
from logstore.cli.streams.interrupts import Interrupts
from logstore.cli.streams.output import note, print_json, progress, rate_text
from logstore.cli.target import Target, check_partition, target_options
from logstore.config import CODECS
from logstore.errors import LogStoreError
from logstore.types import Acks

if TYPE_CHECKING:
    from logstore.cli.placement import Placement
    from logstore.cli.streams.rows import ByteSource, RowChunk, RowFormat
    from logstore.client.producer.delivery import DeliveryGroup
    from logstore.client.producer.producer import Producer
    from logstore.client.producer.settings import ProducerOptions
    from logstore.client.store_client import StoreClient

_GROUPS_IN_FLIGHT = 32  # chunks whose outcome is not asked for yet; the producer bounds their bytes
MAX_BATCH_BYTES = 32 << 20  # what the producer's buffer takes
_ACKS: dict[str, Acks] = {"0": 0, "1": 1, "all": "all"}
_DELIVERY_TIMEOUT_MS = 40_000  # a person waits: longer than for a lock, not much longer
_DISK_FULL_TIMEOUT_MS = 2_000  # and a full disk is one to be told of
_NAMED_ROW = re.compile(r"row (\d+) ")  # how the producer names the row of a send_many that it refuses


@dataclass(slots=True)
class Landed:
    """What was acknowledged: per partition the first offset (-1: the log forgot it), the end, and how many.
    ``skipped``: rows that a named import had sent before; None without a name. ``last``: the input and the line of
    the last row that was sent."""

    records: int = 0
    last: tuple[str, int] | None = None
    skipped: int | None = None
    ranges: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, group: DeliveryGroup) -> None:
        """Wait for the group. Its error is raised, but what is in of it is counted first."""
        try:
            group.result()
            self.records += len(group)
        except LogStoreError:
            self.records += sum(end - start for _, _, start, end in group.landed())
            raise
        finally:
            for _, partition, start, end in group.landed():
                low, high, count = self.ranges.get(partition, (start, end, 0))
                first = max(low, start) if min(low, start) < 0 else min(low, start)
                self.ranges[partition] = (first, max(high, end), count + end - start)


@click.command(
    epilog="""\b
Formats (--format):
  lines  each line is a value, without its newline; no key
  kv     KEY<separator>VALUE on each line; the separator is a tab unless --separator says else
         (there \\t \\\\ \\0 \\xHH are as in C)
  json   one object on each line, as `logstore consume --json` prints it
  csv    a header row, then records: the value is the row as JSON; --key-column names the key
In kv and csv an empty key is null. Bytes are taken as they are."""
)
@click.argument("topic")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "-f", "--format", "format_name", type=click.Choice(["lines", "kv", "json", "csv"]), help="See below."
)
@click.option("-k", "--key-column", metavar="NAME", help="csv: the column that is the key.")
@click.option("--timestamp-column", metavar="NAME", help="csv: the record's time, ms since 1970 or ISO 8601.")
@click.option("--null-key", metavar="TEXT", help='kv, csv: this key is no key, as in "NA".')
@click.option(
    "-s",
    "--separator",
    metavar="TEXT",
    help="kv: between key and value; csv: between fields.",
)
@click.option("--create", is_flag=True, help="Create the topic if there is none, and the store.")
@click.option("--partitions", type=int, help="With --create: how many (1 if not given).")
@click.option("-p", "--partition", type=int, help="Put all records into this partition.")
@click.option("--keep-partitions", is_flag=True, help="json: into the partition that each line names.")
@click.option("-z", "--compression", type=click.Choice(CODECS), help="Codec; the topic's if not given.")
@click.option(
    "--name",
    metavar="NAME",
    help="An import that goes on where it was when it is run again, also after kill -9: no record is lost or "
    "sent twice. Give the same input, from its start, and the same options.",
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--batch-bytes",
    type=click.IntRange(1, MAX_BATCH_BYTES),
    default=256 << 10,
    help="Largest batch.",
    show_default=True,
)
@target_options
@click.pass_obj
def produce(
    target: Target,
    /,
    topic: str,
    files: tuple[str, ...],
    create: bool,
    partitions: int | None,
    partition: int | None,
    compression: str | None,
    name: str | None,
    acks: str,
    batch_bytes: int,
    **format_options: Any,
) -> None:
    """Send the records of FILES (or of stdin, also as "-") to TOPIC.

    All that was read before a bad line is sent; the line is named, with its file. So is the last line that was sent
    before Ctrl-C.
    """
    row_format = _row_format(format_options, target.as_json)
    if partitions is not None and not create:
        raise click.UsageError("--partitions goes with --create")
    if partition is not None and row_format.keep_partitions:
        raise click.UsageError("--partition and --keep-partitions exclude each other")
    if name is not None and acks != "all":
        raise click.UsageError(f"--name does not go with --acks {acks}: only what is durable is counted")
    settings: ProducerOptions = {
        "name": name,
        "acks": _ACKS[acks],
        "compression": compression,
        "batch_bytes": batch_bytes,
        "delivery_timeout_ms": target.patience_ms(_DELIVERY_TIMEOUT_MS),
        "disk_full_timeout_ms": _DISK_FULL_TIMEOUT_MS,
    }
    with Interrupts() as interrupts, target.client(write=True, create=create) as store:
        if create and topic not in store.admin.list_topics():
            store.admin.create_topic(topic, partitions=1 if partitions is None else partitions)
        if partition is not None:
            check_partition(store.backend, topic, partition)  # before anything is read
        else:
            store.backend.topic(topic)
        landed = Landed()
        start_s = time.monotonic()
        try:
            with store.producer(**settings) as producer:
                placement = None if name is None else _placement(store, producer, topic, partition, landed)
                sender = RowSender(producer, topic, partition, landed, placement)
                _send_files(sender, files or ("-",), row_format, interrupts)
                sender.check_whole()
        finally:  # whatever stopped it, what is in is reported
            _report(topic, landed, time.monotonic() - start_s, target.as_json, interrupts)
    interrupts.check()


def _placement(
    store: StoreClient, producer: Producer[bytes, bytes], topic: str, partition: int | None, landed: Landed
) -> Placement:
    """How a named import deals its rows over the topic, and what of them is in."""
    from logstore.cli.placement import Placement

    metadata = store.backend.topic(topic)
    spread = producer.spread(topic)
    if spread != metadata.partitions and partition is None:
        note(
            f"rows go to partitions 0 to {spread - 1} of {metadata.partitions}, as when producer "
            f"{producer.name!r} began"
        )
    landed.skipped = 0
    return Placement(
        metadata.partitioner, spread, partition, lambda number: producer.last_sequence(topic, number)
    )


def _row_format(given: dict[str, Any], as_json: bool) -> RowFormat:
    from logstore.cli.streams.rows import RowFormat

    name = given["format_name"] or ("json" if as_json else "lines")
    only = {
        "key_column": ("csv",),
        "timestamp_column": ("csv",),
        "null_key": ("kv", "csv"),
        "separator": ("kv", "csv"),
        "keep_partitions": ("json",),
    }
    for option, formats in only.items():
        if given[option] not in (None, False) and name not in formats:
            text = f"--{option.replace('_', '-')} goes with --format {' or '.join(formats)}, not with {name}"
            raise click.UsageError(text)
    separator = _separator(given["separator"])
    if separator == "" or (name == "kv" and separator is not None and "\n" in separator):
        raise click.UsageError("--separator is at least one character, and no line end")
    if name == "csv" and separator is not None and (len(separator) != 1 or separator in '\r\n"'):
        raise click.UsageError("--separator of a CSV is one character, and neither a line end nor a quote")
    return RowFormat(name=name, **{**{option: given[option] for option in only}, "separator": separator})


def _separator(text: str | None) -> str | None:
    from logstore.cli.streams.rendering import unescaped

    try:
        return None if text is None else unescaped(text)
    except ValueError as error:
        raise click.UsageError(f"--separator {text!r}: {error}") from None


def _send_files(
    sender: RowSender, files: tuple[str, ...], row_format: RowFormat, interrupts: Interrupts
) -> None:
    with progress("sending", _total_bytes(files)) as advance:
        for name in files:
            with _opened(name, advance, interrupts) as stream:
                sender.send(stream, "stdin" if name == "-" else name, row_format)


class RowSender:
    """Rows of an input into one topic, a bounded number of chunks ahead of their acknowledgement.

    ``partition``: where all rows go; None: the partitioner's choice. What is in is added to ``landed``.
    ``placement``: of a named import, which says where its rows go instead.
    """

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        topic: str,
        partition: int | None,
        landed: Landed,
        placement: Placement | None = None,
    ) -> None:
        self._placement = placement
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._landed = landed
        self._waiting: deque[DeliveryGroup] = deque()

    def send(self, stream: ByteSource, source: str, row_format: RowFormat) -> None:
        """All rows of ``stream``, acknowledged when it returns. InputError names a bad line of ``source``;
        what came before it is sent."""
        from logstore.cli.streams.rows import read_rows

        try:
            for chunk in read_rows(stream, source, row_format):
                for part, partition in self._by_partition(chunk):
                    self._send_chunk(part, partition, source)
                self._landed.last = (source, chunk.lines[-1])
                while len(self._waiting) > _GROUPS_IN_FLIGHT:
                    self._landed.add(self._waiting.popleft())
        finally:
            self._settle()

    def _settle(self) -> None:
        """Count what is in of all that is under way; then the first failure is raised."""
        failure: LogStoreError | None = None
        while self._waiting:
            try:
                self._landed.add(self._waiting.popleft())
            except LogStoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _by_partition(self, chunk: RowChunk) -> Iterator[tuple[RowChunk, int | None]]:
        """The rows by the partition that their lines name, if that counts; of a named import the new ones."""
        if self._placement is not None:
            yield from self._placement.new_rows(chunk)
            self._landed.skipped = self._placement.skipped
            return
        if chunk.partitions is None or self._partition is not None:
            yield chunk, self._partition
            return
        for wanted in sorted(set(chunk.partitions), key=lambda number: -1 if number is None else number):
            places = [place for place, number in enumerate(chunk.partitions) if number == wanted]
            rows = [chunk.rows[place] for place in places]
            yield chunk._replace(rows=rows, lines=[chunk.lines[place] for place in places]), wanted

    def check_whole(self) -> None:
        """At the input's end. Failure where less came than the named import had sent before."""
        missing = {} if self._placement is None else self._placement.missing()
        for partition, count in missing.items():
            raise Failure(
                f"partition {partition} of {self._topic!r} holds {count:,} more records of producer "
                f"{self._producer.name!r} than this input has rows for it (give the input of the first run, from "
                "its start, with the same options; or another --name for another input)"
            )

    def _send_chunk(self, chunk: RowChunk, partition: int | None, source: str) -> None:
        """Send rows; a refused row is named by its line, after those before it were sent."""
        send_many = self._producer.send_many
        try:
            self._waiting.append(send_many(self._topic, chunk.rows, partition=partition))
        except LogStoreError as error:
            match = _NAMED_ROW.match(error.message)
            if match is None:
                raise
            index = int(match[1])
            if index:
                self._waiting.append(send_many(self._topic, chunk.rows[:index], partition=partition))
            reason = _NAMED_ROW.sub("the record ", str(error), count=1)
            raise InputError(source, chunk.lines[index], reason) from error


def _total_bytes(files: tuple[str, ...]) -> int | None:
    """Bytes of all files, None if one is a pipe."""
    total = 0
    for name in files:
        if name == "-" or not os.path.isfile(name):
            return None
        total += os.path.getsize(name)
    return total


class _CountedStream:
    """Tells the progress bar what was read; the one place where a signal ends the command."""

    def __init__(
        self, stream: ByteSource, name: str, advance: Callable[[int], None], interrupts: Interrupts
    ) -> None:
        self._interrupts = interrupts
        self._stream = stream
        self._name = name
        self._advance = advance

    def read1(self, size: int = -1, /) -> bytes:
        try:
            with self._interrupts.waiting():
                data = self._stream.read1(size)
        except OSError as error:
            raise Failure(f"cannot read {self._name}: {error.strerror or error}") from error
        self._advance(len(data))
        return data


@contextmanager
def _opened(name: str, advance: Callable[[int], None], interrupts: Interrupts) -> Iterator[ByteSource]:
    if name == "-":
        yield _CountedStream(cast("ByteSource", sys.stdin.buffer), "stdin", advance, interrupts)
        return
    try:
        file = open(name, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise Failure(f"cannot read {name}: {error.strerror or error}") from error
    with file:
        yield _CountedStream(file, name, advance, interrupts)


def _report(topic: str, landed: Landed, seconds: float, as_json: bool, interrupts: Interrupts) -> None:
    last = landed.last if interrupts.exit_code else None
    ranges = sorted(landed.ranges.items())
    if as_json:
        print_json(
            {
                "topic": topic,
                "records": landed.records,
                **({} if landed.skipped is None else {"skipped": landed.skipped}),
                "seconds": round(seconds, 3),
                **({} if last is None else {"last_sent": {"file": last[0], "line": last[1]}}),
                "partitions": [
                    {"partition": number, "first_offset": low, "end_offset": high, "records": count}
                    for number, (low, high, count) in ranges
                ],
            }
        )
        return
    rate = rate_text(landed.records, seconds)
    note(f"{landed.records:,} records to {topic!r} in {seconds:.2f} s ({rate})")
    if landed.skipped:
        note(f"  {landed.skipped:,} rows were in already and skipped")
    for number, (low, high, count) in ranges:
        if low >= 0:
            note(f"  partition {number}: offsets {low} to {high - 1} ({count:,} records)")
    if last is not None:
        note(f"  interrupted: the record of line {last[1]:,} of {last[0]} is the last that was sent")
