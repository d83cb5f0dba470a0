"""Each option in each kind of read, as Spark's Kafka source documents it; refusals name what is near."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

import spark_connector
from logstore import LogStoreError, TopicPartition
from logstore.errors import InvalidArgumentError
from spark_connector.settings import option_table
from spark_connector.settings.option_table import TABLE
from spark_connector.settings.options import Mode, Selection, SourceOptions, check_names, parse
from spark_connector.settings.positions import PositionSpec
from spark_connector.settings.target import Target

BASE = {"path": "/data"}
TOPIC = {"subscribe": "t"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
JSON = '{"a":{"0":23,"1":-2}}'


def spec(option: str, kind: Any, **more: Any) -> PositionSpec:
    return PositionSpec(kind=kind, option=option, **more)


def offsets(option: str) -> PositionSpec:
    return spec(option, "offsets", table={A0: 23, A1: -2})


STARTING, ENDING = "startingOffsets", "endingOffsets"
BY_TIME, END_BY_TIME = "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"
START_TIME, END_TIME = "startingTimestamp", "endingTimestamp"
TIMES = '{"a":{"0":1000,"1":2000}}'
REFUSED = "refused"

# option, what is given, read, field, what it becomes; or "refused"
CASES: list[tuple[str, dict[str, str], str, str, Any]] = [
    ("path", {}, "both", "target", Target("/data")),
    ("path", {"path": ""}, "both", REFUSED, "path is missing"),
    ("bootstrap.servers", {"bootstrap.servers": "h:1", "path": ""}, "both", "target", Target(brokers="h:1")),
    ("bootstrap.servers", {"bootstrap.servers": "h:1"}, "both", REFUSED, "both path=/data and"),
    ("clientConfig", {"clientConfig": "/c"}, "both", REFUSED, "is for brokers"),
    ("assign", {"assign": '{"a":[1,0]}'}, "both", "selection", Selection(assigned=(A0, A1))),
    ("assign", {"assign": "a"}, "both", REFUSED, "assign=a"),
    ("assign", {"assign": '{"a":[]}'}, "both", REFUSED, "assign="),
    ("assign", {"assign": '{"a":[-1]}'}, "both", REFUSED, "assign="),
    ("subscribe", {"subscribe": "b, a,b"}, "both", "selection", Selection(topics=("a", "b"))),
    ("subscribe", {"subscribe": " "}, "both", REFUSED, "subscribe is empty"),
    ("subscribe", {"subscribe": "a", "assign": '{"a":[0]}'}, "both", REFUSED, "assign and subscribe are"),
    ("subscribePattern", {"subscribePattern": "a.*"}, "both", "selection", Selection(pattern="a.*")),
    ("subscribePattern", {"subscribePattern": "a("}, "both", REFUSED, "no regular expression"),
    (STARTING, {}, "batch", "starting", spec(STARTING, "earliest")),
    (STARTING, {}, "stream", "starting", spec(STARTING, "latest")),
    (STARTING, {STARTING: "earliest"}, "both", "starting", spec(STARTING, "earliest")),
    (STARTING, {STARTING: "Latest"}, "stream", "starting", spec(STARTING, "latest")),
    (STARTING, {STARTING: "latest"}, "batch", REFUSED, "cannot begin at latest"),
    (STARTING, {STARTING: JSON}, "both", "starting", offsets(STARTING)),
    (STARTING, {STARTING: '{"a":{"0":-1}}'}, "batch", REFUSED, "cannot begin at latest"),
    (STARTING, {STARTING: '{"a":{"0":-3}}'}, "both", REFUSED, "startingOffsets="),
    (STARTING, {STARTING: '{"a":[0]}'}, "both", REFUSED, "write JSON"),
    (STARTING, {STARTING: "soon"}, "both", REFUSED, "write JSON"),
    (
        BY_TIME,
        {BY_TIME: TIMES, STARTING: JSON},
        "both",
        "starting",
        spec(BY_TIME, "timestamps", table={A0: 1000, A1: 2000}, otherwise="error"),
    ),
    (BY_TIME, {BY_TIME: '{"a":{"0":-9223372036854775809}}'}, "both", REFUSED, BY_TIME),
    (
        BY_TIME,
        {BY_TIME: '{"a":{"0":-86400000}}'},
        "both",
        "starting",
        spec(BY_TIME, "timestamps", table={A0: -86400000}, otherwise="error"),
    ),
    (
        START_TIME,
        {START_TIME: "5", BY_TIME: TIMES, STARTING: JSON},
        "both",
        "starting",
        spec(START_TIME, "timestamp", timestamp_ms=5, otherwise="error"),
    ),
    (START_TIME, {START_TIME: "2026-01-01"}, "both", REFUSED, "in ms since 1970"),
    (START_TIME, {START_TIME: "9" * 5000}, "both", REFUSED, "in ms since 1970"),
    (START_TIME, {START_TIME: "--5"}, "both", REFUSED, "in ms since 1970"),
    (
        START_TIME,
        {START_TIME: " -86400000 "},
        "both",
        "starting",
        spec(START_TIME, "timestamp", timestamp_ms=-86400000, otherwise="error"),
    ),
    ("minPartitions", {"minPartitions": "9" * 5000}, "both", REFUSED, "a whole number"),
    (
        "startingOffsetsByTimestampStrategy",
        {START_TIME: "5", "startingOffsetsByTimestampStrategy": "latest"},
        "both",
        "starting",
        spec(START_TIME, "timestamp", timestamp_ms=5, otherwise="latest"),
    ),
    (
        "startingOffsetsByTimestampStrategy",
        {"startingOffsetsByTimestampStrategy": "latests"},
        "both",
        REFUSED,
        "did you mean latest",
    ),
    (ENDING, {}, "batch", "ending", spec(ENDING, "latest")),
    (ENDING, {ENDING: '{"a":{"0":-1}}'}, "batch", "ending", spec(ENDING, "offsets", table={A0: -1})),
    (ENDING, {ENDING: "earliest"}, "batch", REFUSED, "nothing would be read"),
    (ENDING, {ENDING: '{"a":{"0":-2}}'}, "batch", REFUSED, "cannot end at earliest"),
    (ENDING, {ENDING: "latest"}, "stream", REFUSED, "cannot be set for a stream read"),
    (
        END_BY_TIME,
        {END_BY_TIME: TIMES, ENDING: "latest"},
        "batch",
        "ending",
        spec(END_BY_TIME, "timestamps", table={A0: 1000, A1: 2000}),
    ),
    (END_BY_TIME, {END_BY_TIME: TIMES}, "stream", REFUSED, "cannot be set for a stream read"),
    (
        END_TIME,
        {END_TIME: "7", END_BY_TIME: TIMES},
        "batch",
        "ending",
        spec(END_TIME, "timestamp", timestamp_ms=7),
    ),
    (END_TIME, {END_TIME: "7"}, "stream", REFUSED, "cannot be set for a stream read"),
    ("failOnDataLoss", {}, "both", "fail_on_data_loss", True),
    ("failOnDataLoss", {"failOnDataLoss": "FALSE"}, "both", "fail_on_data_loss", False),
    ("failOnDataLoss", {"failOnDataLoss": "flase"}, "both", REFUSED, "did you mean false"),
    ("maxOffsetsPerTrigger", {}, "stream", "max_offsets_per_trigger", None),
    ("maxOffsetsPerTrigger", {"maxOffsetsPerTrigger": "5"}, "stream", "max_offsets_per_trigger", 5),
    ("maxOffsetsPerTrigger", {"maxOffsetsPerTrigger": "5"}, "batch", "max_offsets_per_trigger", None),
    ("maxOffsetsPerTrigger", {"maxOffsetsPerTrigger": "0"}, "stream", REFUSED, "at least 1"),
    ("minOffsetsPerTrigger", {"minOffsetsPerTrigger": "5"}, "stream", "min_offsets_per_trigger", 5),
    ("minOffsetsPerTrigger", {"minOffsetsPerTrigger": "5"}, "batch", "min_offsets_per_trigger", None),
    (
        "minOffsetsPerTrigger",
        {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        "stream",
        REFUSED,
        "is higher than maxOffsetsPerTrigger=4",
    ),
    ("maxTriggerDelay", {}, "stream", "max_trigger_delay_ms", 900_000),
    ("maxTriggerDelay", {"maxTriggerDelay": "30s"}, "stream", "max_trigger_delay_ms", 30_000),
    ("maxTriggerDelay", {"maxTriggerDelay": "250"}, "stream", "max_trigger_delay_ms", 250),
    ("maxTriggerDelay", {"maxTriggerDelay": "30s"}, "batch", "max_trigger_delay_ms", 900_000),
    ("maxTriggerDelay", {"maxTriggerDelay": "soon"}, "stream", REFUSED, "write a time"),
    ("maxBytesPerTrigger", {"maxBytesPerTrigger": "9"}, "stream", "max_bytes_per_trigger", 9),
    ("maxBytesPerTrigger", {"maxBytesPerTrigger": "9"}, "batch", "max_bytes_per_trigger", None),
    ("minPartitions", {}, "both", "min_partitions", None),
    ("minPartitions", {"minPartitions": "9"}, "both", "min_partitions", 9),
    ("maxRecordsPerPartition", {"maxRecordsPerPartition": "9"}, "both", "max_records_per_partition", 9),
    ("maxRecordsPerPartition", {"maxRecordsPerPartition": "-9"}, "both", REFUSED, "at least 1"),
    ("includeHeaders", {}, "both", "include_headers", False),
    ("includeHeaders", {"includeHeaders": "true"}, "both", "include_headers", True),
    ("isolation", {}, "both", "isolation", "read_committed"),
    ("isolation", {"isolation": "read_uncommitted"}, "both", "isolation", "read_uncommitted"),
    ("isolation", {"kafka.isolation.level": "read_uncommitted"}, "both", "isolation", "read_uncommitted"),
    ("isolation", {"isolation": "read_comitted"}, "both", REFUSED, "did you mean read_committed"),
    ("valueFormat", {}, "both", "value_format", "binary"),
    ("valueFormat", {"valueFormat": "String"}, "both", "value_format", "string"),
    ("valueFormat", {"valueFormat": "avro"}, "both", REFUSED, "later version"),
    ("valueFormat", {"valueFormat": "jsn"}, "both", REFUSED, "did you mean json"),
    ("valueFormat", {"valueFormat": "json"}, "both", REFUSED, "needs valueSchema"),
    ("valueSchema", {"valueFormat": "json", "valueSchema": "a INT"}, "both", "value_schema", "a INT"),
    ("valueSchema", {"valueSchema": "a INT"}, "both", REFUSED, "set valueFormat=json"),
    ("commit.group", {}, "stream", "commit_group", None),
    ("commit.group", {"commit.group": "g"}, "stream", "commit_group", "g"),
    ("commit.group", {"commit.group": "g"}, "batch", "commit_group", None),
]  # fmt: skip
EACH = [
    (option, given, mode, field, becomes)
    for option, given, reads, field, becomes in CASES
    for mode in (("batch", "stream") if reads == "both" else (reads,))
]


def parsed(given: dict[str, str], mode: str) -> SourceOptions:
    chosen = {"assign", "subscribe", "subscribePattern"} & set(given)
    return parse({**BASE, **({} if chosen else TOPIC), **given}, cast(Mode, mode))


@pytest.mark.parametrize(
    ("given", "mode", "field", "becomes"),
    [row[1:] for row in EACH],
    ids=[f"{row[2]}-{row[0]}-{n}" for n, row in enumerate(EACH)],
)
def test_option(given: dict[str, str], mode: str, field: str, becomes: Any) -> None:
    if field != REFUSED:
        assert getattr(parsed(given, mode), field) == becomes
        return
    with pytest.raises(LogStoreError) as error:
        parsed(given, mode)
    assert becomes in str(error.value)


def test_every_option_has_a_case_in_both_kinds_of_read() -> None:
    seen = {(option, mode) for option, _, mode, _, _ in EACH}
    assert seen == {(option.name, mode) for option in TABLE for mode in ("batch", "stream")}


def test_names_are_of_any_case() -> None:
    assert (
        parsed({"STARTINGOFFSETS": "earliest", "FailOnDataLoss": "false"}, "stream").fail_on_data_loss
        is False
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("subscrib", "subscribe"),
        ("topics", None),
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("kafka.isolation.levl", "kafka.isolation.level"),
        ("valueformats", "valueFormat"),
        ("zzzz", None),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(name: str, meant: str | None) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        check_names({name: "x"}, "any")
    assert f"there is no option {name}" in str(error.value)
    assert meant is None or f"did you mean {meant}?" in str(error.value)


@pytest.mark.parametrize("name", ["kafka.bootstrap.servers", "bootstrap.servers"])
def test_brokers_instead_of_a_directory(name: str) -> None:
    given = {name: "localhost:9092", "subscribe": "t"}
    assert parse(given, "batch").target == Target(brokers="localhost:9092")
    assert parse({**given, "clientConfig": "/c.toml"}, "batch").target == Target(
        "", "localhost:9092", "/c.toml"
    )
    with pytest.raises(
        InvalidArgumentError, match=r"(?s)both path=data and bootstrap\.servers=localhost:9092"
    ):
        parse({**given, "path": "data"}, "batch")
    with pytest.raises(InvalidArgumentError, match="clientConfig is for brokers"):
        parse({"path": "data", "subscribe": "t", "clientConfig": "/c.toml"}, "batch")


@pytest.mark.parametrize("name", sorted(option_table.REFUSED))
def test_what_sparks_kafka_source_refuses_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be set"):
        check_names({name: "x"}, "any")


@pytest.mark.parametrize("name", sorted(option_table.HARMLESS))
def test_harmless_ones_are_warned_about(name: str) -> None:
    values, warnings = check_names({name: "x"}, "any")
    assert values == {}
    assert len(warnings) == 1
    assert name in warnings[0]


def test_options_of_the_other_kind_are_warned_about() -> None:
    _, warnings = check_names({"maxOffsetsPerTrigger": "1"}, "batch")
    assert warnings == ["option maxOffsetsPerTrigger is for stream reads and ignored"]


def test_a_table_is_json_of_spark() -> None:
    """The forms of Spark's guide, as they stand there."""
    found = parsed({STARTING: """ {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}} """}, "stream").starting.table
    assert found == {("topicA", 0): 23, ("topicA", 1): -1, ("topicB", 0): -2}
    assert json.loads('{"topicA":[0,1],"topicB":[2,4]}')["topicB"] == [2, 4]
    chosen = parsed({"assign": '{"topicA":[0,1],"topicB":[2,4]}'}, "stream").selection.assigned
    assert chosen == (("topicA", 0), ("topicA", 1), ("topicB", 2), ("topicB", 4))


def test_the_readme_has_the_table() -> None:
    readme = Path(spark_connector.__file__).with_name("README.md").read_text("utf-8")
    assert option_table.markdown() in readme
    assert option_table.differences() in readme
