"""Producers of a simulated cluster: in order, each batch again until it is known how that went."""

from __future__ import annotations

from logstore.errors import (
    DuplicateSequenceError,
)
from logstore.types import TopicPartition
from replication.cluster_node import ClusterNode
from tests.history.events import Acked, Place, Send
from tests.replication.sim.checks import BrokenPropertyError
from tests.sim.cluster.client import Client, Sequences, again_if_doubtful, produced
from tests.sim.cluster.world import World


class IdempotentProducer(Client):
    """Batches in order, each again and again until it is known how that went."""

    def begin(self) -> None:
        lease = self.ask("init_producer", lambda node: node.engine.init_producer(None))
        self._sequences = Sequences(lease.producer_id, lease.epoch)

    def step(self) -> None:
        place = self.place()
        values = self.values(self.dice.choice((1, 1, 3, 8)))
        self.note(Send(place, values))
        self.send(place, values)

    def send(self, place: Place, values: tuple[str, ...]) -> None:
        data = self._sequences.encoded(place, values, self.world.now_ms())
        base = self.deliver(place, len(values), data)
        offsets = tuple(base + one if base >= 0 else -1 for one in range(len(values)))
        self.note(Acked(values, offsets))
        if base >= 0 and self.dice.random() < 0.15:
            self._look_at_end(place, offsets[-1] + 1)

    def deliver(self, place: Place, count: int, data: bytes) -> int:
        """Where the batch is; -1: it is there, and nobody knows where any more."""
        try:
            base = self.ask(f"produce {place[0]}-{place[1]}", again_if_doubtful(produced(place, data)))
        except DuplicateSequenceError:
            base = -1
        self._sequences.advance(place, count)
        self.world.counts["batches acknowledged"] += 1
        return base

    def _look_at_end(self, place: Place, least: int) -> None:
        """The newest offset is never less than what was acknowledged before it was asked for."""
        held = TopicPartition(*place)

        def work(node: ClusterNode) -> int:
            return node.engine.list_offsets([held], "latest", "read_uncommitted")[held].offset or 0

        found = self.ask("list_offsets", work)
        if found < least:
            raise BrokenPropertyError(f"{place[0]}-{place[1]} ends at {found}, {least} was acknowledged")


class KeyedProducer(IdempotentProducer):
    """Growing numbers under a few keys, in a topic that compacts. ``newest``: of each key the last acknowledged."""

    def __init__(self, world: World, name: str, topics: dict[str, int]) -> None:
        super().__init__(world, name, topics)
        self.newest: dict[tuple[Place, bytes], int] = {}
        self._number = 0

    def step(self) -> None:
        place = self.place()
        self._number += 1
        key = b"k%d" % self.dice.randrange(4)
        row = (key, b"%d" % self._number + b"." * 60)
        data = self._sequences.encoded_rows(place, [row], self.world.now_ms())
        self.deliver(place, 1, data)
        self.newest[place, key] = self._number

    def check(self, place: Place, found: list[tuple[bytes, int]]) -> None:
        """``found``: keys and numbers in the order in which they lie in the partition in the end."""
        last = dict(found)
        for (at, key), number in self.newest.items():
            if at == place and last.get(key) != number:
                raise BrokenPropertyError(
                    f"{place[0]}-{place[1]} has {last.get(key)} as the newest of {key!r}, {number} was acknowledged"
                )
        numbers = [number for _, number in found]
        if numbers != sorted(set(numbers)):
            raise BrokenPropertyError(
                f"records of {place[0]}-{place[1]} are not in order, each once: {numbers}"
            )


class RetainedProducer(IdempotentProducer):
    """Into a topic that keeps little, and from which an operator deletes records. ``acked``: offset to number."""

    def __init__(self, world: World, name: str, topics: dict[str, int]) -> None:
        super().__init__(world, name, topics)
        self.acked: dict[tuple[Place, int], int] = {}
        self._number = 0

    def step(self) -> None:
        place = self.place()
        self._number += 1
        data = self._sequences.encoded_rows(
            place, [(None, b"%d" % self._number + b"." * 300)], self.world.now_ms()
        )
        base = self.deliver(place, 1, data)
        if base >= 0:
            self.acked[place, base] = self._number
        if self.dice.random() < 0.05:
            self._delete(place, base)

    def _delete(self, place: Place, before: int) -> None:
        held = TopicPartition(*place)

        def work(node: ClusterNode) -> int:
            return node.engine.delete_records({held: before})[held]

        if before > 0:
            self.ask("delete_records", work)
            self.world.counts["records deleted"] += 1

    def check(self, place: Place, start: int, found: dict[int, int]) -> None:
        """``start``: of the log in the end; ``found``: offset to number from there on."""
        for (at, offset), number in self.acked.items():
            if at == place and offset >= start and found.get(offset) != number:
                raise BrokenPropertyError(
                    f"{place[0]}-{place[1]} has {found.get(offset)} at {offset}, {number} was acknowledged there"
                )
