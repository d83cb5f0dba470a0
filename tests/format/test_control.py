"""Control batches: written as Kafka writes them, recognised, never shown as records."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import CorruptBatchError
from logstore.format import control
from logstore.format.batch import check_crc, decode_batches, encode_batch, read_header
from logstore.format.control import ControlType
from tests.format.batches import NOW_MS, golden
from tests.format.oracles import ORACLES


def marker(kind: int = ControlType.COMMIT, **changes: Any) -> bytes:
    settings: dict[str, Any] = {"timestamp_ms": NOW_MS, "producer_id": 77, "producer_epoch": 3}
    return control.encode_control_batch(kind, control.encode_marker(5), **(settings | changes))


def test_commit_marker_is_the_golden_one() -> None:
    batch = golden("batch_control_commit.hex")
    assert marker(timestamp_ms=1_300_000, base_offset=503, leader_epoch=9) == batch
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header.is_control
    assert header.is_transactional
    record = control.decode_control_batch(batch, 0, header)
    assert tuple(record) == (503, 1_300_000, ControlType.COMMIT, bytes.fromhex("000000000005"))
    assert record.is_marker
    assert control.decode_marker(record.value) == 5


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_markers_round_trip_behind_another_batch(kind: ControlType) -> None:
    first = encode_batch([(None, b"v")], now_ms=NOW_MS)
    buffer = first + marker(kind, base_offset=1)
    header = read_header(buffer, len(first))
    record = control.decode_control_batch(buffer, len(first), header)
    assert (record.offset, record.type, record.is_marker) == (1, kind, True)
    assert [record.value for record in decode_batches(buffer, "t", 0)] == [b"v"]


@pytest.mark.parametrize("kind", [ControlType.LEADER_CHANGE, 3, 9])
def test_others_are_recognised_and_not_transactional(kind: int) -> None:
    batch = control.encode_control_batch(kind, b"message", timestamp_ms=NOW_MS, leader_epoch=4)
    header = read_header(batch)
    record = control.decode_control_batch(batch, 0, header)
    assert (record.type, record.value, record.is_marker) == (kind, b"message", False)
    assert not header.is_transactional
    assert header.leader_epoch == 4
    assert decode_batches(batch, "t", 0) == []


@pytest.mark.parametrize("reader", [reader for codec, _, reader in ORACLES if codec == "none"])
def test_other_projects_recognise_ours(reader: Any) -> None:
    batch = reader(marker(ControlType.ABORT))
    assert batch.validate_crc()
    assert batch.is_control_batch
    assert [record.key for record in batch] == [b"\0\0\0\0"]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_keys_that_are_none(key: bytes | None) -> None:
    with pytest.raises(CorruptBatchError, match="control record"):
        control.decode_key(key)


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0", b"\xff\xff\0\0\0\1"])
def test_markers_that_are_none(value: bytes | None) -> None:
    with pytest.raises(CorruptBatchError, match="transaction marker"):
        control.decode_marker(value)


def test_newer_versions_are_read_by_their_known_part() -> None:
    assert control.decode_key(b"\0\1\0\2more") == ControlType.LEADER_CHANGE
    assert control.decode_marker(b"\0\1\0\0\0\7more") == 7


def test_a_control_batch_of_two_records() -> None:
    batch = encode_batch([(b"\0\0\0\1", b"v")] * 2, now_ms=NOW_MS)
    with pytest.raises(CorruptBatchError, match="2 records, not one"):
        control.decode_control_batch(batch, 0, read_header(batch))
