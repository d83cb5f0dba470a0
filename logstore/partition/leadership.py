"""``Leadership``: who leads the partitions of a store that is one of a cluster's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    def settle(self, topic: str) -> None:
        """After a change of the topic, for a few seconds at the most: until all brokers that live know of the change,
        and the partitions of the topic, if it is still there, have leaders."""
        ...

    # --- work at all brokers ---

    def leaders_of(self, topic: str) -> Sequence[int]:
        """By partition. ``UnknownTopicError``."""
        ...

    def away_from(self, topic: str) -> Sequence[int]:
        """Brokers that have copies of the topic, and are not heard of."""
        ...

    def ends_of(self, topic: str) -> Mapping[int, int]:
        """Where each partition ends, as its leader says."""
        ...

    def await_records(self, topic: str, ends: Mapping[int, int]) -> None:
        """Until the copies here reach so far. LeaderNotReadyError: not in time."""
        ...

    def everywhere(self, operation: str, request: bytes) -> Callable[[], Mapping[int, bytes]]:
        """Ask all other brokers that live, side by side; what is given waits for their answers, by broker, and raises
        the first failure."""
        ...

    def heard(self, operation: str, request: bytes) -> Mapping[int, bytes]:
        """What all other brokers that live answer, by broker; those that do not within a few seconds are left out."""
        ...
