"""Topic settings: text in, typed fields out, every refusal with what to write instead."""

from __future__ import annotations

import dataclasses

import pytest

from logstore.config import SETTINGS, TopicConfig, changed_config, parse_topic_config
from logstore.errors import InvalidConfigError, NotAvailableYetError


def test_the_defaults_of_table_and_fields_agree() -> None:
    assert parse_topic_config({}) == TopicConfig()
    assert parse_topic_config({key: row.default for key, row in SETTINGS.items()}) == TopicConfig()
    in_force = {row.field for row in SETTINGS.values() if row.field is not None}
    assert in_force == {field.name for field in dataclasses.fields(TopicConfig)}


def test_every_row_says_what_it_is() -> None:
    assert all(row.key == key and row.doc for key, row in SETTINGS.items())
    assert {key for key, row in SETTINGS.items() if row.ours} == {
        "partitioner",
        "producer.id.expiration.ms",
        "visible.after",
        "tail.cache.bytes",
    }


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("delete", (False, True)),
        ("compact", (True, False)),
        ("compact,delete", (True, True)),
        ("delete, compact", (True, True)),
    ],
)
def test_cleanup_policies(text: str, policy: tuple[bool, bool]) -> None:
    assert parse_topic_config({"cleanup.policy": text}).cleanup_policy == policy


@pytest.mark.parametrize("text", ["", "none", "compact,compact", "compact;delete", "Compact"])
def test_other_cleanup_policies_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"cleanup\.policy"):
        parse_topic_config({"cleanup.policy": text})


def test_compaction_lags_that_exclude_each_other_are_refused() -> None:
    lags = {"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "999"}
    with pytest.raises(InvalidConfigError, match=r"999 is below min\.compaction\.lag\.ms=1000"):
        parse_topic_config(lags)


def test_values_are_parsed() -> None:
    config = parse_topic_config(
        {"segment.bytes": "2048", "compression.type": "zstd", "visible.after": "append", "flush.ms": "0"}
    )
    assert (config.segment_bytes, config.compression_type) == (2048, "zstd")
    assert (config.visible_after, config.flush_ms) == ("append", 0)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("segment.byte", "segment.bytes"),
        ("retention_ms", "retention.ms"),
        ("max.mesage.bytes", "max.message.bytes"),
        ("compresion.type", "compression.type"),
        ("flush.message", "flush.messages"),
    ],
)
def test_an_unknown_key_names_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"unknown topic setting '{key}'.*did you mean {nearest}"):
        parse_topic_config({key: "1"})


def test_a_key_that_resembles_nothing() -> None:
    with pytest.raises(InvalidConfigError, match="see `logstore topic create --help`"):
        parse_topic_config({"zzz": "1"})


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("segment.bytes", "1023", "must be between 1024 and 2147483647"),
        ("segment.bytes", "2147483648", "must be between"),
        ("segment.bytes", "many", "must be a whole number"),
        ("segment.bytes", "", "must be a whole number"),
        ("segment.index.bytes", "11", "must be between 12"),
        ("max.message.bytes", "0", "must be between 1"),
        ("flush.messages", "0", "must be between 1"),
        ("flush.ms", "-1", "must be between 0"),
        ("compression.type", "brotli", "must be one of producer, none, gzip"),
        ("message.timestamp.type", "Now", "must be one of CreateTime, LogAppendTime"),
        ("partitioner", "md5", "must be one of murmur3, murmur2, crc32, round_robin"),
        ("visible.after", "sync", "must be one of flush, append"),
        ("min.insync.replicas", "2", "must be between 1 and 1"),
        ("min.cleanable.dirty.ratio", "1.5", "must be between 0 and 1"),
        ("preallocate", "yes", "must be one of true, false"),
        ("retention.ms", "-2", "must be between -1"),
    ],
)
def test_a_value_out_of_bounds(key: str, text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"^{key}='{text}' is not valid: .*{message}"):
        parse_topic_config({key: text})


def test_values_are_text() -> None:
    with pytest.raises(InvalidConfigError, match=r"segment.bytes=2048 is not text.*write it as '2048'"):
        parse_topic_config({"segment.bytes": 2048})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("preallocate", "true"),
    ],
)
def test_what_nobody_would_obey_is_refused(key: str, text: str) -> None:
    with pytest.raises(
        NotAvailableYetError, match=f"^{key}=.*not built yet.*leave {key} at {SETTINGS[key].default}"
    ):
        parse_topic_config({key: text})
    assert parse_topic_config({key: SETTINGS[key].default}) == TopicConfig()


def test_changes() -> None:
    config = {"segment.bytes": "2048", "flush.ms": "5"}
    assert changed_config(config, {"segment.bytes": "4096"}) == {"segment.bytes": "4096", "flush.ms": "5"}
    assert changed_config(config, {"flush.ms": None}) == {"segment.bytes": "2048"}
    assert changed_config(config, {"segment.ms": None}) == config  # was not set: nothing to put back
    assert config == {"segment.bytes": "2048", "flush.ms": "5"}
    with pytest.raises(InvalidConfigError, match=r"did you mean segment.ms"):
        changed_config(config, {"segment.mss": None})
    with pytest.raises(InvalidConfigError, match=r"flush.ms='x'"):
        changed_config(config, {"flush.ms": "x"})
