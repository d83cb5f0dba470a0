"""``ArrowEncoder``: rows in Arrow's columns to record batches of one topic, as a producer would make them of rows.

Each row goes to the partition that a producer's record would go to, is checked as a producer checks it, and batches are
cut as a producer cuts them. The compiled twin makes no Python object of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.api.topics import TopicMetadata
from logstore.arguments import refuse_internal
from logstore.client.partitioner import Bucket, checked_partition, empty_buckets, key_partitioner
from logstore.config import CODECS
from logstore.errors import UnsupportedCodecError
from logstore.format.arrow_rows import ArrowRows
from logstore.format.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    encode_batch,
    pack_batch,
)
from logstore.format.compression import codec_id, compress
from logstore.format.record import EncodedRows, encode_rows
from logstore.format.rows import (
    RECORD_OVERHEAD,
    TIMESTAMP_OVERHEAD,
    check_all_keyed,
    check_rows,
    check_sizes,
    cut,
    row_sizes,
)
from logstore.native import compiled

if TYPE_CHECKING:
    import pyarrow as pa

NO_PARTITION = -1


class EncodedBatch(NamedTuple):
    """A record batch and the partition that it is for."""

    partition: int
    batch: bytes
    records: int


class Spread(NamedTuple):
    """Where rows go. ``given``: the partition of all of them, or ``NO_PARTITION``; ``sticky``: the one of null keys, of
    any row where the partitioner is round_robin."""

    partitioner: str
    partitions: int
    given: int
    sticky: int


class Limits(NamedTuple):
    """``cap``: bytes of a batch of several rows; ``most``: of any, as the topic's ``setting`` says; ``keyed``: a key is
    due; ``whole``: a batch is made, and not only its records."""

    cap: int
    most: int
    setting: str
    keyed: bool
    whole: bool


class Encoded(NamedTuple):
    """``parts``: batches, or their records alone, each with its partition; ``sticky``: for the next rows."""

    parts: list[tuple[int, EncodedRows]]
    sticky: int


class ArrowEncoder:
    """Encodes for one topic. ``compression``: of topics that leave it to their producers; ``first``: a number that
    chooses the partition of the first rows without a key. Not thread-safe.

    ``UnsupportedCodecError``; ``InvalidTopicError`` for a topic that is internal; ``InvalidConfigError`` for an unknown
    partitioner.
    """

    def __init__(
        self,
        topic: TopicMetadata,
        *,
        compression: str | None = None,
        batch_bytes: int = 65536,
        first: int = 0,
    ) -> None:
        refuse_internal(topic.name, topic.internal)
        key_partitioner(topic.partitioner, topic.partitions)
        codec = topic.compression if compression in (None, "producer") else compression
        self._codec = "none" if codec in (None, "producer") else codec
        if self._codec not in CODECS:
            raise UnsupportedCodecError(f"compression={compression!r}")
        self._topic = topic
        self._sticky = first % topic.partitions
        self._limits = Limits(
            min(batch_bytes, topic.max_message_bytes),
            topic.max_message_bytes,
            topic.size_setting,
            topic.compacts,
            self._codec == "none",
        )

    def encode(
        self, rows: ArrowRows | pa.RecordBatch, *, now_ms: int, partition: int | None = None
    ) -> list[EncodedBatch]:
        """Batches with all rows, those of a partition in the order given. ``now_ms``: the time of rows without one.

        Errors, after which nothing of ``rows`` counts: ``InvalidRecordError``, ``RecordTooLargeError``,
        ``InvalidTimestampError``, ``UnknownPartitionError``; those of ``ArrowRows`` for a batch.
        """
        topic = self._topic
        given = NO_PARTITION
        if partition is not None:
            given = checked_partition(partition, topic.name, topic.partitions, "the caller")
        if not isinstance(rows, ArrowRows):
            rows = ArrowRows(rows)
        spread = Spread(topic.partitioner, topic.partitions, given, self._sticky)
        found = encode_arrow(rows, f"topic {topic.name!r}", spread, self._limits, now_ms)
        self._sticky = found.sticky
        return [EncodedBatch(number, self._packed(part), part.records_count) for number, part in found.parts]

    def _packed(self, part: EncodedRows) -> bytes:
        if self._limits.whole:
            return part.records
        packed = _batch_of(part, self._codec)
        if len(packed) <= self._limits.most:
            return packed
        return _batch_of(part, "none")  # what does not compress grows a little; plain it fits


def _batch_of(part: EncodedRows, codec: str) -> bytes:
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec_id(codec),
        last_offset_delta=part.records_count - 1,
        base_timestamp=part.base_timestamp,
        max_timestamp=part.max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=part.records_count,
    )
    return pack_batch(header, part.records if codec == "none" else compress(codec, part.records))


@compiled("client.arrow_encoding")
def encode_arrow(rows: ArrowRows, where: str, spread: Spread, limits: Limits, now_ms: int) -> Encoded:
    """Rows to batches, or to the records of batches. Errors: ``ArrowRows.tuples``, ``check_rows``, ``check_sizes``."""
    checked = check_rows(where, rows.tuples())
    if limits.keyed:
        check_all_keyed(where, checked)
    sizes = row_sizes(checked, checked.rows)
    check_sizes(where, checked, limits.most, limits.setting, sizes)
    overhead = RECORD_OVERHEAD + (TIMESTAMP_OVERHEAD if checked.timestamped else 0)
    buckets, sticky = _spread(checked.rows, sizes, overhead, spread, limits.cap)
    parts = []
    for partition, bucket in enumerate(buckets):
        for chunk in cut(bucket.rows, bucket.sizes, checked.timestamped, limits.cap, limits.most):
            part = encode_rows(chunk.rows, now_ms)
            if limits.whole:
                part = part._replace(records=encode_batch(chunk.rows, now_ms=now_ms))
            parts.append((partition, part))
    return Encoded(parts, sticky)


def _spread(
    rows: list[Any], sizes: list[int], overhead: int, spread: Spread, cap: int
) -> tuple[list[Bucket], int]:
    """Rows by partition, in order. Those without a key go on to another partition with each batchful, and with each
    call: so that short calls do not all fill one."""
    partitioner, partitions, given, sticky = spread
    buckets = empty_buckets(partitions)
    if given != NO_PARTITION:
        buckets[given] = Bucket(rows, sizes)
        return buckets, sticky
    by_turns = partitioner == "round_robin"
    choose = None if by_turns else key_partitioner(partitioner, partitions)
    filled = 0
    for row, size in zip(rows, sizes, strict=True):
        if by_turns:
            chosen, sticky = sticky, (sticky + 1) % partitions
        elif row[0] is not None and choose is not None:
            chosen = choose(row[0])
        else:
            more = size + overhead
            if filled and HEADER_SIZE + filled + more > cap:
                filled, sticky = 0, (sticky + 1) % partitions
            filled += more
            chosen = sticky
        buckets[chosen].rows.append(row)
        buckets[chosen].sizes.append(size)
    return buckets, (sticky + 1) % partitions if filled else sticky
