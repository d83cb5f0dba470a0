"""What callers give, checked where it comes in: the right kind of value, or an error that says what it may be."""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from logstore.errors import InvalidArgumentError, InvalidTopicError, UnknownSettingError
from logstore.types import TopicPartition

INT64_MAX: Final = 2**63 - 1


def whole(value: object, name: str, low: int = 0, high: int = INT64_MAX) -> int:
    """``value`` as an int in [low, high]; anything that is a whole number will do, but no bool."""
    number: int | None = None
    if not isinstance(value, bool):
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            number = None
    if number is None or not low <= number <= high:
        raise InvalidArgumentError(
            f"{name}={shown(value)}", hint=f"it is a whole number from {low} to {high}"
        )
    return number


def truth(value: object, name: str) -> bool:
    """``value`` if it is a bool: a text like "no" would count as yes."""
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name}={shown(value)}", hint="it is True or False")
    return value


def seconds(value: object, name: str = "timeout_s") -> float:
    """``value`` if it is a number; what is negative counts as no time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise InvalidArgumentError(f"{name}={shown(value)}", hint="it is a number of seconds")
    return min(float(value), 1e9) if abs(value) < 1e300 else (1e9 if value > 0 else 0.0)


def seconds_or_none(value: object, name: str = "timeout_s") -> float | None:
    return None if value is None else seconds(value, name)


def function_or_none(value: Any, name: str) -> None:
    if value is not None and not callable(value):
        raise InvalidArgumentError(f"{name}={shown(value)}", hint="it is a function, or None")


def mapping(value: Any, name: str, of: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{name}={shown(value)}", hint=f"it is a dict of {of}")
    return value


def directory(path: object) -> str:
    """A path as text. Empty ones, and what no file system takes, are refused."""
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]
        good = bool(text) and "\0" not in text and bool(os.fsencode(text))
    except (TypeError, UnicodeError):
        good = False
    if not good:
        raise InvalidArgumentError(f"path={shown(path)}", hint="it is a directory's path, or ':memory:'")
    return text


def names(value: object, name: str) -> tuple[str, ...]:
    """A collection of names; one alone is not taken for a collection of letters."""
    if (
        isinstance(value, str)
        or not isinstance(value, Collection)
        or not all(type(one) is str for one in value)
    ):
        raise InvalidArgumentError(f"{name}={shown(value)}", hint=f"{name} is a list of names")
    return tuple(value)


def partition_place(value: Any) -> TopicPartition:
    """(topic, partition) as such."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return TopicPartition(value[0], whole(value[1], "partition", 0, 2**31 - 1))
    raise InvalidArgumentError(f"{shown(value)} is no partition", hint="it is a (topic, partition) tuple")


def partition_places(
    values: Any, make: Callable[[Any], TopicPartition] = partition_place
) -> list[TopicPartition]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgumentError(
            f"partitions={shown(values)}", hint="it is a list of (topic, partition) tuples"
        )
    return [make(value) for value in values]


def refuse_unknown(settings: Mapping[str, object], known: Iterable[str], call: str, *more: str) -> None:
    """UnknownSettingError names the setting that ``call`` does not have, and the nearest of those that it has:
    ``known`` and ``more``."""
    known = [*known, *more]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            raise UnknownSettingError(
                f"{call} has no setting {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else f"settings are {', '.join(sorted(known))}",
            )


def refuse_internal(name: str, internal: bool) -> None:
    """InvalidTopicError for an internal topic: only coordinators write those. Records of others would be taken for
    decisions, and an owner would keep every process from its groups and transactions."""
    if internal:
        raise InvalidTopicError(
            f"{name!r} is internal: the store alone writes and changes it",
            hint="use a topic of your own; groups and transactions have calls of their own",
        )


def shown(value: object) -> str:
    """For a message: one line, not too long."""
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
