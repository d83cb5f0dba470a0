"""Two other projects' codecs of the same format: what they write we must read, and the other way round."""

from __future__ import annotations

import warnings
from typing import Any

from aiokafka import codec as aio_codec  # type: ignore[import-untyped]
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch  # type: ignore[import-untyped]
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder

from logstore.types import Record
from tests.format.batches import CODECS, records_of

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function that Python 3.11 deprecates; nothing of ours does.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as kafka_codec  # type: ignore[import-untyped]
    from kafka.record.default_records import DefaultRecordBatch as KafkaBatch  # type: ignore[import-untyped]
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
    from kafka.record.util import encode_varint as kafka_encode_varint  # type: ignore[import-untyped]

__all__ = ["CODEC_ORACLES", "ORACLES", "kafka_encode_varint", "oracle_decode", "oracle_encode"]

ORACLES: list[tuple[str, Any, Any]] = [
    (codec, builder, reader)
    for codec in CODECS
    for builder, reader in ((KafkaBuilder, KafkaBatch), (AioBuilder, AioBatch))
    # kafka-python's snappy wants a package of its own; aiokafka's uses ours.
    if (codec, builder) != ("snappy", KafkaBuilder)
]
"""(codec, builder of batches, reader of batches)"""

CODEC_ORACLES: list[tuple[str, Any, Any]] = [
    ("gzip", kafka_codec.gzip_encode, kafka_codec.gzip_decode),
    ("gzip", aio_codec.gzip_encode, aio_codec.gzip_decode),
    ("snappy", aio_codec.snappy_encode, aio_codec.snappy_decode),
    ("lz4", kafka_codec.lz4_encode, kafka_codec.lz4_decode),
    ("lz4", aio_codec.lz4_encode, aio_codec.lz4_decode),
    ("zstd", kafka_codec.zstd_encode, kafka_codec.zstd_decode),
    ("zstd", aio_codec.zstd_encode, aio_codec.zstd_decode),
]
"""(codec, compress, decompress)"""


def oracle_encode(builder_class: Any, rows: list[Any], codec: str, **producer: int) -> bytes:
    """A batch of ``rows`` by another project's builder."""
    builder = builder_class(
        magic=2,
        compression_type=CODECS.index(codec),
        is_transactional=producer.get("is_transactional", 0),
        producer_id=producer.get("producer_id", -1),
        producer_epoch=producer.get("producer_epoch", -1),
        base_sequence=producer.get("base_sequence", -1),
        batch_size=1 << 30,
    )
    for record in records_of(rows):
        builder.append(
            record.offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return bytes(builder.build())


def oracle_decode(batch_class: Any, batch: bytes) -> list[Record]:
    """The records that another project's reader finds; its CRC check must agree too."""
    reader = batch_class(batch)
    assert reader.validate_crc()
    return [
        Record("t", 3, record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in reader
    ]
