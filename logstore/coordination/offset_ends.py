"""``OffsetEnds``: where the partitions end for which offsets are committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from logstore.groups.offset_values import SeenEnds
from logstore.types import OffsetAndMetadata, TopicPartition


class OffsetEnds(Protocol):
    """Thread-safe."""

    def of(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> SeenEnds:
        """An end for each partition that the offset does not pass unless it passes the log's. Counters have none.
        ``UnknownTopicError``, ``UnknownPartitionError``."""
        ...

    def still(self, seen: SeenEnds) -> dict[str, bytes]:
        """The topics' ids, if they are what they were: offsets of one that was deleted must not be committed for
        another of its name. To be asked as the offsets are decided on. ``UnknownTopicError``."""
        ...

    def topic_id(self, name: str) -> bytes | None:
        """The id that the topic has now; None: there is no such topic."""
        ...
