"""Clients of a simulated cluster: they find leaders, follow moves, retry, and note what they asked and were told."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from logstore.api.records import FetchRequest, ProduceItem
from logstore.errors import (
    LogStoreError,
    OutcomeUnknownError,
    RetriableError,
)
from logstore.format.batch import encode_batch
from logstore.types import Isolation
from replication.cluster_node import ClusterNode
from replication.errors import NotLeaderError, PeerUnavailableError
from tests.history.events import (
    Begun,
    Event,
    Place,
)
from tests.sim.cluster.world import World

Answer = TypeVar("Answer")
_AGAIN: Final = (RetriableError, PeerUnavailableError)
_PAUSE_S: Final = 0.1


class BrokenPromiseError(AssertionError):
    """A client was told what must never be told."""


class Client:
    """``events``: its history; ``topics``: name and number of partitions of those that it uses."""

    def __init__(self, world: World, name: str, topics: dict[str, int]) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.dice = random.Random(f"{world.seed}:{name}")
        self.events: list[Event] = []
        self.idle = False  # nothing of it is under way, and nothing more is begun
        self._avoided, self._avoided_until_s = 0, 0.0  # the node that is not asked
        self._values = 0

    def run(self) -> None:
        self.events.append(Begun())
        self.begin()
        while not self.world.quiet:
            self.step()
            self.world.scheduler.let_pass(self.dice.random() * self.world.pace_s)
        self.idle = True

    def begin(self) -> None:
        """Once, before the first step."""

    def step(self) -> None:
        raise NotImplementedError

    def note(self, event: Event) -> None:
        self.events.append(event)
        self.world.note(f"{self.name}: {event}")

    def values(self, count: int) -> tuple[str, ...]:
        self._values += count
        return tuple(f"{self.name}.{self._values - one}" for one in range(count, 0, -1))

    def place(self) -> Place:
        topic = self.dice.choice(sorted(self.topics))
        return topic, self.dice.randrange(self.topics[topic])

    # --- asking whoever it is ---

    def avoid(self, number: int, for_s: float) -> None:
        """Do not ask that node for so long: for good it might lead alone what is asked for."""
        self._avoided, self._avoided_until_s = number, self.world.scheduler.now_s + for_s

    def _asked(self) -> list[int]:
        avoided = self._avoided if self.world.scheduler.now_s < self._avoided_until_s else 0
        return sorted(number for number in self.world.machines if number != avoided)

    def ask(
        self,
        name: str,
        work: Callable[[ClusterNode], Answer],
        hint: int = -1,
        *,
        on_doubt: Callable[[LogStoreError], None] | None = None,
    ) -> Answer:
        """Of one node after the other until one answers. ``on_doubt``: told of errors after which it may be done."""
        while True:
            numbers = self._asked()
            number = hint if hint in numbers else self.dice.choice(numbers)
            hint = -1
            try:
                return self.world.ask(number, name, work)
            except _AGAIN as error:
                self.world.counts[f"asked again: {type(error).__name__}"] += 1
                if isinstance(error, NotLeaderError):
                    hint = error.leader_id
                if on_doubt is not None:
                    on_doubt(error)
            self.world.scheduler.let_pass(_PAUSE_S * (0.5 + self.dice.random()))


class Sequences:
    """Of one producer id and epoch: the next sequence in each partition."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self._next: dict[Place, int] = {}

    def encoded(
        self, place: Place, values: tuple[str, ...], now_ms: int, *, transactional: bool = False
    ) -> bytes:
        rows = [(None, value.encode()) for value in values]
        return self.encoded_rows(place, rows, now_ms, transactional=transactional)

    def encoded_rows(
        self,
        place: Place,
        rows: Sequence[tuple[bytes | None, bytes]],
        now_ms: int,
        *,
        transactional: bool = False,
    ) -> bytes:
        return encode_batch(
            rows,
            now_ms=now_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._next.get(place, 0),
            transactional=transactional,
        )

    def advance(self, place: Place, count: int) -> None:
        self._next[place] = self._next.get(place, 0) + count


def produced(place: Place, data: bytes) -> Callable[[ClusterNode], int]:
    """The offset at which the batch was appended."""

    def work(node: ClusterNode) -> int:
        (result,) = node.engine.produce([ProduceItem(*place, data)], "all", 8.0)
        if result.error is not None:
            raise result.error
        return result.base_offset

    return work


def again_if_doubtful(work: Callable[[ClusterNode], Answer]) -> Callable[[ClusterNode], Answer]:
    """For what may be done twice: an outcome that is not known is asked for again."""

    def asked(node: ClusterNode) -> Answer:
        try:
            return work(node)
        except OutcomeUnknownError as error:
            raise PeerUnavailableError(error.message) from error

    return asked


def fetched(
    place: Place, start: int, isolation: Isolation
) -> Callable[[ClusterNode], tuple[bytes, int, int]]:
    """Batches, the offset to go on at, and where the log starts if that is behind ``start`` (else -1)."""

    def work(node: ClusterNode) -> tuple[bytes, int, int]:
        (found,) = node.engine.fetch(
            [FetchRequest(*place, start, -1, 4096)],
            isolation=isolation,
            min_bytes=1,
            max_bytes=4096,
            max_wait_s=0.5,
        )
        if found.error is not None:
            log_start = getattr(found.error, "log_start_offset", -1)
            if log_start > start:
                return b"", log_start, log_start
            raise found.error
        return bytes(found.batches), found.next_offset, -1

    return work
