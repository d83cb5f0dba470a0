"""``Leadership``: who leads the partitions of a store that is one of a cluster's."""

from __future__ import annotations

from typing import Protocol

from logstore.directory.catalogue import TopicEntry


class Leadership(Protocol):
    """Thread-safe."""

    def leaders(self, entry: TopicEntry) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(nodes, terms): who leads each partition, -1 where it is not known."""
        ...

    def leaders_moved(self) -> int:
        """Goes up whenever ``leaders`` may answer differently."""
        ...

    def await_leaders(self, topic: str) -> None:
        """After the making of a topic, for a few seconds: until its partitions can be used."""
        ...
