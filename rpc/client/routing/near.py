"""``NearReplicas``: which replica of its own rack a reader was sent to by the leader of each partition (KIP-392)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from logstore.types import TopicPartition

_ASK_AGAIN_S: Final = 60.0
"""How long a replica is read before the leader is asked again for the nearest one."""
_AVOID_S: Final = 5.0
"""How long the leader itself is read after a replica has failed."""


class _Near(NamedTuple):
    """``node``: -1: the leader is read."""

    node: int
    until_s: float


class NearReplicas:
    """Thread-safe. ``rack``: the reader's; "": it reads from leaders."""

    def __init__(self, rack: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self.rack = rack
        self._now_s = now_s
        self._near: dict[TopicPartition, _Near] = {}

    def of(self, place: TopicPartition) -> int | None:
        """The replica to read; None: the leader."""
        found = self._current(place)
        return None if found is None or found.node < 0 else found.node

    def rack_for(self, place: TopicPartition) -> str:
        """What a fetch of the partition says of the reader's rack; "": the leader is to answer itself."""
        found = self._current(place)
        return "" if found is not None and found.node < 0 else self.rack

    def _current(self, place: TopicPartition) -> _Near | None:
        found = self._near.get(place)
        return None if found is None or self._now_s() >= found.until_s else found

    def prefer(self, place: TopicPartition, node: int) -> None:
        """The leader has named the replica."""
        self._near[place] = _Near(node, self._now_s() + _ASK_AGAIN_S)

    def give_up(self, place: TopicPartition, node: int) -> bool:
        """The node cannot be read. Whether it was the replica to read: the leader is, for a while."""
        if self.of(place) != node:
            return False
        self._near[place] = _Near(-1, self._now_s() + _AVOID_S)
        return True
