"""`logstore demo`: real records go into partitions on disk and come out through a consumer that remembers."""

from __future__ import annotations

import csv
import json
import os
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from logstore.cli.streams.failures import Failure
from logstore.cli.streams.output import print_json, print_table, rate_text, size_text, time_text
from logstore.cli.target import Target, target_options

if TYPE_CHECKING:
    from logstore.cli.produce import Landed
    from logstore.cli.streams.rows import RowFormat
    from logstore.client.consumer.consumer import Consumer
    from logstore.store import LogStore
    from logstore.types import Record

DEFAULT_DIR = "logstore-demo"
_POLL_RECORDS = 5000
_MOST_KEYS = 100_000  # keys counted for the example of order; memory stays bounded for any file
_MOST_FILES = 24


@dataclass(slots=True)
class _Reading:
    """What consumers of the demo saw, all together; checks that no record is missed or seen twice."""

    records: int = 0
    keys: Counter[bytes] = field(default_factory=Counter)
    next_offsets: dict[int, int] = field(default_factory=dict)

    def add(self, records: list[Record]) -> None:
        for record in records:
            due = self.next_offsets.get(record.partition, 0)
            if record.offset != due:
                raise Failure(f"partition {record.partition} gave offset {record.offset} where {due} was due")
            self.next_offsets[record.partition] = due + 1
            if record.key is not None and len(self.keys) < _MOST_KEYS:
                self.keys[record.key] += 1
        self.records += len(records)


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--dir", "directory", metavar="DIR", type=click.Path(file_okay=False), help=f"Default: ./{DEFAULT_DIR}"
)
@click.option(
    "-k", "--key-column", metavar="NAME", help="The CSV's key column (default: tailnum, or the first)."
)
@click.option("--partitions", type=click.IntRange(min=1), default=3, show_default=True)
@target_options
@click.pass_obj
def demo(
    target: Target, /, file: str | None, directory: str | None, key_column: str | None, partitions: int
) -> None:
    """See it work: FILE (a CSV, or any text by lines), or one day of real flights that ships with logstore.

    Creates a keyed topic, produces, consumes in a group, stops half way, goes on where it was in a new
    consumer, and shows lag, throughput and the files. A store that is already in DIR keeps all it has: each
    run makes a topic of its own.
    """
    from logstore.samples import FLIGHTS, sample_path

    target.path = directory or target.path or DEFAULT_DIR
    target.bootstrap_server = None
    source = file or sample_path(FLIGHTS)
    row_format = _row_format(source, key_column)
    say = _Silent() if target.as_json else _Aloud()
    with target.open(write=True, create=True) as store:
        topic = _free_topic(store, "flights" if file is None else _topic_name(file))
        say.line(f"What: {'842 flights from New York on 1 January 2013' if file is None else source}")
        say.line(f"Where: the log store {store.root}\n")
        _create(store, topic, partitions, row_format, say)
        sent, produce_s = _produce(store, topic, source, row_format, say)
        reading, consume_s = _consume(store, topic, f"{topic}-readers", sent.records, say)
        say.order(store, topic, reading)
        _show_files(store, topic, say)
        say.next_steps(target.path, topic)
    if target.as_json:
        print_json(
            {
                "directory": target.path,
                "topic": topic,
                "group": f"{topic}-readers",
                "records": reading.records,
                "produce_seconds": round(produce_s, 4),
                "consume_seconds": round(consume_s, 4),
            }
        )


class _Silent:
    """Under --json only the end is printed."""

    def line(self, text: str) -> None:
        """Nothing."""

    def table(self, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        """Nothing."""

    def order(self, store: LogStore, topic: str, reading: _Reading) -> None:
        """Nothing."""

    def next_steps(self, path: str, topic: str) -> None:
        """Nothing."""


class _Aloud(_Silent):
    def line(self, text: str) -> None:
        click.echo(text)

    def table(self, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        print_table(columns, rows)
        click.echo()

    def order(self, store: LogStore, topic: str, reading: _Reading) -> None:
        """The records of the busiest key, as its partition has them: in the order they were sent."""
        if not reading.keys:
            return
        key, count = reading.keys.most_common(1)[0]
        if count < 2:
            return
        of_key = (
            record
            for partition in reading.next_offsets
            for record in store.partition(topic, partition).records(0)
            if record.key == key
        )
        self.line(
            f"One key stays in one partition and in order. {key.decode('utf-8', 'replace')}, {count} records:"
        )
        rows = [
            (record.offset, time_text(record.timestamp_ms), _flight(record.value))
            for record in islice(of_key, 6)
        ]
        self.table(("OFFSET", "TIME", "RECORD"), rows)

    def next_steps(self, path: str, topic: str) -> None:
        name = f"logstore --path {path}"
        self.line("Try next:")
        for command, meaning in (
            (f"{name} consume {topic} -o -3 -e -f '%p %o %k %s\\n'", "the last three of each partition"),
            (f"{name} group describe {topic}-readers", "where the group is"),
            (f"{name} group seek {topic}-readers --to-earliest --execute", "read all again"),
            (f"{name} log dump {topic}-0 --batches", "what lies on disk, batch by batch"),
            (f"{name} log verify", "read everything and check it"),
            (f"echo '{{\"hello\": 1}}' | {name} produce {topic}", "add a record of yours"),
        ):
            self.line(f"  {command}\n      {meaning}")


def _flight(value: bytes | None) -> str:
    """A flight in a few words, or the start of any other value."""
    text = (value or b"").decode("utf-8", "replace")
    try:
        row = json.loads(text)
        return (
            f"{row['carrier']} {row['flight']}: {row['origin']} to {row['dest']}, due {row['sched_dep_time']}"
        )
    except (ValueError, KeyError, TypeError):
        return text if len(text) <= 60 else text[:57] + "..."


def _row_format(source: str, key_column: str | None) -> RowFormat:
    """A CSV by its header; any other file by its lines. UsageError for a key column that is not there."""
    from logstore.cli.streams.rows import RowFormat

    if not source.endswith(".csv"):
        if key_column is not None:
            raise click.UsageError(f"--key-column goes with a .csv file, and {source} is none")
        return RowFormat(name="lines")
    with open(source, encoding="utf-8-sig", errors="replace", newline="") as file:
        columns = next(csv.reader(file), [])
    if not columns:
        raise Failure(f"{source} is empty: a CSV starts with its header")
    if key_column is not None and key_column not in columns:
        raise click.UsageError(f"{source} has no column {key_column!r}; it has {', '.join(columns)}")
    key = key_column or ("tailnum" if "tailnum" in columns else columns[0])
    timestamp = "time_hour" if {"tailnum", "time_hour"} <= set(columns) else None
    return RowFormat(name="csv", key_column=key, timestamp_column=timestamp, null_key="NA")


def _topic_name(file: str) -> str:
    stem = os.path.basename(file).partition(".")[0]
    return re.sub(r"[^a-zA-Z0-9._-]", "-", stem).lstrip("_.")[:200] or "demo"


def _free_topic(store: LogStore, name: str) -> str:
    """``name``, or with the first number behind it that is not taken."""
    taken = set(store.list_topics())
    number = 1
    free = name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _create(store: LogStore, topic: str, partitions: int, row_format: RowFormat, say: _Silent) -> None:
    store.create_topic(topic, partitions=partitions)
    keyed = f", keyed by {row_format.key_column}" if row_format.key_column else ""
    say.line(f"1. Created topic {topic!r} with {partitions} partitions{keyed}.")


def _produce(
    store: LogStore, topic: str, source: str, row_format: RowFormat, say: _Silent
) -> tuple[Landed, float]:
    from logstore.cli.produce import Landed, RowSender

    landed = Landed()
    start_s = time.perf_counter()
    with store.producer(acks="all") as producer, open(source, "rb") as stream:
        RowSender(producer, topic, None, landed).send(stream, source, row_format)
    seconds = time.perf_counter() - start_s
    rate = rate_text(landed.records, seconds)
    say.line(f"2. Produced {landed.records:,} records in {seconds:.2f} s ({rate}), every one synced to disk.")
    rows = [(number, low, high, count) for number, (low, high, count) in sorted(landed.ranges.items())]
    say.table(("PARTITION", "FIRST OFFSET", "END", "RECORDS"), rows)
    return landed, seconds


def _consume(store: LogStore, topic: str, group: str, total: int, say: _Silent) -> tuple[_Reading, float]:
    """Half with one consumer, the rest with another that starts where the group was."""
    reading = _Reading()
    with store.consumer(topic, group=group, until_end=True) as consumer:
        half_s = _read(consumer, reading, total // 2)
        consumer.commit()
        lag = sum(consumer.lag().values())
    say.line(f"3. A consumer of group {group!r} read {reading.records:,} of them, committed, and stopped.")
    say.line(f"   The group's lag is {lag:,} records:")
    _show_group(store, group, say)
    first = reading.records
    with store.consumer(topic, group=group, until_end=True) as consumer:
        places = ", ".join(
            f"{where.partition} at {consumer.position(*where)}" for where in consumer.assignment()
        )
        rest_s = _read(consumer, reading, None)
        consumer.commit()
        lag = sum(consumer.lag().values())
    say.line(f"4. A new consumer went on where the group was (partition {places})")
    rate = rate_text(total, half_s + rest_s)
    say.line(f"   and read the other {reading.records - first:,}: lag {lag}. Both together: {rate}.")
    if reading.records != total:
        raise Failure(f"{total} records were acknowledged, {reading.records} came out")
    say.line(f"   Each of the {total:,} records came out once, in its partition's order.")
    _show_group(store, group, say)
    return reading, half_s + rest_s


def _read(consumer: Consumer[Any, Any], reading: _Reading, until: int | None) -> float:
    """Read until so many records were seen in all, or to the end; seconds that took."""
    start_s = time.perf_counter()
    while until is None or reading.records < until:
        most = _POLL_RECORDS if until is None else min(_POLL_RECORDS, until - reading.records)
        records = next(consumer.batches(most), None)
        if records is None:
            break
        reading.add(records)
    return time.perf_counter() - start_s


def _show_group(store: LogStore, group: str, say: _Silent) -> None:
    description = store.admin.describe_group(group)
    rows = [
        (row.partition, "-" if row.committed is None else row.committed.offset, row.end_offset, row.lag)
        for row in description.partitions
    ]
    say.table(("PARTITION", "COMMITTED", "END", "LAG"), rows)


def _show_files(store: LogStore, topic: str, say: _Silent) -> None:
    """Where the records lie."""
    say.line(f"5. On disk, in Apache Kafka's own format, under {store.root}:")
    rows: list[tuple[Any, ...]] = []
    for name in sorted(os.listdir(store.root)):
        path = os.path.join(store.root, name)
        mine = re.fullmatch(re.escape(topic) + r"-\d+", name) is not None
        if not os.path.isdir(path):
            rows.append((name, size_text(os.path.getsize(path))))
        elif mine or name == ".state" or name.startswith("__consumer_offsets-"):
            rows.extend(
                (f"{name}/{inner}", size_text(os.path.getsize(os.path.join(path, inner))))
                for inner in sorted(os.listdir(path))
            )
    say.table(("FILE", "SIZE"), rows[:_MOST_FILES])
    if len(rows) > _MOST_FILES:
        say.line(f"   ... and {len(rows) - _MOST_FILES} more\n")
