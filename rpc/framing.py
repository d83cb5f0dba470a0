"""Record bytes in protobuf messages without a copy: spliced in as the last field, sliced out as a view.

protobuf copies a ``bytes`` field when a message is made, serialized, parsed and read. The messages that carry records
have them in field 15, their last: a sender serializes the rest, and appends tag, length and the buffers in one join; a
receiver walks the top-level fields, slices the records, and parses the rest. Any order of fields is understood, as
other languages' serializers are free to choose; several fields 15 mean the last, as protobuf says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from logstore.errors import CorruptBatchError
from logstore.format.varint import VARLONG_MAX_BYTES, encode_raw, read_raw
from rpc.errors import MalformedRequestError

RECORDS_FIELD: Final = 15
_TAG: Final = bytes([RECORDS_FIELD << 3 | 2])
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
Parsed = TypeVar("Parsed", bound=Message)


def join(head: Message, buffers: Iterable[bytes | bytearray | memoryview], size: int) -> bytes:
    """The serialized message: ``head``, whose field 15 is not set, and ``buffers`` of ``size`` bytes in all as that
    field."""
    if size == 0:
        return head.SerializeToString()
    return b"".join((head.SerializeToString(), _TAG, encode_raw(size), *buffers))


def split(data: bytes, kind: type[Parsed]) -> tuple[Parsed, memoryview]:
    """The message without its records, and a view of the records in ``data``. MalformedRequestError."""
    view = memoryview(data)
    rest: list[memoryview] = []
    records = view[:0]
    position = kept = 0
    end = len(data)
    try:
        while position < end:
            begin = position
            tag, position = read_raw(data, position, VARLONG_MAX_BYTES)
            wire = tag & 7
            if wire == _BYTES:
                size, position = read_raw(data, position, VARLONG_MAX_BYTES)
                body, position = position, position + size
                if tag >> 3 == RECORDS_FIELD:
                    if position > end:
                        break
                    records = view[body:position]
                    rest.append(view[kept:begin])
                    kept = position
            elif wire == _VARINT:
                _, position = read_raw(data, position, VARLONG_MAX_BYTES)
            elif wire in (_FIXED64, _FIXED32):
                position += 8 if wire == _FIXED64 else 4
            else:
                raise MalformedRequestError(f"a {kind.DESCRIPTOR.name} has a field of wire type {wire}")
    except IndexError as error:
        raise MalformedRequestError(f"a {kind.DESCRIPTOR.name} ends within a number") from error
    except CorruptBatchError as error:
        raise MalformedRequestError(f"a {kind.DESCRIPTOR.name} is none: {error.message}") from error
    if position != end:
        raise MalformedRequestError(f"a {kind.DESCRIPTOR.name} of {end} bytes says that it has {position}")
    rest.append(view[kept:])
    return parse(b"".join(rest), kind), records


def parse(data: bytes, kind: type[Parsed]) -> Parsed:
    """The message. MalformedRequestError."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedRequestError(f"{len(data)} bytes are no {kind.DESCRIPTOR.name}") from error
