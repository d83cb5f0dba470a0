"""Cross-checks with kafka-python's and aiokafka's codecs, both ways, over random records and all codecs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.format.batch import decode_batches, encode_batch, read_header, recompress
from tests.format.batches import CODECS, FEW, NOW_MS, lists_of_rows, records_of, usual_times
from tests.format.oracles import ORACLES, oracle_decode, oracle_encode

# -1 is aiokafka's sign for a timestamp not yet set, so no negative ones here.
ACCEPTED = lists_of_rows(usual_times)


@pytest.mark.parametrize(("codec", "builder", "reader"), ORACLES)
@FEW
@given(rows=ACCEPTED)
def test_they_read_ours(codec: str, builder: Any, reader: Any, rows: list[Any]) -> None:
    assert oracle_decode(reader, encode_batch(rows, now_ms=NOW_MS, codec=codec)) == records_of(rows)


@pytest.mark.parametrize(("codec", "builder", "reader"), ORACLES)
@FEW
@given(rows=ACCEPTED)
def test_we_read_theirs(codec: str, builder: Any, reader: Any, rows: list[Any]) -> None:
    batch = oracle_encode(builder, rows, codec)
    assert decode_batches(batch, "t", 3) == records_of(rows)
    for other in CODECS:
        assert decode_batches(recompress(batch, other), "t", 3) == records_of(rows)


@pytest.mark.parametrize(("codec", "builder", "reader"), [row for row in ORACLES if row[0] == "none"])
@FEW
@given(
    rows=ACCEPTED,
    producer_id=st.integers(0, 1 << 60),
    producer_epoch=st.integers(0, (1 << 15) - 1),
    base_sequence=st.integers(0, (1 << 31) - 1),
    transactional=st.booleans(),
)
def test_same_bytes(
    codec: str,
    builder: Any,
    reader: Any,
    rows: list[Any],
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> None:
    theirs = oracle_encode(
        builder,
        rows,
        codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=int(transactional),
    )
    ours = encode_batch(
        rows,
        now_ms=NOW_MS,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    assert ours[:12] == theirs[:12]
    assert ours[16:] == theirs[16:]  # kafka-python stamps leader epoch 0


@pytest.mark.parametrize(("codec", "builder", "reader"), ORACLES)
@pytest.mark.parametrize("key", [None, b"key"])
def test_large_batches(codec: str, builder: Any, reader: Any, key: bytes | None) -> None:
    rows: list[Any] = [(key, b"v" * (number % 300)) for number in range(8300)]
    ours = encode_batch(rows, now_ms=NOW_MS, codec=codec)
    assert read_header(ours).codec == codec
    assert oracle_decode(reader, ours) == records_of(rows)
    assert decode_batches(oracle_encode(builder, rows, codec), "t", 3) == records_of(rows)
