"""``Deliveries``: whether a node is behind with what another one has sent it.

Messages of a node are delivered one after the other, and some wait for the disk: what was sent behind them, the words
of leaders among it, is not heard yet. While that is so a leader there is not silent, and its followers here do not
elect another one, which would give the disk still more to do.
"""

from __future__ import annotations

import threading
from typing import Final

from replication.raft.types import NodeId

_SHARE: Final = 0.8
"""Of the time since the last look: delivered for so much of it, something waits behind."""


class _Sender:
    """``since_s``: since when a delivery is under way, or the last look; ``spent_s``: in ended ones since that look."""

    __slots__ = ("looks", "since_s", "spent_s", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        self.since_s = self.spent_s = 0.0
        self.looks = 0


class Deliveries:
    """Thread-safe. ``most_looks``: after so many looks in a row that a node was behind it counts so no longer, until it
    has caught up: a leader that is silent beside others that are not is waited for no longer than that."""

    def __init__(self, most_looks: int) -> None:
        self._most_looks = most_looks
        self._lock = threading.Lock()
        self._senders: dict[NodeId, _Sender] = {}
        self._looked_s = float("-inf")

    def begin(self, sender: NodeId, now_s: float) -> None:
        with self._lock:
            one = self._senders.setdefault(sender, _Sender())
            if one.under_way == 0:
                one.since_s = now_s
            one.under_way += 1

    def end(self, sender: NodeId, now_s: float) -> None:
        with self._lock:
            one = self._senders[sender]
            one.under_way -= 1
            if one.under_way == 0:
                one.spent_s += now_s - one.since_s

    def look(self, now_s: float) -> frozenset[NodeId]:
        """The nodes of which something waits to be delivered; to be called at every tick."""
        behind = set()
        with self._lock:
            passed_s, self._looked_s = now_s - self._looked_s, now_s
            for node, one in self._senders.items():
                if one.under_way:
                    one.spent_s += now_s - one.since_s
                    one.since_s = now_s
                spent_s, one.spent_s = one.spent_s, 0.0
                one.looks = one.looks + 1 if 0 < _SHARE * passed_s <= spent_s else 0
                if 0 < one.looks <= self._most_looks:
                    behind.add(node)
        return frozenset(behind)
