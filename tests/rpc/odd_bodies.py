"""Bodies that are no messages of a method, or odd ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rpc.pb import (
    cluster_pb2,
    fetch_pb2,
    groups_pb2,
    offsets_pb2,
    produce_pb2,
    producers_pb2,
    records_pb2,
    security_pb2,
    topics_pb2,
    transactions_pb2,
)

FILES = (
    cluster_pb2,
    fetch_pb2,
    groups_pb2,
    offsets_pb2,
    produce_pb2,
    producers_pb2,
    records_pb2,
    security_pb2,
    topics_pb2,
    transactions_pb2,
)
METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
TEXTS = ("", "t", "g", "..", "a/b", "x" * 300, "\x00", "\U0001f41b", "__consumer_offsets")
NUMBERS = (0, 1, -1, 7, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
ROUNDS = 5


def odd(kind: type[Message], source: random.Random, depth: int = 0) -> Message:
    """A message of odd values."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if source.random() < 0.3 or depth > 3:
            continue
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            inner = odd(GetMessageClass(field.message_type), source, depth + 1)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
            continue
        value: object
        if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            text = source.choice(TEXTS)
            value = text.encode() if field.type == field.TYPE_BYTES else text
        elif field.type == field.TYPE_BOOL:
            value = source.random() < 0.5
        elif field.type == field.TYPE_ENUM:
            value = source.choice((0, 1, 99))
        else:
            small = field.type in (field.TYPE_INT32, field.TYPE_SINT32)
            value = source.choice([n for n in NUMBERS if not small or -(2**31) <= n < 2**31])
            if field.name.endswith("wait_ms"):
                value = min(int(str(value)), 20)  # a wait of a minute is a right answer, too
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


def bodies(kind: type[Message], source: random.Random, rounds: int = ROUNDS) -> Iterator[bytes]:
    for _ in range(rounds):
        yield source.randbytes(source.randint(1, 60))
        whole = odd(kind, source).SerializeToString()
        yield whole
        if whole:
            yield whole[: source.randrange(len(whole))]
            at = source.randrange(len(whole))
            yield whole[:at] + bytes([whole[at] ^ 1 << source.randrange(8)]) + whole[at + 1 :]
