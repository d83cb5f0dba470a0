"""Every refusal of a batch on its way in, and what a topic's settings change about it."""

from __future__ import annotations

import pytest

from logstore.config import TopicConfig
from logstore.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    LogStoreError,
    RecordTooLargeError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from logstore.format.batch import decode_batches, encode_batch, pack_batch, read_header
from logstore.log.append_validation import (
    check_follower_append,
    check_leader_append,
    codec_level,
    split_checked,
)
from tests.format.batches import golden
from tests.log.logs import NOW_MS, batch

DEFAULT = TopicConfig()


def leader(data: bytes, **settings: object) -> list[bytes]:
    config = TopicConfig(**settings)  # type: ignore[arg-type]
    checked = check_leader_append(split_checked(data, "t-0"), config, NOW_MS, "t-0")
    assert all(read_header(item.data) == item.header for item in checked)
    return [bytes(item.data) for item in checked]


def changed(data: bytes, at: int, value: int) -> bytes:
    copy = bytearray(data)
    copy[at] = value
    return bytes(copy)


# --- bytes that are no batches ----------------------------------------------------------------------


def test_several_batches_are_split_and_not_copied() -> None:
    parts = [batch(b"a"), batch(b"b", b"c")]
    found = split_checked(b"".join(parts), "t-0")
    assert [bytes(item.data) for item in found] == parts
    assert leader(b"".join(parts)) == parts


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"", InvalidRecordError, "append to t-0: the buffer is empty"),
        (b"\0" * 20, UnsupportedMagicError, "magic 0"),
        (batch(b"a")[:40], CorruptBatchError, "only 40 bytes are there"),
        (batch(b"a")[:-1], CorruptBatchError, "append to t-0: the batch at byte 0 says"),
        (batch(b"a") + batch(b"b")[:-1], CorruptBatchError, "the batch at byte"),
        (batch(b"a") + b"\0", CorruptBatchError, "only 1 bytes are there"),
        (changed(batch(b"a"), 16, 1), UnsupportedMagicError, "magic 1"),
        (changed(batch(b"a"), 66, 0xFF), CorruptBatchError, "wrong CRC"),
        (changed(batch(b"a"), 20, 0), CorruptBatchError, "wrong CRC"),
    ],
)
def test_what_is_no_batch(data: bytes, kind: type[LogStoreError], message: str) -> None:
    with pytest.raises(kind, match=message):
        split_checked(data, "t-0")


# --- rules of the leader ----------------------------------------------------------------------------


def test_control_batches_are_the_logs_own() -> None:
    with pytest.raises(InvalidRecordError, match="control batches"):
        leader(golden("batch_control_commit.hex"))


def test_a_producers_batch_passes_and_a_transaction_needs_a_producer() -> None:
    rows = [(None, b"a")]
    (kept,) = leader(encode_batch(rows, now_ms=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=0))
    assert read_header(kept).producer_id == 7
    with pytest.raises(InvalidRecordError, match="without a producer id"):
        leader(encode_batch(rows, now_ms=NOW_MS, transactional=True))


@pytest.mark.parametrize(("count", "last_delta"), [(0, 0), (1, 4), (0, 2)])
def test_a_new_batch_has_one_record_per_offset(count: int, last_delta: int) -> None:
    data = batch(b"a")
    header = read_header(data)._replace(records_count=count, last_offset_delta=last_delta)
    with pytest.raises(InvalidRecordError, match=f"{count} records but last offset delta {last_delta}"):
        leader(pack_batch(header, data[61:]))


def test_a_batch_that_is_too_large() -> None:
    data = batch(b"a" * 2_000)
    assert leader(data, max_message_bytes=len(data)) == [data]
    with pytest.raises(RecordTooLargeError, match=f"{len(data)} bytes; max.message.bytes is 1000"):
        leader(data, max_message_bytes=1_000)


def test_the_limit_counts_what_is_stored() -> None:
    data = batch(b"a" * 20_000)
    assert len(leader(data, max_message_bytes=1_000, compression_type="gzip")[0]) < 1_000


def test_timestamps_too_far_ahead_or_behind() -> None:
    ahead = batch(b"a", at_ms=NOW_MS + 3_600_001)
    with pytest.raises(InvalidTimestampError, match=r"ahead.*message\.timestamp\.after\.max\.ms"):
        leader(ahead)
    assert leader(batch(b"a", at_ms=NOW_MS + 3_600_000))
    assert leader(ahead, timestamp_after_max_ms=3_600_001)
    assert leader(batch(b"a", at_ms=0))  # imports of old data are fine
    with pytest.raises(InvalidTimestampError, match=r"behind.*message\.timestamp\.before\.max\.ms"):
        leader(batch(b"a", at_ms=NOW_MS - 11), timestamp_before_max_ms=10)


def test_one_bad_batch_refuses_all() -> None:
    with pytest.raises(InvalidTimestampError):
        leader(batch(b"a") + batch(b"b", at_ms=NOW_MS * 2))


# --- what settings change ---------------------------------------------------------------------------


def test_log_append_time_replaces_times_and_their_bounds() -> None:
    stored = leader(batch(b"a", b"b", at_ms=NOW_MS * 2), timestamp_type="LogAppendTime")[0]
    assert [record.timestamp_ms for record in decode_batches(stored, "t", 0)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("came", ["none", "gzip", "zstd"])
def test_the_topics_codec(codec: str, came: str) -> None:
    data = batch(b"a" * 500, b"b" * 500, codec=came)
    stored = leader(data, compression_type=codec)[0]
    assert read_header(stored).codec == codec
    assert [r.value for r in decode_batches(stored, "t", 0)] == [b"a" * 500, b"b" * 500]
    assert (stored == data) == (codec == came)
    assert leader(data, compression_type="producer") == [data]


def test_the_level_is_that_of_the_codec() -> None:
    config = TopicConfig(compression_type="zstd", compression_zstd_level=19, compression_lz4_level=2)
    assert codec_level(config) == 19
    assert codec_level(TopicConfig(compression_type="lz4", compression_lz4_level=2)) == 2
    assert codec_level(TopicConfig(compression_type="snappy")) is None
    assert codec_level(TopicConfig(compression_type="gzip")) is None  # Kafka's -1: the codec's own
    for codec, key, levels in [
        ("gzip", "gzip", (0, 9)),
        ("lz4", "lz4", (1, 17)),
        ("zstd", "zstd", (-131072, 22)),
    ]:
        for level in levels:
            settings = {"compression_type": codec, f"compression_{key}_level": level}
            assert read_header(leader(batch(b"a" * 100), **settings)[0]).codec == codec


def test_a_codec_that_does_not_exist() -> None:
    data = batch(b"a")
    odd = pack_batch(read_header(data)._replace(attributes=5), data[61:])
    with pytest.raises(UnsupportedCodecError):
        leader(odd)


# --- as follower ------------------------------------------------------------------------------------


def follower(*batches: bytes, next_offset: int = 10, epoch: int = 3) -> None:
    check_follower_append(split_checked(b"".join(batches), "t-0"), next_offset, epoch, "t-0")


def test_offsets_and_epochs_as_they_come() -> None:
    follower(batch(b"a", b"b", base_offset=10, epoch=3), batch(b"c", base_offset=12, epoch=5))


@pytest.mark.parametrize("base", [9, 11])
def test_a_gap_or_a_step_back_is_refused(base: int) -> None:
    with pytest.raises(InvalidRecordError, match=f"offset {base} where 10 is due"):
        follower(batch(b"a", base_offset=base, epoch=3))


def test_a_gap_between_batches_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="offset 12 where 11 is due"):
        follower(batch(b"a", base_offset=10, epoch=3), batch(b"b", base_offset=12, epoch=3))


def test_an_older_epoch_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="epoch 2 after epoch 3"):
        follower(batch(b"a", base_offset=10, epoch=2))
    with pytest.raises(InvalidRecordError, match="epoch 4 after epoch 5"):
        follower(batch(b"a", base_offset=10, epoch=5), batch(b"b", base_offset=11, epoch=4))


def test_records_that_are_not_what_the_header_says_are_refused_with_their_place() -> None:
    first, data = batch(b"a"), batch(b"b", b"c")
    header = read_header(data)
    lying = pack_batch(header._replace(max_timestamp=header.max_timestamp + 1), data[61:])
    with pytest.raises(CorruptBatchError, match=f"the batch at byte {len(first)} does not hold") as caught:
        split_checked(first + lying, "t-0")
    assert caught.value.position == len(first)
