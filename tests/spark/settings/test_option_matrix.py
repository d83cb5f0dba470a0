"""Every option of reads, in batch and in stream, as the readers of the source show it on a store; no session.

One row of ``MATRIX`` per option and case: what is given and what becomes of it in each kind of read. What a row says
of Spark's Kafka source ("same", "differs") was compared with its integration guide and, where that is silent, its
validation of options; how it differs is in ``option_table.py``, from which the README has it.

The store: topic ``a`` with 8 and 2 records, ``b`` with 4. The record at offset ``n`` has timestamp ``1000 + n``, a
value of JSON, ``{"n": n}``, and a header. Partition 0 of ``a`` ends in an aborted transaction of 3 records (and
its marker). Ranges are written ``a0:0-12`` for offsets [0, 12) of partition 0 of topic ``a``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, StructType

import logstore
from logstore import LogStoreError, TopicPartition
from logstore.format.batch import encode_batch
from logstore.seams.clock import ManualClock
from spark_connector.connection import forget_stores
from spark_connector.reading.ranges import Split
from spark_connector.reading.reader import LogStoreReader
from spark_connector.reading.schema import spark_schema
from spark_connector.reading.stream_reader import LogStoreStreamReader
from spark_connector.settings.option_table import BY_NAME, TABLE, differences
from spark_connector.settings.options import check_names, parse
from tests.rpc.served import Served
from tests.spark.sources import rows

WHERE: Final = ("path", "bootstrap.servers", "clientConfig")

ALL_A: Final = "a0:0-12 a1:0-2"
ROWS_A: Final = 10
N_INT: Final = (
    StructType().add("n", IntegerType()).json()
)  # columns as text are Spark's to read, in a session
COLUMNS: Final = "key value topic partition offset timestamp timestampType"


class Refused(NamedTuple):
    """An error that holds this text."""

    text: str


class Sees(NamedTuple):
    """What the read does; None: not looked at."""

    ranges: str | None = None
    rows: int | None = None
    columns: str | None = None
    group: dict[TopicPartition, int] | None = None


Outcome = Refused | Sees | Literal["ignored"]
"""``"ignored"``: a warning names the option, and the read does what it does without."""


class Row(NamedTuple):
    """``kafka``: whether Spark's Kafka source does the same with what is given."""

    option: str
    case: str
    given: Mapping[str, str]
    batch: Outcome
    stream: Outcome
    kafka: Literal["same", "differs", "ours"] = "same"


START, BY_TIME, AT_TIME = "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"
END, END_BY_TIME, END_TIME = "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"
STRATEGY = "startingOffsetsByTimestampStrategy"
MOST, LEAST, DELAY = "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"
OFFSETS, TIMES = '{"a":{"0":3,"1":1}}', '{"a":{"0":1005,"1":1000}}'
NOT_A_STREAMS = "cannot be set for a stream read"
SOME, EVERYTHING = Sees("a0:3-12 a1:1-2"), Sees(ALL_A, ROWS_A)


def both(option: str, case: str, given: Mapping[str, str], outcome: Outcome, kafka: Any = "same") -> Row:
    return Row(option, case, given, outcome, outcome, kafka)


# What is given comes on top of path and subscribe=a; in streams on startingOffsets=earliest, too, where the row's
# option is not one that says where to start.
MATRIX: Final = (
    both("path", "missing", {"path": ""}, Refused("option path is missing"), "ours"),
    both("path", "set", {}, EVERYTHING, "ours"),
    both("bootstrap.servers", "with a directory", {"bootstrap.servers": "h:1"}, Refused("both path="), "differs"),
    both("clientConfig", "with a directory", {"clientConfig": "/c.toml"}, Refused("is for brokers"), "ours"),
    both("assign", "set", {"assign": '{"a":[1],"b":[0]}'}, Sees("a1:0-2 b0:0-4")),
    both("assign", "no such partition", {"assign": '{"a":[2]}'}, Refused("partitions 0 to 1, not 2")),
    both("assign", "with subscribe", {"assign": '{"a":[1]}', "subscribe": "a"}, Refused("exactly one of")),
    both("subscribe", "several", {"subscribe": "b, a"}, Sees(ALL_A + " b0:0-4")),
    both("subscribe", "none of the three", {"subscribe": "-"}, Refused("exactly one of")),
    both("subscribe", "empty", {"subscribe": " , "}, Refused("names no topic")),
    both("subscribe", "no such topic", {"subscribe": "c"}, Refused("topic 'c'")),
    both("subscribePattern", "whole names", {"subscribePattern": "[ab]"}, Sees(ALL_A + " b0:0-4")),
    both("subscribePattern", "not a part", {"subscribePattern": ""}, Refused("is empty")),
    both("subscribePattern", "no internal topic", {"subscribePattern": "[^l].*"}, Sees(ALL_A + " b0:0-4")),
    both("subscribePattern", "Python's syntax", {"subscribePattern": "(?P<x>b)"}, Sees("b0:0-4"), "differs"),
    both("subscribePattern", "Java's syntax", {"subscribePattern": r"\p{L}"}, Refused("no regular"), "differs"),
    Row(START, "default", {}, EVERYTHING, Sees("")),
    both(START, "earliest", {START: "earliest"}, EVERYTHING),
    Row(START, "latest", {START: "latest"}, Refused("cannot begin at latest"), Sees("")),
    both(START, "JSON", {START: OFFSETS}, SOME),
    both(START, "JSON, earliest", {START: '{"a":{"0":11,"1":-2}}'}, Sees("a0:11-12 a1:0-2", rows=2)),
    Row(START, "JSON, latest", {START: '{"a":{"0":-1,"1":0}}'}, Refused("cannot begin"), Sees("a1:0-2")),
    both(START, "a partition missing", {START: '{"a":{"0":3}}'}, Refused("it lacks a-1")),
    both(START, "past the end", {START: '{"a":{"0":13,"1":0}}'}, Refused("offset 13 of a-0 is past")),
    both(BY_TIME, "beats startingOffsets", {BY_TIME: TIMES, START: OFFSETS}, Sees("a0:5-12 a1:0-2")),
    both(BY_TIME, "a partition missing", {BY_TIME: '{"a":{"0":1005}}'}, Refused("it lacks a-1")),
    both(BY_TIME, "no record so new", {BY_TIME: '{"a":{"0":1005,"1":2000}}'}, Refused("a-1 has no record as new")),
    both(
        AT_TIME,
        "beats both others",
        {AT_TIME: "1001", BY_TIME: TIMES, START: OFFSETS},
        Sees("a0:1-12 a1:1-2"),
    ),
    both(AT_TIME, "no time", {AT_TIME: "yesterday"}, Refused("in ms since 1970")),
    both(STRATEGY, "default: error", {AT_TIME: "1004"}, Refused("a-1 has no record as new as 1004")),
    both(STRATEGY, "error", {AT_TIME: "1004", STRATEGY: "error"}, Refused("a-1 has no record as new as 1004")),
    both(STRATEGY, "latest", {AT_TIME: "1004", STRATEGY: "latest"}, Sees("a0:4-12")),
    both(STRATEGY, "latest, for each", {BY_TIME: '{"a":{"0":1005,"1":2000}}', STRATEGY: "latest"}, Sees("a0:5-12")),
    Row(END, "default", {}, EVERYTHING, EVERYTHING),
    Row(END, "latest", {END: "latest"}, EVERYTHING, Refused(NOT_A_STREAMS)),
    Row(END, "JSON, latest", {END: '{"a":{"0":4,"1":-1}}'}, Sees("a0:0-4 a1:0-2"), Refused(NOT_A_STREAMS)),
    Row(END, "earliest", {END: "earliest"}, Refused("nothing would be read"), Refused("endingOffsets=")),
    Row(END, "JSON, earliest", {END: '{"a":{"0":-2,"1":1}}'}, Refused("cannot end at"), Refused("endingOffsets=")),
    Row(
        END,
        "before the start",
        {START: OFFSETS, END: '{"a":{"0":2,"1":1}}'},
        Refused("a-0 would begin at 3 and end at 2"),
        Refused(NOT_A_STREAMS),
    ),
    Row(
        END_BY_TIME,
        "beats endingOffsets",
        {END_BY_TIME: TIMES, END: '{"a":{"0":1,"1":1}}'},
        Sees("a0:0-5"),
        Refused(NOT_A_STREAMS),
    ),
    Row(
        END_BY_TIME,
        "no record so new: latest",
        {END_BY_TIME: '{"a":{"0":9999,"1":1001}}'},
        Sees("a0:0-12 a1:0-1"),
        Refused(NOT_A_STREAMS),
    ),
    Row(
        END_TIME,
        "beats both others",
        {END_TIME: "1001", END_BY_TIME: TIMES, END: '{"a":{"0":2,"1":2}}'},
        Sees("a0:0-1 a1:0-1"),
        Refused(NOT_A_STREAMS),
    ),
    Row(END_TIME, "alone", {END_TIME: "9999"}, EVERYTHING, Refused(NOT_A_STREAMS), "differs"),
    both("failOnDataLoss", "default: true", {"subscribe": "lost", START: '{"lost":{"0":1}}'}, Refused("are gone")),
    both(
        "failOnDataLoss",
        "false",
        {"subscribe": "lost", START: '{"lost":{"0":1}}', "failOnDataLoss": "false"},
        Sees("lost0:4-6"),
    ),
    both("failOnDataLoss", "neither", {"failOnDataLoss": "maybe"}, Refused("it is true or false")),
    Row(MOST, "prorated", {MOST: "7"}, "ignored", Sees("a0:0-6 a1:0-1")),
    Row(MOST, "one of each at least", {MOST: "1"}, "ignored", Sees("a0:0-1 a1:0-1")),
    Row(MOST, "never more by rounding", {MOST: "3"}, "ignored", Sees("a0:0-2 a1:0-1")),
    Row(MOST, "nothing", {MOST: "0"}, Refused("at least 1"), Refused("at least 1"), "differs"),
    Row(LEAST, "enough is there", {LEAST: "14"}, "ignored", EVERYTHING),
    Row(LEAST, "too little, the first time", {LEAST: "15"}, "ignored", Sees(""), "differs"),
    Row(LEAST, "more than the most", {LEAST: "5", MOST: "4"}, Refused("is higher than"), Refused("is higher than")),
    Row(DELAY, "default: 15m", {LEAST: "15", "then": "899999"}, "ignored", Sees("")),
    Row(DELAY, "default is over", {LEAST: "15", "then": "900000"}, "ignored", EVERYTHING),
    Row(DELAY, "30s", {LEAST: "15", DELAY: "30s", "then": "29999"}, "ignored", Sees("")),
    Row(DELAY, "30s are over", {LEAST: "15", DELAY: "30s", "then": "30000"}, "ignored", EVERYTHING),
    Row(DELAY, "alone", {DELAY: "30s"}, "ignored", EVERYTHING),
    Row("maxBytesPerTrigger", "a batch each", {"maxBytesPerTrigger": "1"}, "ignored", Sees("a0:0-8 a1:0-2"), "ours"),
    both("minPartitions", "splits", {"minPartitions": "4"}, Sees("a0:0-4 a0:4-8 a0:8-12 a1:0-2", ROWS_A)),
    both("minPartitions", "fewer than there are", {"minPartitions": "1"}, EVERYTHING),
    both("minPartitions", "nothing", {"minPartitions": "0"}, Refused("at least 1")),
    both("maxRecordsPerPartition", "splits", {"maxRecordsPerPartition": "6"}, Sees("a0:0-6 a0:6-12 a1:0-2", ROWS_A)),
    both("maxRecordsPerPartition", "nothing", {"maxRecordsPerPartition": "0"}, Refused("at least 1")),
    both("includeHeaders", "default: false", {}, Sees(columns=COLUMNS)),
    both("includeHeaders", "true", {"includeHeaders": "true"}, Sees(columns=COLUMNS + " headers")),
    both("isolation", "default: read_committed", {}, Sees(ALL_A, rows=ROWS_A), "ours"),
    both("isolation", "read_uncommitted", {"isolation": "read_uncommitted"}, Sees(ALL_A, rows=ROWS_A + 3), "ours"),
    both("isolation", "of Kafka", {"kafka.isolation.level": "read_uncommitted"}, Sees(ALL_A, rows=ROWS_A + 3)),
    both(
        "isolation",
        "beats Kafka's",
        {"kafka.isolation.level": "read_uncommitted", "isolation": "read_committed"},
        Sees(ALL_A, rows=ROWS_A),
        "ours",
    ),
    both("valueFormat", "default: binary", {}, Sees(columns=COLUMNS), "ours"),
    both(
        "valueFormat",
        "string",
        {"valueFormat": "string"},
        Sees(rows=ROWS_A, columns=COLUMNS.replace("value", "value:string") + " valueError"),
        "ours",
    ),
    both("valueFormat", "avro", {"valueFormat": "avro"}, Refused("comes with a later version"), "ours"),
    both(
        "valueSchema",
        "of JSON",
        {"valueFormat": "json", "valueSchema": N_INT},
        Sees(rows=ROWS_A, columns=COLUMNS.replace("value", "value:struct<n:int>") + " valueError"),
        "ours",
    ),
    both("valueSchema", "without JSON", {"valueSchema": "n INT"}, Refused("set valueFormat=json"), "ours"),
    Row("commit.group", "default", {}, Sees(group={}), Sees(group={}), "ours"),
    Row(
        "commit.group",
        "set",
        {"commit.group": "g"},
        "ignored",
        Sees(group={TopicPartition("a", 0): 12, TopicPartition("a", 1): 2}),
        "ours",
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read by all, written by nobody but through ``commit.group``."""
    path = tmp_path_factory.mktemp("matrix")
    with logstore.open(path) as store:
        for topic, counts in {"a": (8, 2), "b": (4,), "lost": (6,)}.items():
            store.create_topic(topic, partitions=len(counts))
            for partition, count in enumerate(counts):
                found = [(b"k", b'{"n": %d}' % n, [("h", b"x")], 1000 + n) for n in range(count)]
                store.partition(topic, partition).append(found)
        log = store.partition("a", 0)
        log.append_batch(
            encode_batch(
                [(None, b"aborted", None, 1000 + n) for n in (8, 9, 10)],
                now_ms=1,
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )
        log.end_transaction(7, 0, commit=False)
        store.delete_records("lost", {0: 4})
        store.commit_offsets("others", {TopicPartition("b", 0): logstore.OffsetAndMetadata(1)})
    return path


@pytest.fixture(scope="module")
def broker(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A copy of the store, served."""
    folder = tmp_path_factory.mktemp("matrix") / "served"
    shutil.copytree(root, folder)
    with Served(folder) as served:
        yield served
    forget_stores()


def options_of(where: dict[str, str], row: Row, mode: str) -> dict[str, str]:
    given = {name: value for name, value in row.given.items() if name != "then"}
    options = dict(where)
    if not {"assign", "subscribe", "subscribePattern"} & set(given):
        options["subscribe"] = "a"
    if mode == "stream" and row.option not in (START, BY_TIME, AT_TIME, STRATEGY):
        options[START] = "earliest"
    options |= given
    return {name: value for name, value in options.items() if value != "-"}


def read(options: dict[str, str], mode: str, then_ms: int = 0, served: Served | None = None) -> Sees:
    """All that a row may look at. The clock moves by ``then_ms`` before a stream's trigger is asked for again."""
    schema = spark_schema(parse(options, "any"))
    assert isinstance(schema, StructType)
    reader: Any
    if mode == "batch":
        reader = LogStoreReader(parse(options, "batch"), schema)
        tasks = reader.partitions()
    else:
        clock = ManualClock()
        reader = LogStoreStreamReader(parse(options, "stream"), schema, clock)
        start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
        end = reader.latestOffset(start, limit)
        if then_ms:
            clock.advance(then_ms)
            end = reader.latestOffset(start, limit)
        tasks = reader.partitions(start, end)
        if options.get("commit.group"):
            reader.latestOffset(end, ReadAllAvailable())
    pieces = [task.piece for task in tasks if isinstance(task, Split)]
    names = [field.name for field in schema]
    if options.get("valueFormat", "binary") != "binary":
        names[names.index("value")] = f"value:{schema['value'].dataType.simpleString()}"
    if served is None:
        with logstore.open(options["path"], mode="r") as store:
            committed = store.committed_offsets("g")
    else:
        committed = served.store.committed_offsets("g")
        if committed:
            served.store.admin.delete_group("g")
    group = {place: point.offset for place, point in committed.items()}
    return Sees(
        " ".join(f"{topic}{partition}:{start}-{end}" for topic, partition, start, end in pieces),
        rows(reader, tasks).num_rows,
        " ".join(names),
        group,
    )


@pytest.mark.parametrize("mode", ["batch", "stream"])
@pytest.mark.parametrize("row", MATRIX, ids=lambda row: f"{row.option}-{row.case}")
def test_cell(root: Path, row: Row, mode: Literal["batch", "stream"]) -> None:
    check_cell({"path": str(root)}, row, mode)


@pytest.mark.parametrize("mode", ["batch", "stream"])
@pytest.mark.parametrize(
    "row", [row for row in MATRIX if row.option not in WHERE], ids=lambda row: f"{row.option}-{row.case}"
)
def test_cell_at_a_broker(broker: Served, row: Row, mode: Literal["batch", "stream"]) -> None:
    check_cell({"bootstrap.servers": broker.address}, row, mode, broker)


def check_cell(
    where: dict[str, str], row: Row, mode: Literal["batch", "stream"], served: Served | None = None
) -> None:
    outcome = row.batch if mode == "batch" else row.stream
    options, then_ms = options_of(where, row, mode), int(row.given.get("then", 0))
    if isinstance(outcome, Refused):
        with pytest.raises(LogStoreError) as error:
            read(options, mode, then_ms, served)
        assert outcome.text in str(error.value)
        return
    seen = read(options, mode, then_ms, served)
    warnings = check_names(options, mode).warnings
    if outcome == "ignored":
        assert any(f"option {row.option} is for stream reads and ignored" in text for text in warnings) or (
            row.option not in row.given
        )
        without = {name: value for name, value in options.items() if BY_NAME[name.lower()].scope == "both"}
        assert seen == read(without, mode, 0, served)
        return
    assert isinstance(outcome, Sees)
    assert warnings == []
    for name, expected in outcome._asdict().items():
        assert expected is None or getattr(seen, name) == expected, name


def test_every_option_is_in_the_matrix_and_no_other() -> None:
    assert {row.option for row in MATRIX} == {option.name for option in TABLE}


def test_every_option_is_given_and_left_out() -> None:
    """An option that is never given shows nothing; one that always is has no default. (One of three must be given.)"""
    chosen = {*WHERE, "assign", "subscribe", "subscribePattern"}
    given = {name for row in MATRIX for name in row.given if name in BY_NAME or name.lower() in BY_NAME}
    assert {option.name for option in TABLE} <= given
    for option in TABLE:
        if option.name not in chosen:
            assert any(option.name not in row.given for row in MATRIX if row.batch != "ignored"), option.name


def test_what_differs_from_sparks_kafka_source_is_told() -> None:
    differing = {row.option for row in MATRIX if row.kafka == "differs"}
    told = {option.name for option in TABLE if option.differs}
    assert differing <= told
    for option in TABLE:
        assert option.ours == (
            not any(row.kafka != "ours" for row in MATRIX if row.option == option.name)
        ) or (option.name == "isolation")
        assert (f"`{option.name}`" in differences()) == bool(option.differs)
