"""A network in memory that loses, doubles, delays, reorders and damages messages, as its dice say."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from replication.memory_network import MemoryLine, MemoryNetwork
from replication.raft.messages import AppendRequest
from replication.raft.types import NodeId
from replication.transport import GroupMessage


class ChaosNetwork(MemoryNetwork):
    """``now_s``: the simulation's time. ``loss``, ``doubles``, ``damage``: shares of the messages."""

    def __init__(self, dice: random.Random, now_s: Callable[[], float]) -> None:
        super().__init__()
        self.dice = dice
        self.now_s = now_s
        self.loss = self.doubles = self.damage = 0.0
        self.longest_s = 0.01
        self._under_way: list[tuple[float, int, NodeId, NodeId, GroupMessage]] = []
        self._number = 0

    def line(self, node: NodeId) -> MemoryLine:
        made = self.lines[node] = _ChaosLine(self, node)
        return made

    def post(self, sender: NodeId, to: NodeId, message: GroupMessage) -> None:
        dice = self.dice
        if dice.random() < self.loss:
            return
        for _ in range(2 if dice.random() < self.doubles else 1):
            self._number += 1
            delay_s = dice.random() * self.longest_s * (20 if dice.random() < 0.02 else 1)
            sent = self._damaged(message) if dice.random() < self.damage else message
            heapq.heappush(self._under_way, (self.now_s() + delay_s, self._number, sender, to, sent))

    def _damaged(self, message: GroupMessage) -> GroupMessage:
        """One byte of a batch's records is another one: what a faulty memory of a peer does."""
        request = message.message
        if not isinstance(request, AppendRequest) or not request.entries:
            return message
        entry = request.entries[-1]
        data = bytearray(entry.data)
        data[-1] ^= 0xFF
        entries = (*request.entries[:-1], entry._replace(data=memoryview(bytes(data))))
        return message._replace(message=request._replace(entries=entries))

    def arrive(self) -> None:
        """What is due comes into the queues of its nodes."""
        while self._under_way and self._under_way[0][0] <= self.now_s():
            _, _, sender, to, message = heapq.heappop(self._under_way)
            line = self.reaches(sender, to)
            if line is not None:
                line.take(sender, message)


class _ChaosLine(MemoryLine):
    def __init__(self, network: ChaosNetwork, node: NodeId) -> None:
        super().__init__(network, node)
        self._chaos = network

    def send(self, to: NodeId, message: GroupMessage) -> None:
        if not self.closed and self._chaos.reaches(self._node, to) is not None:
            self._chaos.post(self._node, to, message)
