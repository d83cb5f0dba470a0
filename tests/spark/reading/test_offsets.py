"""Offsets as Spark keeps them: stable text, versioned, with epochs and topic ids."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import TopicPartition
from logstore.errors import DamagedStoreError, UnsupportedStoreVersionError
from spark_connector.reading.offsets import StreamOffset
from spark_connector.settings.positions import Place

places = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b", "ä"]), st.integers(0, 20)),
    st.builds(Place, st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1)),
)


@settings(derandomize=True, deadline=None)
@given(places, st.randoms(use_true_random=False))
def test_the_same_position_is_the_same_text(places: dict[TopicPartition, Place], random: Any) -> None:
    ids = {place.topic: f"id-{place.topic}" for place in places}
    shuffled = list(places.items())
    random.shuffle(shuffled)
    text = json.dumps(StreamOffset(places, ids).to_json())
    assert json.dumps(StreamOffset(dict(shuffled), ids).to_json()) == text
    assert StreamOffset.from_json(json.loads(text)) == StreamOffset(places, ids)


AT = {TopicPartition("flights", 10): Place(7, 2), TopicPartition("flights", 2): Place(0, -1)}


def test_the_text_has_offsets_where_spark_s_kafka_source_has_them() -> None:
    """A checkpoint holds this text: it must not change."""
    assert json.dumps(StreamOffset(AT, {"flights": "uuid"}).to_json()) == (
        '{"flights": {"2": 0, "10": 7}, "flights:uuid": {"2": -1, "10": 2}}'
    )


def test_a_checkpoint_of_version_1_is_read() -> None:
    text = (
        '{"version": 1, "topics": {"flights": {"id": "uuid", "partitions": '
        '{"2": {"offset": 0, "epoch": -1}, "10": {"offset": 7, "epoch": 2}}}}}'
    )
    assert StreamOffset.from_json(json.loads(text)) == StreamOffset(AT, {"flights": "uuid"})


def test_topics_may_be_called_as_the_fields_of_version_1() -> None:
    at = {TopicPartition(name, 0): Place(1, 0) for name in ("version", "topics")}
    offset = StreamOffset(at, {"version": "x", "topics": ""})
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedStoreVersionError, match="version 2"):
        StreamOffset.from_json({"version": 2, "topics": []})


@pytest.mark.parametrize(
    "found",
    [
        None,
        7,
        {"version": 1},
        {"logOffset": 3},
        {"flights:id": {"0": 0}},
        {"flights": {"0": 23}, "flights:id": {"1": 0}},
        {"flights": {"0": "23"}, "flights:id": {"0": 0}},
        {"flights": {"0": -1}, "flights:id": {"0": 0}},
        {"version": "1", "topics": {}},
        {"flights": {"0": 23}},
        {"version": 1, "topics": {"t": {"id": "x", "partitions": {"0": 5}}}},
        {"version": 1, "topics": {"t": {"id": "x", "partitions": {"0": {"offset": -1, "epoch": 0}}}}},
        {"version": 1, "topics": {"t": {"id": "x", "partitions": {"zero": {"offset": 1, "epoch": 0}}}}},
        {"version": 1, "topics": {"t": {"id": 3, "partitions": {"0": {"offset": 1, "epoch": 0}}}}},
    ],
)
def test_what_is_no_offset_of_ours_is_refused(found: Any) -> None:
    with pytest.raises(DamagedStoreError, match="checkpoint location of its own"):
        StreamOffset.from_json(found)
