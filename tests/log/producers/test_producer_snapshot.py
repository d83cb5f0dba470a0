"""The snapshot file: its bytes as Kafka lays them out, the round trip, and every damage told."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from logstore.errors import CorruptBatchError
from logstore.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from logstore.log.producers.producer_state import SEQUENCE_MASK, ProducerEntry, RememberedBatch

BATCHES = [RememberedBatch(0, 4, 10, 14, 1_000), RememberedBatch(5, 7, 20, 22, 2_000)]
ENTRIES = [
    ProducerEntry(3, 2, BATCHES, coordinator_epoch=6, transaction_start=20),
    ProducerEntry(4, 1, [], coordinator_epoch=0),
    ProducerEntry(5, 0, [RememberedBatch(SEQUENCE_MASK, 1, 30, 32, 3_000)]),
]


def test_golden() -> None:
    rest = (
        bytes.fromhex("00000001")  # one producer
        + bytes.fromhex("0000000000000003 0002 00000007 0000000000000016 00000002")
        + bytes.fromhex("00000000000007d0 00000006 0000000000000014")
    )
    data = encode_snapshot(ENTRIES[:1])
    assert data == bytes.fromhex("0001") + crc32c(rest).to_bytes(4, "big") + rest


def test_what_comes_back_is_the_newest_batch_of_each() -> None:
    found = decode_snapshot(encode_snapshot(ENTRIES), "s")
    assert [entry.facts() for entry in found] == [entry.facts() for entry in ENTRIES]
    assert [len(entry.batches) for entry in found] == [1, 0, 1]


def test_nobody() -> None:
    assert decode_snapshot(encode_snapshot([]), "s") == []


def test_every_flipped_bit_and_every_length_is_told() -> None:
    data = encode_snapshot(ENTRIES)
    for position in range(len(data) * 8):
        broken = bytearray(data)
        broken[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptBatchError) as caught:
            decode_snapshot(bytes(broken), "t-0/9.snapshot")
        assert caught.value.path == "t-0/9.snapshot"
    for length in range(len(data)):
        with pytest.raises(CorruptBatchError):
            decode_snapshot(data[:length], "s")


def test_numbers_that_cannot_be() -> None:
    entry = ProducerEntry(3, 2, [RememberedBatch(0, 0, 10, 9, 0)])
    with pytest.raises(CorruptBatchError, match="producer 3 has"):
        decode_snapshot(encode_snapshot([entry]), "s")
