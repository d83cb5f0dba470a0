"""``TableFeed``: reads what a table lacks from its backend.

One fetch at each partition's position tells everything: what is new, that nothing is, that records which had
been shown were lost (the position's epoch ended before it), that the front of the log is gone.

A tombstone outlives its first cleaning by ``delete.retention.ms``. Whoever was away for longer may have missed
it, and would show the deleted key for ever; so if offsets are missing behind a position that old, the partition
is read anew from its beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from logstore.api.backend import Backend
from logstore.api.records import FetchRequest, FetchResult
from logstore.client.table.partition_map import PartitionMap
from logstore.errors import (
    CorruptBatchError,
    DataLossError,
    LogStoreError,
    OffsetOutOfRangeError,
    SegmentVanishedError,
    TableTooLargeError,
)
from logstore.seams.clock import Clock
from logstore.types import Isolation, TopicDescription, TopicPartition

logger = logging.getLogger(__name__)

_FETCH_BYTES = 4 << 20  # of one partition at a time
_CALL_BYTES = 16 << 20
_TRIES = 5  # after an error that may pass, and against a log that is cut while it is read
_DELETE_RETENTION_MS = 86_400_000  # the setting's default

Maps = dict[int, PartitionMap]


class TableFeed:
    """``max_memory_bytes``: of maps without values, of all partitions together. Not thread-safe."""

    def __init__(
        self,
        backend: Backend,
        topic: str,
        isolation: Isolation,
        clock: Clock,
        max_memory_bytes: int | None = None,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self.max_memory_bytes = max_memory_bytes
        self._retention: tuple[int, int] | None = None  # of a metadata version
        self.topic = topic
        self.isolation: Isolation = isolation
        self.rebuilds = 0
        self.changes = 0  # goes up whenever an entry may have changed

    @property
    def with_values(self) -> bool:
        return self.max_memory_bytes is None

    def fresh(self) -> PartitionMap:
        """An empty map, to be read from the log start."""
        return PartitionMap(with_values=self.with_values, start=-1, complete_ms=self._clock.wall_ms())

    def catch_up(self, maps: Maps, ends: Mapping[int, int] | None = None) -> None:
        """Read on to the end that readers may see at the first look, or to ``ends``.

        Errors: those of a fetch, ``TableTooLargeError``; the maps then are as far as they got.
        """
        self._check_memory(maps)
        began_ms = self._clock.wall_ms()
        targets = dict(ends) if ends is not None else {}
        anew = self._begin(maps)
        left = list(maps)
        tries = _TRIES
        while left:
            passing: LogStoreError | None = None
            before = {at: maps[at].position for at in left}
            for result in self._fetch(maps, left):
                partition = result.partition
                try:
                    self._take(maps[partition], result, targets, ends)
                except SegmentVanishedError as error:
                    passing = error
                except (DataLossError, OffsetOutOfRangeError) as error:
                    passing = error
                    anew.add(partition)
                    targets.pop(partition, None)
                    self._restart(maps, partition, error.message)
            if passing is not None:
                tries -= 1
                if not tries:
                    raise passing
            self._check_memory(maps)
            finished = [at for at in left if at in targets and maps[at].position >= targets[at]]
            if not finished and passing is None and all(maps[at].position == before[at] for at in left):
                return  # the backend has no more, whatever it says of its ends
            for partition in finished:
                if partition not in anew and ends is None and self._may_have_missed(maps[partition]):
                    anew.add(partition)
                    del targets[partition]
                    self._restart(maps, partition, "tombstones behind its position may be gone by now")
                    continue
                maps[partition].complete_ms = max(maps[partition].complete_ms, began_ms)
                left.remove(partition)

    def _begin(self, maps: Maps) -> set[int]:
        """Those read from the log start, which is looked up here."""
        anew = {partition for partition, found in maps.items() if found.position < 0}
        if anew:
            places = [TopicPartition(self.topic, partition) for partition in sorted(anew)]
            for place, listed in self._backend.list_offsets(places, "earliest", self.isolation).items():
                found = maps[place.partition]
                found.position = found.start = listed.offset or 0
        for partition in maps:
            maps[partition].absent = 0
        return anew

    def _fetch(self, maps: Maps, left: list[int]) -> list[FetchResult]:
        return self._backend.fetch(
            [FetchRequest(self.topic, at, maps[at].position, maps[at].epoch, _FETCH_BYTES) for at in left],
            isolation=self.isolation,
            min_bytes=0,
            max_bytes=_CALL_BYTES,
            max_wait_s=0,
        )

    def _take(
        self,
        found: PartitionMap,
        result: FetchResult,
        targets: dict[int, int],
        ends: Mapping[int, int] | None,
    ) -> None:
        if result.error is not None:
            raise result.error
        if result.high_watermark < 0:
            return  # the call's byte limit was reached before: not looked at
        committed = self.isolation == "read_committed"
        limit = result.last_stable_offset if committed else result.high_watermark
        targets[result.partition] = min(targets.get(result.partition, limit), limit)
        if len(result.batches) or result.next_offset > found.position:
            end = None if ends is None else ends[result.partition]
            try:
                found.apply(result.batches, result.next_offset, end)
            except CorruptBatchError as error:
                raise error.found_in(f"{self.topic}-{result.partition}") from error
            self.changes += 1
        if result.log_start_offset > found.start:
            found.raise_start(result.log_start_offset)
            self.changes += 1

    def _restart(self, maps: Maps, partition: int, why: str) -> None:
        logger.info("%s-%d is read anew: %s", self.topic, partition, why)
        self.rebuilds += 1
        self.changes += 1
        maps[partition] = self.fresh()
        self._begin({partition: maps[partition]})

    def _may_have_missed(self, found: PartitionMap) -> bool:
        """Whether a tombstone behind the position may be gone already. A clock that went back tells nothing."""
        if not found.absent:
            return False
        return not 0 <= self._clock.wall_ms() - found.complete_ms < self._delete_retention_ms()

    def _delete_retention_ms(self) -> int:
        version = self._backend.metadata_version()
        if self._retention is None or self._retention[0] != version:
            config = self._backend.describe_topic(self.topic).config
            given = config.get("delete.retention.ms", "")
            self._retention = (version, int(given) if given.isdecimal() else _DELETE_RETENTION_MS)
        return self._retention[1]

    def _check_memory(self, maps: Maps) -> None:
        limit = self.max_memory_bytes
        if limit is None or sum(found.memory_bytes() for found in maps.values()) <= limit:
            return
        exact = sum(found.measure() for found in maps.values())
        if exact > limit:
            keys = sum(len(found.entries) for found in maps.values())
            raise TableTooLargeError(
                f"the table of {self.topic!r} has {keys:,} keys so far, about {exact:,} bytes; max_memory_bytes is "
                f"{limit:,}"
            )


def cleaned_to(description: TopicDescription, partition: int) -> int | None:
    """How far compaction has been through the partition; None where that is not known: a cleaning is under way, or
    the backend does not tell."""
    for row in description.partitions:
        if row.partition == partition and row.compaction is not None and row.compaction.running is None:
            return max(row.compaction.cleaner_point, row.compaction.exact_from)
    return None


def terms_of(description: TopicDescription) -> dict[int, int]:
    """The term in which each partition is led, by those that the description is of."""
    return {row.partition: row.leader_epoch for row in description.partitions}
