"""Every option of reads (of writes: ``sink_options.py``): name, where it counts, default, values, what it does.

The one place that knows them: parsing, errors, the README's table and the tests go by it. Names, defaults and
meanings are those of Spark's Kafka source (Structured Streaming + Kafka Integration Guide) where it has the
option; ``ours`` marks the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Scope: TypeAlias = Literal["both", "batch", "stream"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """``scope``: where it counts; ``outside``: what becomes of it elsewhere, as Spark's Kafka source does.
    ``differs``: what is otherwise there; empty for what is the same, or not there at all (``ours``)."""

    name: str
    default: str
    values: str
    meaning: str
    scope: Scope = "both"
    outside: Literal["refused", "ignored"] = "ignored"
    ours: bool = False
    differs: str = ""


TABLE: Final = (
    Option(
        name="path",
        default="(this or brokers)",
        values="a directory",
        meaning="The store; `.load(DIR)` sets it. Driver and executors must see the same file system.",
        ours=True,
    ),
    Option(
        name="bootstrap.servers",
        default="",
        values="HOST:PORT,...",
        meaning="Brokers instead of a directory, as `kafka.bootstrap.servers`. Executors read from them directly.",
        differs="There Kafka's brokers, here those of `logstore broker start`.",
    ),
    Option(
        name="clientConfig",
        default="",
        values="a file",
        meaning="Settings of the connection to brokers (TLS, token, user) as TOML; at this path on every machine.",
        ours=True,
    ),
    Option(
        name="assign",
        default="",
        values='{"topic":[0,1]}',
        meaning="These partitions. Exactly one of assign, subscribe and subscribePattern.",
    ),
    Option(name="subscribe", default="", values="topic,topic", meaning="All partitions of these topics."),
    Option(
        name="subscribePattern",
        default="",
        values="a regular expression",
        meaning="All topics whose whole name matches; internal ones never do.",
        differs="There the expression is Java's, here Python's.",
    ),
    Option(
        name="startingOffsets",
        default="latest (stream), earliest (batch)",
        values='earliest, latest (stream only), {"topic":{"0":23,"1":-2}}',
        meaning="Where a new query begins. JSON names every partition; -2 is earliest, -1 latest (stream only).",
    ),
    Option(
        name="startingOffsetsByTimestamp",
        default="",
        values='{"topic":{"0":1700000000000}}',
        meaning="The first record at least that new, in ms. Beats startingOffsets.",
    ),
    Option(
        name="startingTimestamp",
        default="",
        values="ms since 1970, negative before",
        meaning="The same for every partition. Beats both others.",
    ),
    Option(
        name="startingOffsetsByTimestampStrategy",
        default="error",
        values="error, latest",
        meaning="What becomes of a partition without so new a record.",
    ),
    Option(
        name="endingOffsets",
        default="latest",
        values='latest, {"topic":{"0":50,"1":-1}}',
        meaning="Where a batch read ends (exclusive). JSON names every partition; -1 is latest.",
        scope="batch",
        outside="refused",
    ),
    Option(
        name="endingOffsetsByTimestamp",
        default="",
        values='{"topic":{"0":1700000000000}}',
        meaning="Before the first record at least that new; without one, latest. Beats endingOffsets.",
        scope="batch",
        outside="refused",
    ),
    Option(
        name="endingTimestamp",
        default="",
        values="ms since 1970, negative before",
        meaning="The same for every partition. Beats both others.",
        scope="batch",
        outside="refused",
        differs="There a stream passes it over, here it is refused as the other two are.",
    ),
    Option(
        name="failOnDataLoss",
        default="true",
        values="true, false",
        meaning="Whether records that are gone fail the query, or are passed over with a warning.",
    ),
    Option(
        name="maxOffsetsPerTrigger",
        default="",
        values="a number",
        meaning="So many offsets a trigger, prorated by backlog, at least one of each partition that has any.",
        scope="stream",
        differs="There 0 is taken, here refused; there partitions"
        " that are lifted to one offset pass the limit, here the largest give way.",
    ),
    Option(
        name="minOffsetsPerTrigger",
        default="",
        values="a number",
        meaning="A trigger waits for so many offsets (not under AvailableNow).",
        scope="stream",
        differs="There the first trigger after a start does not wait, and AvailableNow leaves what is fewer; "
        "here the first waits too, and AvailableNow reads all.",
    ),
    Option(
        name="maxTriggerDelay",
        default="15m",
        values="a time, as 30s or 15m",
        meaning="But no longer than this.",
        scope="stream",
    ),
    Option(
        name="maxBytesPerTrigger",
        default="",
        values="a number",
        meaning="So many bytes a trigger, as they are stored; at least one batch of a partition.",
        scope="stream",
        ours=True,
    ),
    Option(
        name="minPartitions",
        default="",
        values="a number",
        meaning="At least so many tasks: long ranges are split by offset.",
        differs="There it is approximate, here there are so many tasks if there are so many offsets.",
    ),
    Option(
        name="maxRecordsPerPartition",
        default="",
        values="a number",
        meaning="At most so many offsets a task.",
    ),
    Option(
        name="includeHeaders",
        default="false",
        values="true, false",
        meaning="With the column `headers`, null where a record has none.",
    ),
    Option(
        name="isolation",
        default="read_committed",
        values="read_committed, read_uncommitted",
        meaning="Whether records of open and aborted transactions are read. (Kafka's source reads them.)",
        ours=True,
        differs="There `kafka.isolation.level`, which is taken here too, and by default read_uncommitted.",
    ),
    Option(
        name="valueFormat",
        default="binary",
        values="binary, string, json",
        meaning="What `value` is decoded to; other than binary adds `valueError`: why a value became null.",
        ours=True,
    ),
    Option(
        name="valueSchema",
        default="",
        values="carrier STRING, flight INT (or a schema's JSON)",
        meaning="The columns of `value` under valueFormat=json.",
        ours=True,
    ),
    Option(
        name="commit.group",
        default="",
        values="a group",
        meaning="Commit what the query has finished to this consumer group, so that group tools show its lag.",
        scope="stream",
        ours=True,
    ),
)

BY_NAME: Final = {option.name.lower(): option for option in TABLE}

MAPPED: Final = {"kafka.isolation.level": "isolation", "kafka.bootstrap.servers": "bootstrap.servers"}
"""Options of Kafka's client that mean the same as one of ours."""

_LOCAL = "a store in a directory has no such thing"
HARMLESS: Final = {
    "kafka.group.id": "nothing is committed under it; commit.group does that",
    "groupidprefix": "there is no group of Kafka's; commit.group names one that shows progress",
    "kafkaconsumer.polltimeoutms": _LOCAL,
    "fetchoffset.numretries": _LOCAL,
    "fetchoffset.retryintervalms": _LOCAL,
    "kafka.client.id": _LOCAL,
    "kafka.client.rack": _LOCAL,
    "kafka.connections.max.idle.ms": _LOCAL,
    "kafka.default.api.timeout.ms": _LOCAL,
    "kafka.fetch.max.bytes": "batches of Arrow rows bound what is read at once",
    "kafka.fetch.max.wait.ms": _LOCAL,
    "kafka.fetch.min.bytes": _LOCAL,
    "kafka.max.partition.fetch.bytes": "batches of Arrow rows bound what is read at once",
    "kafka.max.poll.interval.ms": _LOCAL,
    "kafka.max.poll.records": "batches of Arrow rows bound what is read at once",
    "kafka.metadata.max.age.ms": _LOCAL,
    "kafka.receive.buffer.bytes": _LOCAL,
    "kafka.reconnect.backoff.max.ms": _LOCAL,
    "kafka.reconnect.backoff.ms": _LOCAL,
    "kafka.request.timeout.ms": _LOCAL,
    "kafka.retry.backoff.ms": _LOCAL,
    "kafka.send.buffer.bytes": _LOCAL,
    "kafka.session.timeout.ms": _LOCAL,
    "kafka.heartbeat.interval.ms": _LOCAL,
    "kafka.check.crcs": "checksums are always proved",
}
"""Options of Spark's Kafka source that change nothing here; a warning says so."""

_ALIKE = "values are bytes; decode them with valueFormat, or with DataFrame functions"
REFUSED: Final = {
    "kafka.auto.offset.reset": "set startingOffsets instead, as with Spark's Kafka source",
    "kafka.key.deserializer": _ALIKE,
    "kafka.value.deserializer": _ALIKE,
    "kafka.enable.auto.commit": "set commit.group: progress is committed when a batch is done",
    "kafka.interceptor.classes": "there is no Kafka client whose calls could be intercepted",
}
"""Options that Spark's Kafka source refuses, too, each with what to do."""

LATER_FORMATS: Final = frozenset({"avro", "protobuf", "csv", "parquet"})


def markdown(table: Iterable[Option] = TABLE) -> str:
    """The table of the README."""
    lines = ["| option | where | default | values | what it does |", "|---|---|---|---|---|"]
    for option in table:
        scope = option.scope if option.scope == "both" else f"{option.scope} only"
        name = f"`{option.name}`{' *' if option.ours else ''}"
        values = option.values.replace("|", "\\|")
        lines.append(f"| {name} | {scope} | {option.default} | {values} | {option.meaning} |")
    return "\n".join(lines) + "\n"


def differences(table: Iterable[Option] = TABLE) -> str:
    """What the README says of options that do not do what they do in Spark's Kafka source."""
    return "".join(f"- `{option.name}`: {option.differs}\n" for option in table if option.differs)
