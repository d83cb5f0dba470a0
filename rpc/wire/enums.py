"""Words of the API and numbers of the contract: acks, isolation, positions."""

from __future__ import annotations

from typing import Final

from logstore.api.records import OffsetSpec
from logstore.types import Acks, Isolation
from rpc.errors import MalformedRequestError
from rpc.pb import common_pb2, offsets_pb2

_ACKS: Final[dict[Acks, common_pb2.Acks]] = {
    "all": common_pb2.ACKS_ALL,
    0: common_pb2.ACKS_NONE,
    1: common_pb2.ACKS_LEADER,
}
_ACKS_BACK: Final = {number: acks for acks, number in _ACKS.items()}
_ISOLATION: Final[dict[Isolation, common_pb2.Isolation]] = {
    "read_committed": common_pb2.READ_COMMITTED,
    "read_uncommitted": common_pb2.READ_UNCOMMITTED,
}
_ISOLATION_BACK: Final = {number: isolation for isolation, number in _ISOLATION.items()}
_POSITIONS: Final[dict[OffsetSpec, offsets_pb2.OffsetPosition]] = {
    "earliest": offsets_pb2.EARLIEST,
    "latest": offsets_pb2.LATEST,
    "max_timestamp": offsets_pb2.MAX_TIMESTAMP,
}
_POSITIONS_BACK: Final = {number: position for position, number in _POSITIONS.items()}


def acks_to_wire(acks: Acks) -> common_pb2.Acks:
    return _ACKS[acks]


def acks_from_wire(number: common_pb2.Acks) -> Acks:
    """MalformedRequestError for a number that the contract does not have."""
    if number not in _ACKS_BACK:
        raise MalformedRequestError(f"acks={number} is not known")
    return _ACKS_BACK[number]


def isolation_to_wire(isolation: Isolation) -> common_pb2.Isolation:
    return _ISOLATION[isolation]


def isolation_from_wire(number: common_pb2.Isolation) -> Isolation:
    """MalformedRequestError for a number that the contract does not have."""
    if number not in _ISOLATION_BACK:
        raise MalformedRequestError(f"isolation={number} is not known")
    return _ISOLATION_BACK[number]


def set_spec(message: offsets_pb2.ListOffsetsRequest, spec: OffsetSpec) -> None:
    """Put what is looked for into the request."""
    if isinstance(spec, int):
        message.timestamp_ms = spec
    else:
        message.position = _POSITIONS[spec]


def spec_of(message: offsets_pb2.ListOffsetsRequest) -> OffsetSpec:
    """MalformedRequestError for a position that the contract does not have."""
    if message.WhichOneof("spec") == "timestamp_ms":
        return message.timestamp_ms
    if message.position not in _POSITIONS_BACK:
        raise MalformedRequestError(f"position={message.position} is not known")
    return _POSITIONS_BACK[message.position]
