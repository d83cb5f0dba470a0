"""The transaction index's rows, torn and damaged ones, and which rows a read has to know."""

from __future__ import annotations

import pytest

from logstore.errors import CorruptBatchError
from logstore.format.batch import encode_batch, iter_headers
from logstore.format.control import encode_control_batch, encode_marker
from logstore.log.producers.isolation import without_aborted
from logstore.log.producers.transaction_index import AbortedTransaction, decode_rows, encode_rows
from tests.log.logs import NOW_MS

ROWS = [AbortedTransaction(1, 5, 20, 8), AbortedTransaction(2, 8, 30, 31)]


def test_golden() -> None:
    assert encode_rows(ROWS[:1]) == bytes.fromhex(
        "0000 0000000000000001 0000000000000005 0000000000000014 0000000000000008"
    )


def test_a_row_that_is_not_all_there_is_left_out() -> None:
    data = encode_rows(ROWS)
    assert decode_rows(data, "t", 10) == ROWS
    for length in range(len(data)):
        assert decode_rows(data[:length], "t", 10) == ROWS[: length // 34]


@pytest.mark.parametrize(
    "row",
    [
        AbortedTransaction(-1, 5, 40, 8),
        AbortedTransaction(1, -1, 40, 8),
        AbortedTransaction(1, 41, 40, 8),
        AbortedTransaction(1, 5, 30, 8),
    ],
)
def test_rows_that_cannot_be(row: AbortedTransaction) -> None:
    with pytest.raises(CorruptBatchError) as caught:
        decode_rows(encode_rows([*ROWS, row]), "t/1.txnindex", 10)
    assert (caught.value.path, caught.value.position) == ("t/1.txnindex", 68)
    with pytest.raises(CorruptBatchError):
        decode_rows(b"\x00\x01" + encode_rows(ROWS)[2:], "t", 10)


@pytest.mark.parametrize("tail", [bytes(34), b"\xff" * 34, encode_rows(ROWS[:1]), b"\x00"])
def test_before_an_offset_whatever_follows_ends_the_list(tail: bytes) -> None:
    assert decode_rows(encode_rows(ROWS) + tail, "t", 10, before=31) == ROWS
    assert decode_rows(encode_rows(ROWS) + tail, "t", 10, before=30) == ROWS[:1]


def test_batches_of_aborted_transactions_are_left_out_in_runs() -> None:
    def data(producer: int, offset: int, *, transactional: bool = True) -> bytes:
        return encode_batch(
            [(None, b"v")],
            now_ms=NOW_MS,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )

    def end(producer: int, offset: int) -> bytes:
        return encode_control_batch(
            0,
            encode_marker(0),
            timestamp_ms=NOW_MS,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
        )

    parts = [data(1, 0), data(1, 1), data(2, 2), data(-1, 3, transactional=False), end(1, 4), data(1, 5)]
    whole = b"".join(parts)
    rows = [AbortedTransaction(1, 1, 4, 5)]
    kept = without_aborted(whole, rows)
    assert [header.base_offset for _, header in iter_headers(kept)] == [0, 2, 3, 4, 5]
    assert kept == b"".join(parts[:1] + parts[2:])
    assert without_aborted(whole, []) is whole
    assert without_aborted(whole, [AbortedTransaction(9, 0, 9, 9)]) is whole
    assert without_aborted(parts[1], rows) == b""
