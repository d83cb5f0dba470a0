"""Values to protobuf messages of the same field names, and back: for everything that is not on the way of records.

``fill`` goes by the message's fields, ``read`` by the type hints of the value's class (a NamedTuple or a dataclass).
An optional field is None where the message lacks it. A mapping from ``TopicPartition`` is a list of messages with
``topic``, ``partition`` and the fields of the value.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message

from logstore.types import TopicPartition

Value = TypeVar("Value")
Filled = TypeVar("Filled", bound=Message)
_Read = Callable[[Any], Any]


def fill(message: Filled, value: object, **given: object) -> Filled:
    """Set the message's fields from the value's attributes of the same names; ``given`` go before them."""
    for field in message.DESCRIPTOR.fields:
        found = given[field.name] if field.name in given else getattr(value, field.name)
        if found is not None:
            _set(message, field, found)
    return message


def _set(message: Message, field: Any, found: Any) -> None:
    target = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        target.update(found)
    elif field.is_repeated:
        if field.message_type is None:
            target.extend(found)
        elif isinstance(found, Mapping):
            for (topic, partition), one in found.items():
                fill(target.add(), one, topic=topic, partition=partition)
        else:
            for one in found:
                fill(target.add(), one)
    elif field.message_type is not None:
        fill(target, found)
        target.SetInParent()
    else:
        setattr(message, field.name, found)


def read(message: Message, kind: type[Value], **given: object) -> Value:
    """The value of class ``kind`` that the message stands for; ``given``: fields that the message lacks."""
    return kind(**{name: take(message) for name, take in _fields(kind).items() if name not in given}, **given)


def places(messages: Iterable[Any]) -> Collection[TopicPartition]:
    """The partitions that messages with ``topic`` and ``partition`` name."""
    return [TopicPartition(one.topic, one.partition) for one in messages]


_known: dict[type, dict[str, _Read]] = {}


def _fields(kind: type) -> dict[str, _Read]:
    """How each field of ``kind`` is taken from a message; found out once."""
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _found_out(kind)
    return found


def _found_out(kind: Any) -> dict[str, _Read]:
    hints = typing.get_type_hints(kind)
    names = getattr(kind, "_fields", None) or tuple(kind.__dataclass_fields__)
    return {name: _field(name, hints[name]) for name in names}


def _field(name: str, hint: Any) -> _Read:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union) and type(None) in arguments:
        (inner,) = [one for one in arguments if one is not type(None)]
        take = _one(inner)
        return lambda message: take(getattr(message, name)) if message.HasField(name) else None
    if origin in (tuple, frozenset):
        take = _one(arguments[0])
        make = origin
        return lambda message: make(map(take, getattr(message, name)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if arguments[0] is TopicPartition:
            row = _one(arguments[1])
            return lambda message: {
                TopicPartition(one.topic, one.partition): row(one) for one in getattr(message, name)
            }
        return lambda message: dict(getattr(message, name))
    take = _one(hint)
    return lambda message: take(getattr(message, name))


def _one(hint: Any) -> _Read:
    """A single value: a message for classes with fields, else as it is."""
    if isinstance(hint, type) and (hasattr(hint, "_fields") or hasattr(hint, "__dataclass_fields__")):
        return lambda message: read(message, hint)
    return lambda found: found
