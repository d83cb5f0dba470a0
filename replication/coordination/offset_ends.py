"""``LeaderEnds``: where partitions end for which offsets are committed, asked of their leaders.

High watermarks of a replicated partition never go back, so that a leader is asked again only for an offset past what it
said last. Where a leader cannot be asked the offset is believed: who commits it has read up to there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from logstore.directory.catalogue import Catalogue, TopicEntry, decode_uuid
from logstore.errors import LogStoreError, UnknownTopicError
from logstore.groups.offset_values import SeenEnds
from logstore.log.log_offsets import LogOffsets
from logstore.types import COUNTER_TOPIC, OffsetAndMetadata, TopicPartition
from replication.coordination.partition_calls import Ends, PartitionCalls
from replication.errors import NotLeaderError
from replication.raft.types import NO_NODE, NodeId

_MOST_KNOWN: Final = 100_000
_CALL_S: Final = 2.0


class LeaderEnds:
    """An ``OffsetEnds``. Thread-safe. ``catalogue``: as this node knows it now; ``catch_up``: has it know what the
    controller knows; ``leader_of``: of a partition, -1: not known."""

    def __init__(
        self,
        node_id: NodeId,
        catalogue: Callable[[], Catalogue],
        calls: PartitionCalls,
        leader_of: Callable[[TopicPartition], NodeId],
        catch_up: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._catalogue = catalogue
        self._calls = calls
        self._leader_of = leader_of
        self._catch_up = catch_up
        self._known: dict[tuple[str, int], int] = {}  # by topic id and partition

    def topic_id(self, name: str) -> bytes | None:
        entry = self._catalogue().topics.get(name)
        return None if entry is None else decode_uuid(entry.topic_id)

    def still(self, seen: SeenEnds) -> dict[str, bytes]:
        topics = self._catalogue().topics
        for name, topic_id in seen.topic_ids.items():
            entry = topics.get(name)
            if entry is None or entry.topic_id != topic_id:
                raise UnknownTopicError(
                    f"topic {name!r} was deleted{'' if entry is None else ' and made anew'} before offsets in it were "
                    "committed",
                    hint="the offsets were of records that are gone",
                )
        return {name: decode_uuid(topic_id) for name, topic_id in seen.topic_ids.items()}

    def of(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> SeenEnds:
        entries: dict[str, TopicEntry] = {}
        ends: dict[TopicPartition, int] = {}
        asked: dict[NodeId, list[TopicPartition]] = {}
        for place, position in offsets.items():
            name, partition = place
            if name == COUNTER_TOPIC:
                continue
            entry = entries.get(name)
            if entry is None:
                entry = entries[name] = self._entry(name)
            if type(partition) is not int or not 0 <= partition < entry.partitions:
                entry = entries[name] = self._grown(name, partition)
            end = self._known.get((entry.topic_id, partition), -1)
            if type(position.offset) is not int or position.offset > end:
                asked.setdefault(self._leader_of(place), []).append(place)
            ends[place] = end
        for node, places in asked.items():
            for place, found in zip(places, self._ask(node, places, offsets), strict=True):
                ends[place] = self._end(entries[place.topic], place, found, offsets[place])
        return SeenEnds(ends, {name: entry.topic_id for name, entry in entries.items()})

    def _entry(self, name: str) -> TopicEntry:
        """UnknownTopicError, once this node knows what the controller knows."""
        if name not in self._catalogue().topics:
            self._catch_up()
        return self._catalogue().topic(name)

    def _grown(self, name: str, partition: int) -> TopicEntry:
        """UnknownPartitionError, once this node knows what the controller knows."""
        self._catch_up()
        entry = self._catalogue().topic(name)
        entry.live_slot(partition)
        return entry

    def _ask(
        self,
        node: NodeId,
        places: Sequence[TopicPartition],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> Sequence[Ends]:
        """An end before the offset counts only of a leader that a majority has confirmed: one that was deposed and has
        not heard of it lacks what a reader has read at the new one."""
        found = self._ask_once(node, places)
        short = [
            place
            for place, end in zip(places, found, strict=True)
            if isinstance(end, LogOffsets) and _is_past(offsets[place].offset, end.log_end_offset)
        ]
        if not short:
            return found
        again = dict(zip(short, self._ask_once(node, short, confirmed=True), strict=True))
        return [again.get(place, end) for place, end in zip(places, found, strict=True)]

    def _ask_once(
        self, node: NodeId, places: Sequence[TopicPartition], *, confirmed: bool = False
    ) -> Sequence[Ends]:
        try:
            if node == NO_NODE:
                raise NotLeaderError("this node does not know who leads a partition")
            if node == self._node_id:
                return self._calls.ends_here(places, confirmed=confirmed)
            return self._calls.ends(node, places, _CALL_S, confirmed=confirmed)
        except LogStoreError as error:
            return [error] * len(places)

    def _end(self, entry: TopicEntry, place: TopicPartition, found: Ends, position: OffsetAndMetadata) -> int:
        if not isinstance(found, LogOffsets):
            return position.offset if type(position.offset) is int else 0
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[entry.topic_id, place.partition] = found.high_watermark
        return found.log_end_offset


def _is_past(offset: object, end: int) -> bool:
    """An offset that is no number is refused elsewhere, with its own words."""
    return type(offset) is int and offset > end
