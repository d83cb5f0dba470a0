"""Errors on the wire: each comes back as itself, with all that it carries."""

from __future__ import annotations

import pytest

import logstore.errors
import replication.errors
import rpc.errors
from logstore.errors import CorruptBatchError, LogStoreError, PoisonRecordError, SegmentVanishedError
from replication.errors import NotLeaderError
from rpc.pb import common_pb2 as pb
from rpc.wire.errors import UnknownRemoteError, from_wire, to_wire

KINDS = [
    kind
    for module in (logstore.errors, replication.errors, rpc.errors)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, LogStoreError)
]


def _there_and_back(error: LogStoreError) -> LogStoreError:
    return from_wire(pb.Error.FromString(to_wire(error).SerializeToString()))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_comes_back_with_all_its_attributes(kind: type[LogStoreError]) -> None:
    """One without a path once came back without the attribute."""
    error = kind("what was tried")
    found = _there_and_back(error)
    assert type(found) is kind
    assert vars(found) == vars(error)
    assert str(found) == str(error)


@pytest.mark.parametrize(
    "error",
    [
        CorruptBatchError("bad", hint="look", path="/a/0.log", position=77),
        SegmentVanishedError("gone", lost=(3, 9)),
        PoisonRecordError("odd", topic="t", partition=2, offset=2**62),
        rpc.errors.BrokerBusyError("busy", retry_after_ms=40),
        NotLeaderError("not here", leader_id=3),
        NotLeaderError("not here", leader_id=-1),
    ],
)
def test_numbers_pairs_and_texts_go_along(error: LogStoreError) -> None:
    assert vars(_there_and_back(error)) == vars(error)


def test_an_error_that_is_not_known_says_its_name_and_takes_nothing_over() -> None:
    message = pb.Error(name="NewError", message="what was tried", numbers={"code": 1})
    found = from_wire(message)
    assert type(found) is UnknownRemoteError
    assert "NewError: what was tried" in str(found)
    assert found.code == UnknownRemoteError.code
