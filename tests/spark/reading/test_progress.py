"""What a listener makes of a query's progress."""

from __future__ import annotations

import json
from typing import NamedTuple

from logstore import TopicPartition
from spark_connector import source_metrics
from spark_connector.reading.offsets import StreamOffset
from spark_connector.settings.positions import Place


class Source(NamedTuple):
    endOffset: str | None  # noqa: N815 - Spark's names
    latestOffset: str | None  # noqa: N815


def offset(**partitions: int) -> str:
    places = {TopicPartition("t", int(name[1:])): Place(at, 0) for name, at in partitions.items()}
    return json.dumps(StreamOffset(places, {"t": "id"}).to_json())


def test_how_far_behind_the_latest_offsets_a_source_is() -> None:
    source = Source(
        offset(p0=5, p1=7), offset(p0=9, p1=7, p2=3)
    )  # partition 2 is new: nothing of it was read
    assert source_metrics(source) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": str(7 / 3),
    }


def test_a_log_that_became_shorter_is_not_behind() -> None:
    assert source_metrics(Source(offset(p0=5), offset(p0=3)))["maxOffsetsBehindLatest"] == "0"


def test_another_kind_of_source_has_none() -> None:
    assert source_metrics(Source("5", None)) == {}  # of the rate source
    assert source_metrics(Source('{"t": {"0": 5}}', '{"t": {"0": 9}}')) == {}  # of the Kafka source


def test_without_offsets_there_are_none() -> None:
    assert source_metrics(Source(None, offset(p0=1))) == {}
    assert source_metrics(Source(offset(p0=1), None)) == {}
    assert source_metrics(Source(offset(), offset())) == {}
