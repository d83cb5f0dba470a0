"""Records of ``__transaction_state``: Kafka's bytes for the state of a transactional id.

Layout (big-endian), from Kafka's message schemas ``TransactionLogKey.json`` and ``TransactionLogValue.json``:

    key    version i16 = 0 | transactionalId (length i16, UTF-8)
    value  version i16 (0 or 1; we write 0)
           producerId i64 | producerEpoch i16 | transactionTimeoutMs i32 | transactionStatus i8
           partitions: count i32, each: topic (length i16, UTF-8) | count i32 | that many i32
             (count -1, null, for EMPTY, as brokers write it)
           lastUpdateTimestampMs i64 | startTimestampMs i64
           version 1: the arrays and the text compact (their count or length + 1 as unsigned varint, 0: null), and
           tagged fields behind each topic and at the end (0 previousProducerId, 1 nextProducerId,
           2 clientTransactionVersion), which are passed over: where a broker meant to go on under nextProducerId
           the epochs have ended, and the next opening takes a fresh producer id
    null   forgets the id
"""

from __future__ import annotations

import struct
from itertools import groupby
from operator import attrgetter
from typing import Final

from logstore.errors import UnsupportedStoreVersionError
from logstore.groups.fields import FieldReader, string
from logstore.transactions.transaction import TransactionState, TransactionStatus
from logstore.types import TopicPartition

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0
NEWEST_VALUE_VERSION: Final = 1
TOPIC: Final = "__transaction_state"

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_HEAD = struct.Struct(">hqhib")  # version, producerId, producerEpoch, timeoutMs, status
_NULL_ARRAY = _I32.pack(-1)
_TIMES = struct.Struct(">qq")


def encode_key(transactional_id: str) -> bytes:
    return _I16.pack(KEY_VERSION) + string(transactional_id)


def encode_value(state: TransactionState) -> bytes:
    head = _HEAD.pack(VALUE_VERSION, state.producer_id, state.epoch, state.timeout_ms, state.status)
    by_topic = [(name, list(places)) for name, places in groupby(state.places, attrgetter("topic"))]
    empty = state.status is TransactionStatus.EMPTY
    parts = [head, _NULL_ARRAY if empty and not by_topic else _I32.pack(len(by_topic))]
    for name, places in by_topic:
        partitions = [place.partition for place in places]
        parts += (string(name), struct.pack(f">{len(partitions) + 1}i", len(partitions), *partitions))
    parts.append(_TIMES.pack(state.updated_ms, state.start_ms))
    return b"".join(parts)


def decode_key(key: bytes) -> str | None:
    """The transactional id, or None for another version's kind of key. InvalidRecordError if malformed."""
    reader = FieldReader(key, "key of a transaction", TOPIC)
    if reader.i16() != KEY_VERSION:
        return None
    transactional_id = reader.string()
    reader.finish()
    return transactional_id


def decode_value(transactional_id: str, value: bytes) -> TransactionState:
    """Versions 0 and 1. InvalidRecordError if malformed, UnsupportedStoreVersionError for a newer version."""
    reader = FieldReader(value, f"state of transactional id {transactional_id!r}", TOPIC)
    version = reader.i16()
    if version > NEWEST_VALUE_VERSION:
        raise UnsupportedStoreVersionError(
            f"state of transactional id {transactional_id!r} in value version {version}: this version reads 0 to "
            f"{NEWEST_VALUE_VERSION}"
        )
    if version < 0:
        raise reader.malformed(f"version {version}")
    producer_id, epoch, timeout_ms, status = reader.i64(), reader.i16(), reader.i32(), reader.i8()
    for name, number in (("producer id", producer_id), ("epoch", epoch)):
        if number < -1:
            raise reader.malformed(f"{name} {number}")
    if status not in TransactionStatus.__members__.values():
        raise reader.malformed(f"transaction status {status}")
    places = _compact_places(reader) if version >= 1 else _places(reader)
    updated_ms, start_ms = reader.i64(), reader.i64()
    if version >= 1:
        reader.tags()
    reader.finish()
    return TransactionState(
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        TransactionStatus(status),
        tuple(sorted(set(places))),
        updated_ms,
        start_ms,
    )


def _places(reader: FieldReader) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    topics = reader.i32()
    if topics < -1:
        raise reader.malformed(f"an array of {topics} topics")
    for _ in range(topics):  # one that is too long runs into the end
        topic, count = reader.string(), reader.i32()
        numbers = struct.unpack(f">{max(count, 0)}i", reader.raw(4 * count))
        found += (TopicPartition(topic, number) for number in numbers)
    return found


def _compact_places(reader: FieldReader) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for _ in range(reader.unsigned_varint() - 1):
        topic = reader.compact_string()
        found += (TopicPartition(topic, number) for number in reader.i32s())
        reader.tags()
    return found
