"""From fetched records to what the caller gets: deserializers, poison records, and loans to a `for` loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from logstore.client.consumer.fetch_state import FetchState
from logstore.client.consumer.settings import PoisonHook
from logstore.errors import PoisonRecordError
from logstore.types import OffsetAndMetadata, Record

logger = logging.getLogger(__name__)


class Part(NamedTuple):
    """``records`` to hand out, made of the first ``raw_total`` fetched ones. ``ends``: for each record how
    many fetched ones are gone after it; None if that is its number (nothing was skipped)."""

    records: list[Record[Any, Any]]
    raw_total: int
    ends: list[int] | None

    def raw_count(self, count: int) -> int:
        """Fetched records gone after ``count`` were handed out; with the last one those skipped behind it."""
        if count == len(self.records):
            return self.raw_total
        return count if self.ends is None else self.ends[count - 1] if count else 0


class Decoder:
    """Applies deserializers. Without any, records pass untouched, and no step is taken per record."""

    def __init__(
        self,
        key: Callable[[Any], Any] | None,
        value: Callable[[Any], Any] | None,
        on_poison: Literal["raise", "skip"] | PoisonHook,
    ) -> None:
        self._key = key
        self._value = value
        self._on_poison = on_poison
        self.poisoned = 0

    def decode(self, state: FetchState, most: int, *, raising: bool) -> Part:
        """Up to ``most`` records at the state's position, which stays.

        Under on_poison="raise" the part ends before a record that is refused; if that is the first one,
        PoisonRecordError is raised, or with ``raising`` False (other records are in hand) the part is empty.
        """
        raw = state.peek(most)
        if self._key is None and self._value is None:
            return Part(raw, len(raw), None)
        records: list[Record[Any, Any]] = []
        ends: list[int] = []
        for count, record in enumerate(raw, 1):
            try:
                made = self._made(record)
            except Exception as error:
                if self._on_poison == "raise":
                    if records or not raising:
                        return Part(records, count - 1, ends)
                    raise _poison_error(record, error) from error
                self._pass_over(record, error)
            else:
                records.append(made)
                ends.append(count)
        return Part(records, len(raw), ends)

    def _made(self, record: Record) -> Record[Any, Any]:
        topic, partition, offset, timestamp_ms, key, value, headers = record
        if self._key is not None:
            key = self._key(key) if key is not None else _of_none(self._key)
        if self._value is not None:
            value = self._value(value) if value is not None else _of_none(self._value)
        return Record(topic, partition, offset, timestamp_ms, key, value, headers)

    def _pass_over(self, record: Record, error: Exception) -> None:
        self.poisoned += 1
        if callable(self._on_poison):
            self._on_poison(record, error)
        else:
            logger.warning("skipped: %s", _poison_error(record, error).message)


def _of_none(deserializer: Callable[[Any], Any]) -> Any:
    """What a deserializer makes of None. One that is for bytes only raises, and None stays None: no bytes are
    there that could be refused."""
    try:
        return deserializer(None)
    except (TypeError, AttributeError, ValueError):
        return None


class Loan:
    """Records lent to a `for` loop. The list's own iterator knows how far the loop is, so that the loop
    costs no step of ours per record."""

    __slots__ = ("_part", "records", "state")

    def __init__(self, state: FetchState, part: Part) -> None:
        self.state = state
        self._part = part
        self.records: Any = iter(part.records)

    def _taken(self) -> int:
        return len(self._part.records) - int(self.records.__length_hint__())

    def point(self) -> OffsetAndMetadata:
        """The position after the record that the loop has in hand."""
        return self.state.position_after(self._part.raw_count(self._taken()))

    def settle(self) -> int:
        """Move the position by what the loop took, and let its iterator end. Gives how many it took."""
        taken = self._taken()
        self.records.__setstate__(len(self._part.records))
        self.state.advance(self._part.raw_count(taken))
        return taken


def _poison_error(record: Record, cause: Exception) -> PoisonRecordError:
    topic, partition, offset = record.topic, record.partition, record.offset
    return PoisonRecordError(
        f"the record at {topic}-{partition} offset {offset} could not be deserialized: {cause!r}",
        topic=topic,
        partition=partition,
        offset=offset,
    )
