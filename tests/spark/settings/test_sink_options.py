"""Each option of writes, as Spark's Kafka sink documents it where it has the option."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spark_connector
from logstore.errors import InvalidArgumentError
from spark_connector.settings.option_table import markdown
from spark_connector.settings.sink_options import (
    SINK_HARMLESS,
    SINK_REFUSED,
    SINK_TABLE,
    SinkOptions,
    parse_sink,
)
from spark_connector.settings.target import Target

REFUSED = "refused"
CASES: list[tuple[str, dict[str, str], str, Any]] = [
    ("path", {}, "path", "/data"),
    ("path", {"path": ""}, REFUSED, "path is missing"),
    ("path", {"path": "file:/da%20ta"}, "path", "/da ta"),
    ("path", {"path": "hdfs://there/data"}, REFUSED, "no directory of this machine"),
    ("bootstrap.servers", {"bootstrap.servers": "h:1"}, REFUSED, "both path=/data and"),
    ("clientConfig", {"clientConfig": "/c"}, REFUSED, "is for brokers"),
    ("topic", {}, "topic", None),
    ("topic", {"topic": " out "}, "topic", "out"),
    ("topic", {"Topic": ""}, REFUSED, "topic is empty"),
    ("delivery", {}, "delivery", "exactly_once"),
    ("delivery", {"delivery": "AT_LEAST_ONCE"}, "delivery", "at_least_once"),
    ("delivery", {"delivery": "maybe"}, REFUSED, "delivery=maybe"),
    ("compression", {}, "compression", None),
    ("compression", {"compression": "zstd"}, "compression", "zstd"),
    ("compression", {"kafka.compression.type": "gzip"}, "compression", "gzip"),
    ("compression", {"kafka.compression.type": "gzip", "compression": "lz4"}, "compression", "lz4"),
    ("compression", {"compression": "rar"}, REFUSED, "compression=rar"),
    ("changedBatch", {}, "changed_batch", "error"),
    ("changedBatch", {"changedBatch": "Append"}, "changed_batch", "append"),
    ("changedBatch", {"changedBatch": "ignore"}, REFUSED, "changedBatch=ignore"),
    ("lockTimeout", {}, "lock_timeout_s", 30.0),
    ("lockTimeout", {"lockTimeout": "500ms"}, "lock_timeout_s", 0.5),
    ("lockTimeout", {"locktimeout": "2 m"}, "lock_timeout_s", 120.0),
    ("lockTimeout", {"lockTimeout": "soon"}, REFUSED, "lockTimeout=soon"),
    ("lockTimeout", {"lockTimeout": "-1s"}, REFUSED, "lockTimeout=-1s"),
    ("transactionTimeout", {}, "transaction_timeout_s", 3600.0),
    ("transactionTimeout", {"transactionTimeout": "2h"}, REFUSED, "is for brokers"),
]


def parsed(options: dict[str, str]) -> SinkOptions:
    return parse_sink({"path": "/data", **options}).options


@pytest.mark.parametrize(("option", "given", "field", "expected"), CASES)
def test_options(option: str, given: dict[str, str], field: str, expected: Any) -> None:
    if field == REFUSED:
        with pytest.raises(InvalidArgumentError, match=expected):
            parsed(given)
    else:
        assert getattr(parsed(given), field) == expected


def test_every_option_has_its_cases() -> None:
    assert {case[0] for case in CASES} == {option.name for option in SINK_TABLE}


def test_what_spark_hands_over_itself_is_no_option() -> None:
    found = parse_sink({"path": "/data", "checkpointLocation": "file:///ckpt", "queryName": "q"})
    assert (found.options, found.warnings) == (replace(parsed({}), checkpoint="/ckpt"), [])
    assert parsed({"checkpointlocation": "s3a://there/ckpt"}).checkpoint is None


@pytest.mark.parametrize("name", sorted(SINK_HARMLESS))
def test_harmless_ones_are_warned_about(name: str) -> None:
    found = parse_sink({"path": "/data", name: "1"})
    assert found.options == parsed({})
    (warning,) = found.warnings
    assert name in warning


@pytest.mark.parametrize("name", sorted(SINK_REFUSED))
def test_what_cannot_be_set(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be set"):
        parsed({name: "x"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("topics", "did you mean topic?"),
        ("kafka.ack", "did you mean kafka.acks?"),
        ("zzzz", "README.md lists"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        parsed({name: "x"})
    assert hint in str(error.value)


def test_brokers_take_both_deliveries() -> None:
    for delivery in ("exactly_once", "at_least_once"):
        found = parse_sink({"kafka.bootstrap.servers": "h:1", "delivery": delivery, "changedBatch": "skip"})
        assert (found.options.target, found.warnings) == (Target(brokers="h:1"), [])
        assert (found.options.delivery, found.options.changed_batch) == (delivery, "skip")
    with pytest.raises(InvalidArgumentError, match="option lockTimeout is for a directory"):
        parse_sink({"bootstrap.servers": "h:1", "lockTimeout": "2m"})
    for text, seconds in (("90s", 90.0), ("24h", 86_400.0)):
        found = parse_sink({"bootstrap.servers": "h:1", "transactionTimeout": text})
        assert found.options.transaction_timeout_s == seconds
    for text in ("25h", "0s"):
        with pytest.raises(InvalidArgumentError, match=f"transactionTimeout={text}.*at most 24h"):
            parse_sink({"bootstrap.servers": "h:1", "transactionTimeout": text})


def test_the_readme_has_the_table() -> None:
    assert markdown(SINK_TABLE) in Path(spark_connector.__file__).with_name("README.md").read_text("utf-8")
