"""Records of ``__transaction_state``: Kafka's bytes for the state of a transactional id.

Layout (big-endian), from Kafka's message schemas ``TransactionLogKey.json`` and ``TransactionLogValue.json``:

    key    version i16 = 0 | transactionalId (length i16, UTF-8)
    value  version i16 (0 or 1; we write 0, and 1 where there are tagged fields of ours)
           producerId i64 | producerEpoch i16 | transactionTimeoutMs i32 | transactionStatus i8
           partitions: count i32, each: topic (length i16, UTF-8) | count i32 | that many i32
             (count -1, null, for EMPTY, as brokers write it)
           lastUpdateTimestampMs i64 | startTimestampMs i64
           version 1: the arrays and the text compact (their count or length + 1 as unsigned varint, 0: null), and
           tagged fields behind each topic and at the end (0 previousProducerId, 1 nextProducerId,
           2 clientTransactionVersion), which are passed over: where a broker meant to go on under nextProducerId
           the epochs have ended, and the next opening takes a fresh producer id. At the end ours, which Kafka's
           readers pass over in their turn:
             10000 coordinator     UTF-8, the id whose participant this one is
             10001 preparedMs      i64, since when the transaction is prepared; its status is ONGOING
             10002 decides         compact array of what a decided outcome commits of the id's participants, each:
                                   transactionalId (compact) | producerId i64 | producerEpoch i16 | tagged fields
    null   forgets the id
"""

from __future__ import annotations

import struct
from itertools import groupby
from operator import attrgetter
from typing import Final

from logstore.api.transactions import PreparedTransaction
from logstore.errors import UnsupportedStoreVersionError
from logstore.format.varint import encode_raw
from logstore.groups.fields import (
    NO_TAGS,
    NULL,
    FieldReader,
    compact_string,
    i32s,
    string,
    tags,
)
from logstore.transactions.transaction import TransactionState, TransactionStatus
from logstore.types import TopicPartition

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0
NEWEST_VALUE_VERSION: Final = 1
COORDINATOR_TAG: Final = 10_000
PREPARED_TAG: Final = 10_001
DECIDES_TAG: Final = 10_002
TOPIC: Final = "__transaction_state"

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_WRITER = struct.Struct(">qh")
_HEAD = struct.Struct(">hqhib")  # version, producerId, producerEpoch, timeoutMs, status
_NULL_ARRAY = _I32.pack(-1)
_TIMES = struct.Struct(">qq")


def encode_key(transactional_id: str) -> bytes:
    return _I16.pack(KEY_VERSION) + string(transactional_id)


def encode_value(state: TransactionState) -> bytes:
    extra = _own_tags(state)
    version = NEWEST_VALUE_VERSION if extra else VALUE_VERSION
    head = _HEAD.pack(version, state.producer_id, state.epoch, state.timeout_ms, state.status)
    by_topic = [(name, list(places)) for name, places in groupby(state.places, attrgetter("topic"))]
    empty = state.status is TransactionStatus.EMPTY
    times = _TIMES.pack(state.updated_ms, state.start_ms)
    if extra:
        return b"".join((head, *_compact_topics(by_topic, null=empty), times, tags(extra)))
    parts = [head, _NULL_ARRAY if empty and not by_topic else _I32.pack(len(by_topic))]
    for name, places in by_topic:
        partitions = [place.partition for place in places]
        parts += (string(name), struct.pack(f">{len(partitions) + 1}i", len(partitions), *partitions))
    parts.append(times)
    return b"".join(parts)


def _compact_topics(by_topic: list[tuple[str, list[TopicPartition]]], *, null: bool) -> list[bytes]:
    parts = [NULL if null and not by_topic else encode_raw(len(by_topic) + 1)]
    for name, places in by_topic:
        parts += (compact_string(name), i32s([place.partition for place in places]), NO_TAGS)
    return parts


def _own_tags(state: TransactionState) -> dict[int, bytes]:
    found = {}
    if state.coordinator is not None:
        found[COORDINATOR_TAG] = state.coordinator.encode()
    if state.prepared_ms >= 0:
        found[PREPARED_TAG] = _I64.pack(state.prepared_ms)
    if state.decides is not None:
        parts = [encode_raw(len(state.decides) + 1)]
        for name, producer_id, epoch in state.decides:
            parts += (compact_string(name), _WRITER.pack(producer_id, epoch), NO_TAGS)
        found[DECIDES_TAG] = b"".join(parts)
    return found


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
    found = reader.tags() if version >= 1 else {}
    reader.finish()
    coordinator, prepared_ms, decides = _take_own(found, reader)
    return TransactionState(
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        TransactionStatus(status),
        tuple(sorted(set(places))),
        updated_ms,
        start_ms,
        coordinator,
        prepared_ms,
        decides,
    )


def _take_own(
    found: dict[int, bytes], reader: FieldReader
) -> tuple[str | None, int, tuple[PreparedTransaction, ...] | None]:
    """The tagged fields of ours. ``reader``: says what is malformed."""
    coordinator, prepared_ms, decides = None, -1, None
    if (name := found.get(COORDINATOR_TAG)) is not None:
        try:
            coordinator = name.decode()
        except UnicodeDecodeError as error:
            raise reader.malformed(f"the coordinator's name is not UTF-8: {error.reason}") from None
    if (since := found.get(PREPARED_TAG)) is not None:
        if len(since) != _I64.size:
            raise reader.malformed(f"a time of preparation of {len(since)} bytes")
        (prepared_ms,) = _I64.unpack(since)
    if (listed := found.get(DECIDES_TAG)) is not None:
        decides = _prepared(FieldReader(listed, "list of the transactions that an outcome decides", TOPIC))
    return coordinator, max(prepared_ms, -1), decides


def _prepared(reader: FieldReader) -> tuple[PreparedTransaction, ...]:
    found = []
    for _ in range(reader.count()):
        found.append(PreparedTransaction(reader.compact_string(), reader.i64(), reader.i16()))
        reader.tags()
    reader.finish()
    return tuple(found)


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
