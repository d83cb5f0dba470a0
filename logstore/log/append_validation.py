"""Pure checks of a batch on its way in, and what the topic's settings change about it.

A batch from elsewhere is proved, records and all, when it is split off (``split_checked``). What comes as a
``CheckedBatch`` was encoded by this process (``own_batch``, or a header that came from the encoder): of that only the
header is looked at, and records are neither decoded nor decompressed (a batch with another codec than the topic's
``compression.type`` is recompressed, its records still untouched) unless the topic compacts: there every record needs
a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logstore.config import TopicConfig
from logstore.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
)
from logstore.format.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    read_header,
    recompress,
    records_section,
    stamp_log_append_time,
)
from logstore.format.proof import prove_batch
from logstore.format.record import check_records
from logstore.format.rows import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, check_timestamp
from logstore.native import compiled
from logstore.types import Buffer


class CheckedBatch(NamedTuple):
    """A batch that may be appended; ``data`` is the caller's bytes unless settings had to change them."""

    data: memoryview
    header: BatchHeader


@compiled("log.checking")
def split_checked(buffer: Buffer, where: str) -> list[CheckedBatch]:
    """The whole batches in ``buffer``, each with magic, length, CRC and records verified (``proof.py``). Errors have
    the batch's ``position`` in the buffer."""
    view, at, found = memoryview(buffer), 0, []
    if not view:
        raise InvalidRecordError(f"append to {where}: the buffer is empty", hint="pass at least one batch")
    while at < len(view):
        header = read_header(view, at)
        if at + header.size > len(view):
            raise CorruptBatchError(
                f"append to {where}: the batch at byte {at} says {header.size} bytes, {len(view) - at} are there"
            )
        check_crc(view, at, header)
        prove_batch(view, at, header)
        found.append(CheckedBatch(view[at : at + header.size], header))
        at += header.size
    return found


@compiled("log.checking")
def check_leader_append(
    batches: Sequence[CheckedBatch], config: TopicConfig, now_ms: int, where: str
) -> list[CheckedBatch]:
    """Batches as the leader stores them. Errors name the rule and the limit; nothing is stored then."""
    if len(batches) == 1:
        return [_check_one(batches[0], config, now_ms, where)]
    return [_check_one(batch, config, now_ms, where) for batch in batches]


def _check_one(batch: CheckedBatch, config: TopicConfig, now_ms: int, where: str) -> CheckedBatch:
    header = batch.header
    attributes = header.attributes
    if attributes & CONTROL_BIT:
        raise InvalidRecordError(
            f"append to {where}: control batches are written by the log itself", hint="send records instead"
        )
    if attributes & TRANSACTIONAL_BIT and header.producer_id < 0:
        raise InvalidRecordError(
            f"append to {where}: a transactional batch without a producer id",
            hint="give it its producer's id",
        )
    if header.records_count < 1 or header.records_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"append to {where}: {header.records_count} records but last offset delta {header.last_offset_delta}",
            hint="a new batch has one record per offset",
        )
    if config.cleanup_policy.compact:
        check_keys(batch, where)
    plain = not attributes & CODEC_MASK and config.compression_type == "producer"
    if not plain and header.codec != config.compression_type != "producer":
        batch = own_batch(recompress(batch.data, config.compression_type, codec_level(config)))
    if config.timestamp_type == "LogAppendTime":
        batch = own_batch(stamp_log_append_time(batch.data, now_ms))
    else:
        _check_times(header, config, now_ms, where)
    limit, setting = config.largest_batch()
    if len(batch.data) > limit:
        raise RecordTooLargeError(
            f"append to {where}: a batch of {len(batch.data)} bytes; {setting} is {limit}",
            hint=f"raise {setting} or send smaller batches",
        )
    return batch


def check_keys(batch: CheckedBatch, where: str) -> None:
    """InvalidRecordError names the first record without a key: in a compacted topic it could never be told
    from the others. The one check that has to look into the records, so that only such topics pay for it."""
    header = batch.header
    try:
        check_records(records_section(batch.data, 0, header), header.records_count, need_key=True)
    except InvalidRecordError as error:
        raise InvalidRecordError(f"append to {where}: {error.message}", hint=error.advice) from None


def own_batch(data: bytes) -> CheckedBatch:
    """A batch that was encoded right here: there is no checksum to be proved."""
    return CheckedBatch(memoryview(data), read_header(data))


def codec_level(config: TopicConfig) -> int | None:
    """The level that the topic sets for its codec; None: the codec has none, or shall choose."""
    return {
        "gzip": None if config.compression_gzip_level < 0 else config.compression_gzip_level,
        "lz4": min(config.compression_lz4_level, 16),  # Kafka's library has a 17th, ours stops here
        "zstd": config.compression_zstd_level,
    }.get(config.compression_type)


def _check_times(header: BatchHeader, config: TopicConfig, now_ms: int, where: str) -> None:
    newest, oldest = header.max_timestamp, header.base_timestamp
    if newest > now_ms + config.timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"append to {where}: timestamp {newest} is {newest - now_ms} ms ahead of this machine's clock",
            hint=f"message.timestamp.after.max.ms allows {config.timestamp_after_max_ms} ms",
        )
    if newest > MAX_TIMESTAMP_MS or oldest < MIN_TIMESTAMP_MS:
        check_timestamp(newest if newest > MAX_TIMESTAMP_MS else oldest, f"append to {where}")
    if oldest < now_ms - config.timestamp_before_max_ms:
        raise InvalidTimestampError(
            f"append to {where}: timestamp {oldest} is {now_ms - oldest} ms behind this machine's clock",
            hint=f"message.timestamp.before.max.ms allows {config.timestamp_before_max_ms} ms",
        )


def check_follower_append(batches: Sequence[CheckedBatch], next_offset: int, epoch: int, where: str) -> None:
    """Offsets and epochs come as they are; a gap, a step back or an older epoch is refused."""
    for batch in batches:
        header = batch.header
        if header.base_offset != next_offset:
            raise InvalidRecordError(
                f"append to {where} as follower: offset {header.base_offset} where {next_offset} is due",
                hint="fetch from the log's end; truncate first if the leader's log diverged",
            )
        if header.leader_epoch < epoch:
            raise InvalidRecordError(
                f"append to {where} as follower: epoch {header.leader_epoch} after epoch {epoch}",
                hint="a newer leader has written here already",
            )
        next_offset, epoch = header.next_offset, header.leader_epoch
