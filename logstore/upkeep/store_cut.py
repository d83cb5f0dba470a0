"""The ends of all partitions of a store at one moment, beside its writers in this process and in others.

Every writer publishes in `.live` what a log has, before anybody is told that something is durable. So what `.live`
shows at one moment is a consistent cut: whatever a writer knew to be durable when it wrote a record of the cut is in
the cut, too. A transaction that the coordinator's log shows as decided there has all its data there, a committed
offset its output. Nothing is locked and no writer waits: the moment is found by looking twice (``LiveBoard.read_all``).

Partitions that nobody wrote in this boot have no slot: they end where recovery would let them end, and if they still
have no slot after the look, nobody has opened them meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from logstore.directory.backup_cut import (
    HeldSegment,
    PartitionCut,
    StoreCut,
    close_segments,
    hold_segments,
    is_cleaned,
)
from logstore.directory.catalogue import Catalogue, CatalogueFile
from logstore.errors import NoConsistentCutError
from logstore.ownership.live import LiveSlot
from logstore.partition.context import StoreContext
from logstore.types import TopicPartition

PATIENCE_S: Final = 10.0
_FEWEST_TRIES: Final = 3
_Place = tuple[str, int]  # topic id, partition


class PartitionOffsets(Protocol):
    """What is asked of a partition that no writer speaks for."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...


def take_cut(
    context: StoreContext,
    partition_of: Callable[[str, int], PartitionOffsets],
    patience_s: float = PATIENCE_S,
) -> StoreCut:
    """``partition_of``: ``store.partition`` of the store. The caller closes the cut.

    Errors: ``NoConsistentCutError`` after ``patience_s``; those of reading the catalogue and the partitions.
    """
    taker = _Taker(context, partition_of)
    try:
        return taker.take(patience_s)
    except BaseException:
        taker.close()
        raise


class _Taker:
    def __init__(self, context: StoreContext, partition_of: Callable[[str, int], PartitionOffsets]) -> None:
        self._context = context
        self._partition_of = partition_of
        self._held: dict[_Place, list[HeldSegment]] = {}
        self._unwritten: dict[_Place, PartitionCut] = {}
        self._why = "no try was made"

    def take(self, patience_s: float) -> StoreCut:
        clock = self._context.clock
        until_s, tries = clock.monotonic_s() + patience_s, 0
        file = CatalogueFile(self._context.fs, self._context.root)
        try:
            while tries < _FEWEST_TRIES or clock.monotonic_s() < until_s:
                tries += 1
                cut = self._try(file)
                if cut is not None:
                    return cut
        finally:
            file.close()
        raise NoConsistentCutError(
            f"no moment was found in {tries} tries to see all of {self._context.root} at once: {self._why}"
        )

    def _try(self, file: CatalogueFile) -> StoreCut | None:
        catalogue = file.load()
        places = [
            TopicPartition(name, partition)
            for name, entry in sorted(catalogue.topics.items())
            for partition in range(entry.partitions)
        ]
        self._hold(catalogue, places)
        slots = [catalogue.topics[place.topic].live_slot(place.partition) for place in places]
        shown = self._context.live.read_all(slots)
        if shown is None:
            self._why = "partitions are published all the time"
            return None
        if file.changed():
            self._why = "topics are made, changed or deleted all the time"
            return None
        return self._cut(catalogue, places, shown)

    def _hold(self, catalogue: Catalogue, places: list[TopicPartition]) -> None:
        """Open the segments of whatever may be cleaned: before the look, so that nothing of the cut is missing."""
        for place in places:
            entry = catalogue.topics[place.topic]
            key = (entry.topic_id, place.partition)
            if is_cleaned(entry) and key not in self._held:
                folder = self._context.partition_directory(place.topic, place.partition)
                self._held[key] = hold_segments(self._context.fs, folder)

    def _cut(
        self, catalogue: Catalogue, places: list[TopicPartition], shown: list[LiveSlot | None]
    ) -> StoreCut | None:
        ends: dict[TopicPartition, PartitionCut] = {}
        segments: dict[TopicPartition, list[HeldSegment]] = {}
        complete = True
        for place, slot in zip(places, shown, strict=True):
            key = (catalogue.topics[place.topic].topic_id, place.partition)
            if slot is not None:
                self._unwritten.pop(key, None)
                ends[place] = PartitionCut(slot.log_start_offset, slot.high_watermark)
            elif key in self._unwritten:
                ends[place] = self._unwritten[key]
            else:
                partition = self._partition_of(*place)
                self._unwritten[key] = PartitionCut(partition.log_start_offset, partition.high_watermark)
                self._why = "partitions that were idle are being opened"
                complete = False
            held = self._held.get(key)
            if held is not None:
                segments[place] = held
                if slot is not None and not _reaches(held, slot):
                    close_segments(self._held.pop(key))  # a segment has been begun since they were opened
                    self._why = "segments are begun all the time"
                    complete = False
        if not complete:
            return None
        wanted = {(catalogue.topics[place.topic].topic_id, place.partition) for place in segments}
        for key in self._held.keys() - wanted:
            close_segments(self._held.pop(key))  # its topic was deleted meanwhile
        return StoreCut(catalogue=catalogue, partitions=ends, segments=segments)

    def close(self) -> None:
        for held in self._held.values():
            close_segments(held)
        self._held.clear()


def _reaches(held: list[HeldSegment], slot: LiveSlot) -> bool:
    """Whether the writer's active segment is among them: then all that the slot shows is."""
    if not held:
        return not slot.end_position
    return held[-1].base_offset >= slot.segment_base
