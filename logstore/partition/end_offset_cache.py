"""Where partitions end, for those who commit offsets: looked at again only for an offset past what was seen.

For a topic of another process, or of none, a look is several system calls, and each gives up the interpreter. Only
high watermarks under ``visible.after=flush`` are remembered: no crash takes one back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from logstore.directory.catalogue import decode_uuid
from logstore.errors import UnknownTopicError
from logstore.groups.offset_values import SeenEnds
from logstore.log.log_offsets import LogOffsets
from logstore.partition.partition_log import PartitionLog
from logstore.partition.topic import Topic
from logstore.partition.topic_registry import TopicRegistry
from logstore.types import COUNTER_TOPIC, OffsetAndMetadata, TopicPartition

_MOST_KNOWN: Final = 100_000


class EndOffsetCache:
    """Thread-safe. ``partition`` gives the facade of one partition, or says why there is none."""

    def __init__(self, registry: TopicRegistry, partition: Callable[[str, int], PartitionLog]) -> None:
        self._registry = registry
        self._partition = partition
        self._known: dict[tuple[str, int], int] = {}  # by topic id and partition

    def topic_id(self, name: str) -> bytes | None:
        """The id that the topic has now; None: there is no such topic."""
        entry = self._registry.catalogue.topics.get(name)
        return None if entry is None else decode_uuid(entry.topic_id)

    def still(self, seen: SeenEnds) -> dict[str, bytes]:
        """The topics' ids, if they are what they were: offsets of one that was deleted must not be committed for
        another of its name. To be asked with the lock of the offsets' log held. ``UnknownTopicError``."""
        topics = self._registry.catalogue.topics
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
        """An end for each partition: the log's, or an earlier one that the offset does not pass. Counters have none.
        ``UnknownTopicError``, ``UnknownPartitionError``."""
        ends: dict[TopicPartition, int] = {}
        topics: dict[str, Topic] = {}
        for place, position in offsets.items():
            name, partition = place
            if name == COUNTER_TOPIC:
                continue
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = self._registry.get(name)
            seen = (topic.entry.topic_id, partition)
            end = self._known.get(seen, -1)
            if type(position.offset) is not int or position.offset > end:
                bounds = self._look(topic, partition)
                end = bounds.log_end_offset
                if topic.config.visible_after == "flush":
                    self._remember(seen, bounds.high_watermark)
            ends[place] = end
        return SeenEnds(ends, {name: topic.entry.topic_id for name, topic in topics.items()})

    def _look(self, topic: Topic, partition: int) -> LogOffsets:
        if type(partition) is int and 0 <= partition < topic.entry.partitions:
            return topic.partition(partition).reader().bounds()
        return self._partition(topic.name, partition).bounds()  # just added, or refused there

    def _remember(self, seen: tuple[str, int], high_watermark: int) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[seen] = high_watermark
