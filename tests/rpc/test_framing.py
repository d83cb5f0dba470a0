"""Record bytes spliced into messages and sliced out: what protobuf itself would make and read; and named errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpc.errors import MalformedRequestError
from rpc.framing import join, parse, split
from rpc.pb import produce_pb2 as pb

HEADS = st.builds(
    pb.ProduceRequest,
    timeout_ms=st.integers(0, 2**31 - 1),
    correlation_id=st.integers(-(2**63), 2**63 - 1),
    batches=st.lists(
        st.builds(pb.ProduceBatch, topic=st.text(max_size=20), partition=st.integers(0, 9)), max_size=4
    ),
)


@given(HEADS, st.lists(st.binary(max_size=300), max_size=4))
def test_what_is_joined_is_what_protobuf_serializes(head: pb.ProduceRequest, buffers: list[bytes]) -> None:
    records = b"".join(buffers)
    joined = join(head, buffers, len(records))
    whole = pb.ProduceRequest()
    whole.CopyFrom(head)
    whole.records = records
    assert joined == whole.SerializeToString()
    found, view = split(joined, pb.ProduceRequest)
    assert found == head
    assert bytes(view) == records


@given(HEADS, st.binary(max_size=300), st.binary(min_size=1, max_size=30))
def test_the_records_may_stand_anywhere_and_the_last_count(
    head: pb.ProduceRequest, records: bytes, others: bytes
) -> None:
    first = pb.ProduceRequest(records=others).SerializeToString()
    last = pb.ProduceRequest(records=records).SerializeToString()
    found, view = split(first + last + head.SerializeToString(), pb.ProduceRequest)
    assert found == head
    assert bytes(view) == (records or others)


def test_the_records_are_not_copied() -> None:
    data = join(pb.ProduceRequest(timeout_ms=5), [b"x" * 1000], 1000)
    _, view = split(data, pb.ProduceRequest)
    assert view.obj is data


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_named_error(data: bytes) -> None:
    try:
        whole = parse(data, pb.ProduceRequest)
    except MalformedRequestError:
        whole = None
    try:
        found, view = split(data, pb.ProduceRequest)
    except MalformedRequestError:
        return  # groups, which protobuf skips, are refused as well
    assert whole is not None
    assert bytes(view) == whole.records
    whole.ClearField("records")
    assert found == whole


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_message_that_is_cut_off(cut: int) -> None:
    data = join(pb.ProduceRequest(timeout_ms=5), [b"x" * 40], 40)
    with pytest.raises(MalformedRequestError):
        split(data[:-cut], pb.ProduceRequest)
