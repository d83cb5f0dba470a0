"""JSON of calls between nodes: its fields, places, and errors of single partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import logstore.errors
import replication.errors
from logstore.errors import InvalidRecordError, LogStoreError, OutcomeUnknownError
from logstore.format.json_document import items, table, text, whole
from logstore.types import TopicPartition

WHERE: Final = "a call between nodes"
_INT64: Final = 2**63


def to_bytes(fields: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": 1, **fields}, ensure_ascii=True).encode("ascii")


def fields_of(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"{WHERE} that is no JSON: {error}") from None
    return table(found, "the request", WHERE)


def places_of(rows: Sequence[object]) -> list[TopicPartition]:
    """Of [topic, partition] each."""
    pairs = [items(one, "a place", WHERE, 2) for one in rows]
    return [
        TopicPartition(text(one[0], "a topic", WHERE), whole(one[1], "a partition", WHERE)) for one in pairs
    ]


def place_of(fields: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(
        text(fields.get("topic"), "topic", WHERE), whole(fields.get("partition"), "partition", WHERE)
    )


def _kinds() -> dict[str, type[LogStoreError]]:
    return {
        name: kind
        for module in (logstore.errors, replication.errors)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, LogStoreError)
    }


_KINDS: Final = _kinds()


def told(error: LogStoreError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    numbers = {
        name: value for name, value in vars(error).items() if type(value) is int and abs(value) < _INT64
    }
    return {"name": type(error).__name__, "message": error.message, "hint": error.advice, "numbers": numbers}


def error_of(value: object) -> LogStoreError:
    """The error by its name; one that this version does not know leaves open what became of the request."""
    fields = table(value, "an error", WHERE)
    name, message = (text(fields.get(key), key, WHERE) for key in ("name", "message"))
    kind = _KINDS.get(name)
    if kind is None:
        return OutcomeUnknownError(f"{name}: {message}")
    error = kind(message, hint=text(fields.get("hint"), "hint", WHERE))
    carried = vars(error)
    for key, number in table(fields.get("numbers"), "numbers", WHERE).items():
        if type(number) is int and type(carried.get(key)) is int:
            carried[key] = number
    return error
