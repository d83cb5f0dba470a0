"""``Positions``: where a consumer is in its partitions, and how it is moved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import datetime
from typing import Literal

from logstore.api.records import ListedOffset
from logstore.arguments import partition_place, partition_places, shown
from logstore.client.consumer.assignment import Assignment
from logstore.client.consumer.fetch_state import FetchState
from logstore.client.consumer.fetcher import Fetcher
from logstore.client.consumer.settings import is_offset, timestamp_ms
from logstore.errors import InvalidArgumentError
from logstore.types import OffsetAndMetadata, TopicPartition


class Positions(ABC):
    """The part of ``Consumer`` that is about offsets in its partitions."""

    _assignment: Assignment
    _fetcher: Fetcher

    @abstractmethod
    def _enter(self) -> None:
        """Refuse the call if the consumer is not to be used (here)."""

    @abstractmethod
    def _settle(self) -> None:
        """Take back what was lent out."""

    @abstractmethod
    def _point(self, state: FetchState) -> OffsetAndMetadata:
        """The position that counts as handed out."""

    def assignment(self) -> list[TopicPartition]:
        self._enter()
        return list(self._assignment.states)

    def position(self, topic: str, partition: int) -> int:
        """The next offset to be handed out."""
        self._enter()
        return self._point(self._state(topic, partition)).offset

    def seek(self, topic: str, partition: int, offset: int | Literal["earliest", "latest"]) -> None:
        """Go on from ``offset``. Nothing is checked until the next fetch."""
        self._enter()
        self._settle()
        state = self._state(topic, partition)
        if isinstance(offset, str) and offset in ("earliest", "latest"):
            found = self._assignment.listed([state.where], offset)
            state.seek(found[state.where].offset or 0)
        elif is_offset(offset):
            state.seek(int(offset))
        else:
            raise InvalidArgumentError(
                f"seek to {shown(offset)}",
                hint='an offset is a whole number from 0 on, "earliest" or "latest"',
            )

    def seek_to_timestamp(
        self, timestamp: int | datetime, partitions: Collection[tuple[str, int]] | None = None
    ) -> None:
        """Go on from the first record at least that new (ms since 1970 or a datetime with a time zone), or
        from the end where there is none; all partitions unless some are named."""
        self._enter()
        self._settle()
        states = self._states(partitions)
        found = self._assignment.offsets_at([state.where for state in states], timestamp_ms(timestamp))
        for state in states:
            state.seek(found[state.where])

    def pause(self, partitions: Collection[tuple[str, int]] | None = None) -> None:
        """Hand out nothing of these (all) until ``resume``; what was fetched is kept."""
        self._enter()
        self._settle()
        for state in self._states(partitions):
            state.paused = True

    def resume(self, partitions: Collection[tuple[str, int]] | None = None) -> None:
        self._enter()
        self._settle()
        for state in self._states(partitions):
            state.paused = False
            self._fetcher.offer(state)

    def lag(self) -> dict[TopicPartition, int]:
        """Offsets from the position to the end, of each partition."""
        self._enter()
        states = self._assignment.states
        ends = self._assignment.end_offsets(states)
        return {where: max(0, ends[where] - self._point(state).offset) for where, state in states.items()}

    def beginning_offsets(
        self, partitions: Collection[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of these partitions (all that are assigned)."""
        self._enter()
        return self._assignment.beginning_offsets(self._named(partitions))

    def end_offsets(self, partitions: Collection[tuple[str, int]] | None = None) -> dict[TopicPartition, int]:
        """The offset after the last that this consumer may see: high watermarks, or last stable offsets."""
        self._enter()
        return self._assignment.end_offsets(self._named(partitions))

    def offsets_for_times(
        self, timestamp: int | datetime, partitions: Collection[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, ListedOffset]:
        """The first record at least that new; its offset is None where there is none."""
        self._enter()
        return self._assignment.listed(self._named(partitions), timestamp_ms(timestamp))

    def _named(self, partitions: Collection[tuple[str, int]] | None) -> list[TopicPartition]:
        if partitions is None:
            return list(self._assignment.states)
        return partition_places(partitions)

    def _state(self, topic: str, partition: int) -> FetchState:
        state = self._assignment.states.get(partition_place((topic, partition)))
        if state is None:
            raise InvalidArgumentError(
                f"this consumer does not read {topic}-{partition}",
                hint=f"it reads {', '.join(f'{t}-{p}' for t, p in list(self._assignment.states)[:5])}",
            )
        return state

    def _states(self, partitions: Collection[tuple[str, int]] | None) -> list[FetchState]:
        return [self._state(*where) for where in self._named(partitions)]
