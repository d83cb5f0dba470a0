"""Arguments that no message can carry, refused by the errors that a broker would give, had they reached it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from logstore.arguments import INT64_MAX, mapping, shown, whole
from logstore.errors import (
    InvalidArgumentError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    InvalidTransactionIdError,
    LogStoreError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from logstore.types import TopicPartition

_MOST_PARTITIONS = 2**31 - 1


def _is_text(value: object) -> bool:
    """Whether it is a str that UTF-8 can hold: no half of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _text(value: str, refusal: type[LogStoreError], what: str) -> str:
    if not _is_text(value):
        raise refusal(f"{what} {shown(value)} is no valid text")
    return value


def known_topic(name: str) -> str:
    """The name of a topic that is to be there. UnknownTopicError."""
    return _text(name, UnknownTopicError, "a topic")


def new_topic(name: str) -> str:
    """InvalidTopicError."""
    return _text(name, InvalidTopicError, "a topic name")


def producer_name(name: str) -> str:
    """InvalidArgumentError."""
    return _text(name, InvalidArgumentError, "a producer's name")


def transactional_id(value: str) -> str:
    """InvalidTransactionIdError."""
    return _text(value, InvalidTransactionIdError, "a transactional id")


def member_text(value: str | None, what: str) -> str | None:
    """An instance id or a pattern. InvalidArgumentError."""
    return None if value is None else _text(value, InvalidArgumentError, what)


def partition_count(value: int) -> int:
    """InvalidPartitionsError."""
    if type(value) is not int or not -_MOST_PARTITIONS <= value <= _MOST_PARTITIONS:
        raise InvalidPartitionsError(f"a topic cannot have {shown(value)} partitions")
    return value


def settings(config: Mapping[str, str]) -> dict[str, str]:
    """Of a topic. InvalidArgumentError, InvalidConfigError."""
    checked = dict(mapping(config, "config", "settings, text to text"))
    for key, value in checked.items():
        if not _is_text(key) or not _is_text(value):
            raise InvalidConfigError(f"{shown(key)}={shown(value)} is not text")
    return checked


def changed_settings(config: Mapping[str, str | None]) -> tuple[dict[str, str], list[str]]:
    """Those to set, and the names of those to put back to their defaults. InvalidArgumentError, InvalidConfigError."""
    change = mapping(config, "config", "settings, text to text or None")
    unset = [key for key, value in change.items() if value is None]
    settings(dict.fromkeys(unset, ""))
    return settings({key: value for key, value in change.items() if value is not None}), unset


def keys_to_erase(keys: object) -> list[bytes]:
    """InvalidArgumentError."""
    if isinstance(keys, bytes | str) or not isinstance(keys, Collection):
        raise InvalidArgumentError(f"keys={shown(keys)}", hint="it is a list of bytes")
    for key in keys:
        if not isinstance(key, bytes):
            raise InvalidArgumentError(f"key {shown(key)} is {type(key).__name__}", hint="a key is bytes")
    return list(keys)


def new_start(place: TopicPartition, offset: int) -> int:
    """Where a partition's records shall begin; -1: at its high watermark. InvalidArgumentError,
    OffsetOutOfRangeError."""
    if type(offset) is not int or offset < -1:
        raise InvalidArgumentError(
            f"cannot delete the records of {place.topic}-{place.partition} before {shown(offset)}",
            hint="give an offset, or -1 for the high watermark",
        )
    if offset > INT64_MAX:
        raise OffsetOutOfRangeError(
            f"cannot delete the records of {place.topic}-{place.partition} before {offset}: no log is as long"
        )
    return offset


def bytes_at_most(value: int, name: str) -> int:
    """A number of bytes as the contract's 32 bits hold it: more is as good as the most. InvalidArgumentError."""
    return min(whole(value, name), 2**31 - 1)
