"""Topic settings: one table with Kafka's names, types, defaults and bounds, and our own keys marked as such.

A setting is text in the catalogue and on the command line, and a typed field of ``TopicConfig`` inside.
Settings that belong to features this version does not have are known, and refused unless they ask for what
happens anyway: accepting a limit that nobody enforces would be a silent lie.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from logstore.arguments import mapping
from logstore.errors import InvalidConfigError, NotAvailableYetError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONERS = ("murmur3", "murmur2", "crc32", "round_robin")
_NUMBER = re.compile(r"-?[0-9]{1,20}")  # int() also takes 1_000 and other scripts' digits
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class CleanupPolicy(NamedTuple):
    """``compact``: only the last value of each key stays; ``delete``: retention takes old segments."""

    compact: bool = False
    delete: bool = True


_DELETE = CleanupPolicy()


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicConfig:
    """A topic's settings in force. Times in ms, sizes in bytes; names follow the table ``SETTINGS``."""

    segment_bytes: int = 1 << 30  # a segment rolls before it would pass this size
    segment_ms: int = 7 * 24 * 3600 * 1000  # age (by record time) at which a segment rolls
    segment_jitter_ms: int = 0  # up to this much is taken off segment.ms, by partition, to spread rolls
    segment_index_bytes: int = 10 << 20  # an index of this size rolls its segment
    index_interval_bytes: int = 4096  # log bytes between two index entries
    max_message_bytes: int = 1_048_588  # largest batch, after compression
    timestamp_type: str = "CreateTime"  # or LogAppendTime
    timestamp_before_max_ms: int = INT64_MAX  # how far in the past a record's time may lie
    timestamp_after_max_ms: int = 3_600_000  # how far in the future
    flush_messages: int = INT64_MAX  # records appended without sync before one is forced
    flush_ms: int = 100  # longest time a record stays unsynced
    compression_type: str = "producer"  # codec of stored batches; "producer" keeps what comes
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    retention_ms: int = -1  # age by record time at which a closed segment goes; -1 keeps all
    retention_bytes: int = -1  # size that the partition may keep; -1 keeps all
    file_delete_delay_ms: int = 60_000  # from a segment's retirement to the removal of its files
    cleanup_policy: CleanupPolicy = _DELETE  # what keeps the log from growing for ever
    delete_retention_ms: int = 86_400_000  # how long a tombstone outlives its first cleaning
    min_cleanable_dirty_ratio: float = 0.5  # share of uncleaned bytes that starts a cleaning
    min_compaction_lag_ms: int = 0  # a record younger than this is not cleaned
    max_compaction_lag_ms: int = INT64_MAX  # an uncleaned record older than this starts a cleaning
    producer_expiration_ms: int = 86_400_000  # a producer id idle this long is forgotten
    partitioner: str = "murmur3"
    visible_after: str = "flush"  # flush: shown once synced; append: at once
    tail_cache_bytes: int = 1 << 20  # newest bytes kept in memory for tailing readers

    def largest_batch(self) -> tuple[int, str]:
        """The most bytes that a batch may have, and the setting that says so: a segment holds at least one."""
        if self.segment_bytes < self.max_message_bytes:
            return self.segment_bytes, "segment.bytes"
        return self.max_message_bytes, "max.message.bytes"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: Kafka's (or our) key, the ``TopicConfig`` field (None: not in force yet), parse and default."""

    key: str
    field: str | None
    parse: Callable[[str], Any]
    default: str
    doc: str
    ours: bool = False


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _NUMBER.fullmatch(text):
            raise ValueError("must be a whole number")
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    return parse


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return parse


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must be between 0 and 1")
    return value


def _cleanup_policy(text: str) -> CleanupPolicy:
    names = [name.strip() for name in text.split(",")]
    if not set(names) <= {"compact", "delete"} or len(names) != len(set(names)):
        raise ValueError("must be delete, compact, or compact,delete")
    return CleanupPolicy("compact" in names, "delete" in names)


_COUNT = _whole(0, INT64_MAX)
_LIMIT = _whole(-1, INT64_MAX)

SETTINGS: dict[str, Setting] = {
    row.key: row
    for row in (
        Setting("segment.bytes", "segment_bytes", _whole(1024, INT32_MAX), str(1 << 30), "roll size"),
        Setting("segment.ms", "segment_ms", _whole(1, INT64_MAX), "604800000", "roll age by record time"),
        Setting("segment.jitter.ms", "segment_jitter_ms", _COUNT, "0", "most taken off segment.ms"),
        Setting(
            "segment.index.bytes", "segment_index_bytes", _whole(12, INT32_MAX), "10485760", "index size"
        ),
        Setting(
            "index.interval.bytes", "index_interval_bytes", _whole(0, INT32_MAX), "4096", "index spacing"
        ),
        Setting("max.message.bytes", "max_message_bytes", _whole(1, INT32_MAX), "1048588", "largest batch"),
        Setting(
            "message.timestamp.type",
            "timestamp_type",
            _one_of("CreateTime", "LogAppendTime"),
            "CreateTime",
            "whose time a record carries",
        ),
        Setting(
            "message.timestamp.before.max.ms",
            "timestamp_before_max_ms",
            _COUNT,
            str(INT64_MAX),
            "oldest record",
        ),
        Setting(
            "message.timestamp.after.max.ms", "timestamp_after_max_ms", _COUNT, "3600000", "newest record"
        ),
        Setting("flush.messages", "flush_messages", _whole(1, INT64_MAX), str(INT64_MAX), "records per sync"),
        Setting("flush.ms", "flush_ms", _COUNT, "100", "longest time unsynced (Kafka: never)"),
        Setting(
            "compression.type", "compression_type", _one_of("producer", *CODECS), "producer", "stored codec"
        ),
        Setting("compression.gzip.level", "compression_gzip_level", _whole(-1, 9), "-1", "gzip level"),
        Setting("compression.lz4.level", "compression_lz4_level", _whole(1, 17), "9", "lz4 level"),
        Setting("compression.zstd.level", "compression_zstd_level", _whole(-131072, 22), "3", "zstd level"),
        Setting("min.insync.replicas", "min_insync_replicas", _whole(1, 1), "1", "1 while embedded"),
        Setting("retention.ms", "retention_ms", _LIMIT, "-1", "age at which segments go (ours: keep all)"),
        Setting("retention.bytes", "retention_bytes", _LIMIT, "-1", "size at which segments go"),
        Setting(
            "file.delete.delay.ms", "file_delete_delay_ms", _COUNT, "60000", "wait before a file is removed"
        ),
        Setting(
            "cleanup.policy", "cleanup_policy", _cleanup_policy, "delete", "delete, compact or compact,delete"
        ),
        Setting("delete.retention.ms", "delete_retention_ms", _COUNT, "86400000", "how long tombstones stay"),
        Setting(
            "min.cleanable.dirty.ratio",
            "min_cleanable_dirty_ratio",
            _fraction,
            "0.5",
            "dirt that starts a cleaning",
        ),
        Setting("min.compaction.lag.ms", "min_compaction_lag_ms", _COUNT, "0", "youngest record to clean"),
        Setting(
            "max.compaction.lag.ms",
            "max_compaction_lag_ms",
            _whole(1, INT64_MAX),
            str(INT64_MAX),
            "oldest uncleaned record",
        ),
        # known to Kafka's users, not in force yet: only the value that describes what happens is taken
        Setting("preallocate", None, _one_of("true", "false"), "false", "reserve files ahead"),
        # our own (the first is a broker's setting in Kafka)
        Setting(
            "producer.id.expiration.ms",
            "producer_expiration_ms",
            _whole(1, INT64_MAX),
            "86400000",
            "idle time after which a producer id is forgotten",
            True,
        ),
        Setting("partitioner", "partitioner", _one_of(*PARTITIONERS), "murmur3", "key -> partition", True),
        Setting(
            "visible.after", "visible_after", _one_of("flush", "append"), "flush", "when readers see it", True
        ),
        Setting(
            "tail.cache.bytes", "tail_cache_bytes", _whole(0, 1 << 30), "1048576", "tail in memory", True
        ),
    )
}


def parse_topic_config(config: Mapping[str, str]) -> TopicConfig:
    """Typed settings from text. InvalidConfigError names the key, the value and what it may be; a key that
    does not exist suggests the nearest; NotAvailableYetError for a feature that is still to come."""
    fields: dict[str, Any] = {}
    for key, text in mapping(config, "config", "settings, text to text").items():
        row = SETTINGS.get(key)
        if row is None:
            near = difflib.get_close_matches(str(key), SETTINGS, n=1)
            advice = f"did you mean {near[0]}?" if near else "see `logstore topic create --help` for the keys"
            raise InvalidConfigError(f"unknown topic setting {key!r}", hint=advice)
        if not isinstance(text, str):
            raise InvalidConfigError(f"{key}={text!r} is not text", hint=f"write it as {str(text)!r}")
        try:
            value = row.parse(text)
        except ValueError as error:
            raise InvalidConfigError(f"{key}={text!r} is not valid: {error}", hint=row.doc) from None
        if row.field is not None:
            fields[row.field] = value
        elif text != row.default:
            raise NotAvailableYetError(
                f"{key}={text!r}: {row.doc} is not built yet, and a setting nobody obeys is refused",
                hint=f"leave {key} at {row.default}",
            )
    parsed = TopicConfig(**fields)
    if parsed.max_compaction_lag_ms < parsed.min_compaction_lag_ms:
        raise InvalidConfigError(
            f"max.compaction.lag.ms={parsed.max_compaction_lag_ms} is below min.compaction.lag.ms="
            f"{parsed.min_compaction_lag_ms}: a record would be due before it may be touched",
            hint="raise the first or lower the second",
        )
    return parsed


def changed_config(config: Mapping[str, str], change: Mapping[str, str | None]) -> dict[str, str]:
    """``config`` with ``change`` applied (None removes a key), validated as a whole."""
    for key in mapping(change, "config", "settings, text to text or None"):
        if key not in SETTINGS:
            parse_topic_config({key: ""})
    merged = dict(config) | {key: text for key, text in change.items() if text is not None}
    for key, text in change.items():
        if text is None:
            merged.pop(key, None)
    parse_topic_config(merged)
    return merged
