"""``Assignment``: the partitions a consumer reads, and where it starts in each.

New partitions, and new topics that match a pattern, are read from their beginning, so that nothing in them
is skipped; only what is there at the start is subject to ``start``. In a group, that is the group's start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from logstore.api.backend import Backend
from logstore.api.records import ListedOffset, OffsetSpec
from logstore.api.topics import TopicMetadata
from logstore.client.consumer.fetch_state import UNKNOWN_EPOCH, FetchState
from logstore.client.consumer.settings import ConsumerSettings, Subscription, timestamp_ms
from logstore.errors import NoCommittedOffsetError, UnknownPartitionError, UnknownTopicError
from logstore.types import OffsetAndMetadata, TopicPartition


class Assignment:
    """``states``: by partition, in the order picked up. ``wanted``: all partitions that the subscription is about
    now, with their topics' ids. ``shared``: a group deals them out; ``take`` and ``drop`` follow what it says."""

    def __init__(
        self, backend: Backend, subscription: Subscription, settings: ConsumerSettings, group: str | None
    ) -> None:
        self._backend = backend
        self._subscription = subscription
        self._settings = settings
        self._group = group
        self._version: int | None = None
        self._missing: set[str] = set()  # named topics that are gone
        self._news: list[str] = []  # those that the caller was not told of yet
        self.shared = group is not None and not subscription.partitions
        self._at_start: Mapping[TopicPartition, str] = {}
        self.wanted: Mapping[TopicPartition, str] = {}
        self.states: dict[TopicPartition, FetchState] = {}

    def start(self) -> list[TopicPartition]:
        """Look at what there is now; unless it is shared, pick it up. UnknownTopicError and UnknownPartitionError if
        a named one is not there; NoCommittedOffsetError under start="committed"."""
        self._version = self._backend.metadata_version()
        wanted = self._wanted(self._backend.topics())
        for name in self._subscription.named:
            if not any(partition.topic == name for partition in wanted):
                self._backend.topic(name)  # raises the error that names it
        for partition in self._subscription.partitions:
            if partition not in wanted:
                count = self._backend.topic(partition.topic).partitions
                raise UnknownPartitionError(
                    f"topic {partition.topic!r} has no partition {partition.partition}",
                    hint=f"its partitions are 0 to {count - 1}",
                )
        self.wanted = self._at_start = wanted
        if self.shared:
            return []
        self.take(list(wanted), None)
        return list(wanted)

    def take(self, places: list[TopicPartition], initial: Mapping[str, int] | None) -> list[TopicPartition]:
        """Pick these up, at their committed offsets. Where there is none ``start`` applies, but partitions that the
        group did not know at its beginning (``initial``: topic -> how many it knew) are read from their start.
        Gives those for which ``start`` was looked up and may say something else the next time."""
        committed = self._committed()
        fresh = [where for where in places if where not in committed]
        known = [where for where in fresh if initial is None or where.partition < initial.get(where.topic, 0)]
        positions = self._start_positions(known)
        positions |= self.beginning_offsets(set(fresh).difference(known))
        for where in places:
            self._add(where, self.wanted[where], committed.get(where), positions.get(where, 0))
        if self._settings.until_end:
            for where, end in self.end_offsets(places).items():
                state = self.states[where]
                state.end_offset = end if where in self._at_start else state.position
        return [] if self._settings.start == "earliest" else known

    def drop(self, places: Iterable[TopicPartition]) -> None:
        for where in places:
            self.states.pop(where, None)

    def refresh(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Follow the metadata if they changed: (picked up, lost). Under until_end, and where a group deals the
        partitions out, nothing is picked up."""
        version = self._backend.metadata_version()
        if version == self._version:
            return [], []
        topics = self._backend.topics()
        wanted = self._wanted(topics)
        states = self.states
        lost = [where for where, state in states.items() if wanted.get(where) != state.topic_id]
        added: list[TopicPartition] = []
        again = {where for where in lost if where in wanted}  # deleted and made anew: another log
        if not (self._settings.until_end or self.shared):
            added = [where for where in wanted if where not in states or where in again]
            committed = self._committed() if added else {}
            beginnings = self._listed(added, "earliest")
        self.drop(lost)
        for where in added:
            point = None if where in again else committed.get(where)
            self._add(where, wanted[where], point, beginnings[where].offset or 0)
        self._note_missing(topics)
        if wanted != self.wanted:
            self.wanted = wanted
        self._version = version
        return added, lost

    def standing(self) -> Mapping[TopicPartition, FetchState]:
        """Those whose log is still there: a topic that was deleted, or made anew, has nothing of them."""
        if self._backend.metadata_version() == self._version:
            return self.states
        topics = self._backend.topics()
        return {
            where: state
            for where, state in self.states.items()
            if where.topic in topics and topics[where.topic].topic_id == state.topic_id
        }

    def topic_names(self) -> frozenset[str]:
        """What a group is told: the named topics, there or not, or those that match now."""
        return frozenset(self._subscription.named) | {where.topic for where in self.wanted}

    @property
    def pattern(self) -> str | None:
        pattern = self._subscription.pattern
        return None if pattern is None else pattern.pattern

    def tell_missing(self) -> None:
        """UnknownTopicError, once, for a named topic that was deleted; the others are read on."""
        if self._news:
            name = self._news.pop()
            raise UnknownTopicError(
                f"topic {name!r}, which this consumer reads, was deleted",
                hint="the consumer reads its other topics on, and this one too if it comes back",
            )

    def _note_missing(self, topics: Mapping[str, TopicMetadata]) -> None:
        subscription = self._subscription
        named = {*subscription.named, *(where.topic for where in subscription.partitions)}
        missing = named - set(topics)
        self._news += sorted(missing - self._missing)
        self._missing = missing

    def _wanted(self, topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, str]:
        """Partitions to read now, with their topic's id."""
        subscription = self._subscription
        if subscription.partitions:
            return {
                where: topics[where.topic].topic_id
                for where in subscription.partitions
                if where.topic in topics and 0 <= where.partition < topics[where.topic].partitions
            }
        pattern = subscription.pattern
        names = subscription.named if pattern is None else sorted(topics)
        return {
            TopicPartition(name, partition): topics[name].topic_id
            for name in names
            if name in topics
            and (pattern is None or (pattern.fullmatch(name) is not None and not topics[name].internal))
            for partition in range(topics[name].partitions)
        }

    def _committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {} if self._group is None else self._backend.committed_offsets(self._group)

    def _add(
        self, where: TopicPartition, topic_id: str, committed: OffsetAndMetadata | None, position: int
    ) -> None:
        if committed is None:
            self.states[where] = FetchState(where, position, UNKNOWN_EPOCH, topic_id)
            return
        state = FetchState(where, committed.offset, committed.leader_epoch, topic_id)
        state.committed = (committed.offset, committed.leader_epoch)
        self.states[where] = state

    def _start_positions(self, fresh: list[TopicPartition]) -> dict[TopicPartition, int]:
        start = self._settings.start
        if not fresh:
            return {}
        if start == "committed":
            where = fresh[0]
            raise NoCommittedOffsetError(
                f"group {self._group!r} has no committed offset for {where.topic}-{where.partition}"
                + (f" and {len(fresh) - 1} more" if len(fresh) > 1 else "")
            )
        if isinstance(start, datetime):
            return self.offsets_at(fresh, timestamp_ms(start))
        if isinstance(start, int):
            return dict.fromkeys(fresh, start)
        return {where: listed.offset or 0 for where, listed in self._listed(fresh, start).items()}

    # --- offsets ---

    def offsets_at(self, partitions: Iterable[TopicPartition], moment_ms: int) -> dict[TopicPartition, int]:
        """The first offset at least that new, the end where there is none."""
        wanted = list(partitions)
        found = self._listed(wanted, moment_ms)
        newer = [where for where in wanted if found[where].offset is None]
        ends = self.end_offsets(newer)
        return {where: ends[where] if where in ends else found[where].offset or 0 for where in wanted}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {where: found.offset or 0 for where, found in self._listed(partitions, "earliest").items()}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks, or last stable offsets under read_committed."""
        return {where: found.offset or 0 for where, found in self._listed(partitions, "latest").items()}

    def _listed(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, ListedOffset]:
        wanted = list(partitions)
        return self._backend.list_offsets(wanted, spec, self._settings.isolation) if wanted else {}

    listed = _listed
