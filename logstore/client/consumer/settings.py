"""``ConsumerSettings`` and where a consumer starts, validated once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, TypedDict

from logstore.api.groups import Assignor, validate_assignor
from logstore.arguments import INT64_MAX, shown, truth, whole
from logstore.client.consumer.dead_letters import DeadLetters
from logstore.errors import InvalidArgumentError
from logstore.seams.clock import Clock
from logstore.types import Isolation, Record, TopicPartition

INT32_MAX: Final = 2**31 - 1
_INSTANCE_CHARACTERS: Final = 249

Topics: TypeAlias = str | re.Pattern[str] | Sequence[str] | Sequence[tuple[str, int]]
Start: TypeAlias = Literal["earliest", "latest", "committed"] | int | datetime
OnReset: TypeAlias = Literal["error", "earliest", "latest"]
PoisonHook: TypeAlias = Callable[[Record, Exception], object]
"""Called with the raw record (key and value as bytes) and what the deserializer raised; then it is passed."""
PartitionsHook: TypeAlias = Callable[[list[TopicPartition]], object]
OnPoison: TypeAlias = Literal["raise", "skip"] | DeadLetters | PoisonHook


class ConsumerOptions(TypedDict, total=False):
    """The keywords of ``store.consumer``, beside group, start and deserializers; ``logstore.Consumer`` says what
    they mean."""

    isolation: Isolation
    until_end: bool
    on_poison: OnPoison
    on_reset: OnReset
    fetch_min_bytes: int
    fetch_max_wait_ms: float
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    auto_commit_interval_ms: float | None
    on_assigned: PartitionsHook | None
    on_revoked: PartitionsHook | None
    on_lost: PartitionsHook | None
    instance_id: str | None
    assignor: Assignor
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    clock: Clock | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerSettings:
    """Settings of a consumer. Times in seconds, sizes in bytes."""

    start: Start = "earliest"  # where partitions without a committed offset are read from
    isolation: Isolation = "read_committed"
    until_end: bool = False  # stop at the ends found at the start
    on_poison: OnPoison = "raise"  # what becomes of records that cannot be deserialized
    on_reset: OnReset = "error"  # where to go when the position is gone
    fetch_min_bytes: int = 1  # a fetch waits for this much
    fetch_max_wait_s: float = 0.5  # but no longer than this
    fetch_max_bytes: int = 50 << 20  # of one fetch; a first batch always comes
    max_partition_fetch_bytes: int = 1 << 20  # of one fetch and partition; likewise
    auto_commit_interval_s: float | None = None  # None: only commit() commits
    instance_id: str | None = None  # of a static member, whose place in the group outlives a restart
    assignor: Assignor = "sticky"  # how the group's partitions are dealt out
    session_timeout_ms: int = 45_000  # a member that gives no sign of life for this long is dead
    heartbeat_interval_ms: int = 3_000  # how often it gives one
    max_poll_interval_ms: int = 300_000  # a member that does not poll for this long leaves


class Subscription:
    """What a consumer reads: ``partitions`` given one by one, or topics ``named`` or matching ``pattern``."""

    __slots__ = ("named", "partitions", "pattern")

    def __init__(self, topics: Any) -> None:
        self.named: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        self.partitions: tuple[TopicPartition, ...] = ()
        if isinstance(topics, str):
            self.named = (topics,)
        elif isinstance(topics, re.Pattern) and isinstance(topics.pattern, str):
            self.pattern = topics
        elif isinstance(topics, Iterable):
            self._take_items(list(topics))
        else:
            raise _bad_topics(topics)

    def reads(self, topic: str) -> bool:
        """Whether the topic is, or would be, among those read."""
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return topic in self.named or any(place.topic == topic for place in self.partitions)

    def _take_items(self, items: list[Any]) -> None:
        if items and all(isinstance(item, str) for item in items):
            self.named = tuple(dict.fromkeys(items))
        elif items and all(_is_partition(item) for item in items):
            self.partitions = tuple(dict.fromkeys(TopicPartition(*item) for item in items))
        else:
            raise _bad_topics(items)


def _is_partition(item: Any) -> bool:
    return (
        isinstance(item, tuple)
        and len(item) == 2
        and isinstance(item[0], str)
        and isinstance(item[1], int)
        and not isinstance(item[1], bool)
    )


def _bad_topics(topics: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"a consumer cannot read {shown(topics)}",
        hint="give a topic name, a list of names, a re.compile(...) or a list of (topic, partition)",
    )


def settings_of(
    *,
    start: Start,
    isolation: Isolation,
    until_end: bool,
    on_poison: OnPoison,
    on_reset: OnReset,
    fetch_min_bytes: int,
    fetch_max_wait_ms: float,
    fetch_max_bytes: int,
    max_partition_fetch_bytes: int,
    auto_commit_interval_ms: float | None,
    instance_id: str | None,
    assignor: Assignor,
    session_timeout_ms: int,
    heartbeat_interval_ms: int,
    max_poll_interval_ms: int,
) -> ConsumerSettings:
    """Validated settings. InvalidArgumentError names the setting and what it may be."""
    _check_start(start)
    truth(until_end, "until_end")
    validate_assignor(assignor)
    _check_times(session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms)
    for name, given, choices in (
        ("isolation", isolation, ("read_committed", "read_uncommitted")),
        ("on_reset", on_reset, ("error", "earliest", "latest")),
    ):
        if not isinstance(given, str) or given not in choices:
            raise InvalidArgumentError(f"{name}={shown(given)}", hint=f"use {' or '.join(choices)}")
    named = isinstance(on_poison, str) and on_poison in ("raise", "skip")
    if not (named or isinstance(on_poison, DeadLetters) or callable(on_poison)):
        raise InvalidArgumentError(
            f"on_poison={shown(on_poison)}",
            hint="use 'raise', 'skip', DeadLetters(TOPIC) or a callable (record, error)",
        )
    for setting, number, least in (
        ("fetch_min_bytes", fetch_min_bytes, 0),
        ("fetch_max_wait_ms", fetch_max_wait_ms, 0),
        ("fetch_max_bytes", fetch_max_bytes, 1),
        ("max_partition_fetch_bytes", max_partition_fetch_bytes, 1),
        ("auto_commit_interval_ms", auto_commit_interval_ms, 1),
    ):
        if number is None and setting == "auto_commit_interval_ms":
            continue
        if isinstance(number, bool) or not isinstance(number, int | float) or not number >= least:
            raise InvalidArgumentError(f"{setting}={shown(number)}", hint=f"it is a number, at least {least}")
        if isinstance(number, int) and number > INT64_MAX:  # a float would not hold the largest
            raise InvalidArgumentError(f"{setting}={shown(number)}", hint=f"it is {INT64_MAX} at most")
    return ConsumerSettings(
        start=start,
        isolation=isolation,
        until_end=until_end,
        on_poison=on_poison,
        on_reset=on_reset,
        fetch_min_bytes=fetch_min_bytes,
        fetch_max_wait_s=fetch_max_wait_ms / 1000,
        fetch_max_bytes=fetch_max_bytes,
        max_partition_fetch_bytes=max_partition_fetch_bytes,
        auto_commit_interval_s=None if auto_commit_interval_ms is None else auto_commit_interval_ms / 1000,
        instance_id=_checked_instance(instance_id),
        assignor=assignor,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
        max_poll_interval_ms=max_poll_interval_ms,
    )


def check_ungrouped(settings: ConsumerSettings) -> None:
    """InvalidArgumentError if a consumer without a group was given what only a group can use."""
    plain = ConsumerSettings()
    given = [
        name
        for name in (
            "auto_commit_interval_s",
            "instance_id",
            "assignor",
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "max_poll_interval_ms",
        )
        if getattr(settings, name) != getattr(plain, name)
    ]
    if settings.start == "committed":
        given.insert(0, "start='committed'")
    if given:
        names = " and ".join(given).replace("interval_s", "interval_ms")
        raise InvalidArgumentError(f"{names}: for consumers in a group", hint="pass group=NAME")


def _check_times(
    session_timeout_ms: object, heartbeat_interval_ms: object, max_poll_interval_ms: object
) -> None:
    session_ms = whole(session_timeout_ms, "session_timeout_ms", 1, INT32_MAX)
    beat_ms = whole(heartbeat_interval_ms, "heartbeat_interval_ms", 1, INT32_MAX)
    whole(max_poll_interval_ms, "max_poll_interval_ms", 1, INT32_MAX)
    if 2 * beat_ms > session_ms:
        raise InvalidArgumentError(
            f"heartbeat_interval_ms={beat_ms} with session_timeout_ms={session_ms}",
            hint="at least two heartbeats belong into a session timeout, better ten",
        )


def _checked_instance(instance_id: object) -> str | None:
    if instance_id is None or (
        isinstance(instance_id, str) and 1 <= len(instance_id) <= _INSTANCE_CHARACTERS
    ):
        return instance_id
    raise InvalidArgumentError(
        f"instance_id={shown(instance_id)}", hint=f"it is text of 1 to {_INSTANCE_CHARACTERS} characters"
    )


def is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX


def _check_start(start: object) -> None:
    if isinstance(start, datetime):
        timestamp_ms(start)
        return
    if isinstance(start, str) and start in ("earliest", "latest", "committed"):
        return
    if is_offset(start):
        return
    raise InvalidArgumentError(
        f"start={shown(start)}", hint='use "earliest", "latest", "committed", an offset or a datetime'
    )


def timestamp_ms(moment: datetime | int) -> int:
    """Milliseconds since 1970 UTC. InvalidArgumentError for a datetime without a time zone."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidArgumentError(
                f"{moment!r} has no time zone", hint="give one, as in datetime(2026, 1, 1, tzinfo=UTC)"
            )
        # In whole numbers: a float is a millisecond short now and then.
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise InvalidArgumentError(
            f"{shown(moment)} is not a point in time", hint="give a datetime or ms since 1970"
        )
    return moment
