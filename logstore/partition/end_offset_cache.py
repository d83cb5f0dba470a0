"""Where partitions end, for those who commit offsets: looked at again only for an offset past what was seen.

For a topic of another process, or of none, a look is several system calls, and each gives up the interpreter. Only
high watermarks under ``visible.after=flush`` are remembered: no crash takes one back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from logstore.log.log_offsets import LogOffsets
from logstore.log.partition_log import PartitionLog
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

    def of(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
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
        return ends

    def _look(self, topic: Topic, partition: int) -> LogOffsets:
        if type(partition) is int and 0 <= partition < topic.entry.partitions:
            return topic.reader(partition).bounds()
        return self._partition(topic.name, partition).bounds()  # just added, or refused there

    def _remember(self, seen: tuple[str, int], high_watermark: int) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[seen] = high_watermark
