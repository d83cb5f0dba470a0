"""``Operator``: an administrator of a simulated cluster: topics come and go, partitions move."""

from __future__ import annotations

from typing import Final

from logstore.errors import LogStoreError, TopicExistsError, UnknownTopicError
from logstore.format.batch import decode_batches
from replication.cluster_node import ClusterNode
from replication.errors import NotLeaderError
from tests.history.events import Place
from tests.replication.sim.checks import BrokenPropertyError
from tests.sim.cluster.client import Client, Sequences, again_if_doubtful, fetched, produced
from tests.sim.cluster.world import World

TOPICS: Final = {"plain": 2, "moved": 1}
"""Those of which the history tells."""
CONFIGS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    "plain": (2, {"segment.bytes": "4096"}),
    "moved": (1, {"segment.bytes": "1024", "index.interval.bytes": "200"}),
    "compacted": (
        1,
        {
            "segment.bytes": "1024",
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
        },
    ),
    "retained": (1, {"segment.bytes": "1024", "retention.bytes": "4096"}),
}
"""Partitions and settings."""


class Operator(Client):
    def __init__(self, world: World, name: str = "operator") -> None:
        super().__init__(world, name, {})
        self.places = [(name, number) for name, (count, _) in CONFIGS.items() for number in range(count)]

    def create(self, name: str, partitions: int, config: dict[str, str], factor: int = 3) -> None:
        def work(node: ClusterNode) -> None:
            node.engine.create_topic(name, partitions, config, factor)

        try:
            self.ask("create_topic", again_if_doubtful(work))
        except TopicExistsError:
            self.world.counts["topics that were there already"] += 1  # the answer before was lost

    def delete(self, name: str) -> int:
        """How many calls may come late: those that got no answer."""
        late = 0

        def doubt(error: LogStoreError) -> None:
            nonlocal late
            late += not isinstance(error, NotLeaderError)

        work = again_if_doubtful(lambda node: node.engine.delete_topic(name))
        try:
            self.ask("delete_topic", work, on_doubt=doubt)
        except UnknownTopicError:
            self.world.counts["topics that were gone already"] += 1
        return late

    def reassign(self, place: Place, replicas: tuple[int, ...]) -> None:
        """Begun, not waited for."""

        def work(node: ClusterNode) -> None:
            node.administration.reassign({place: replicas})

        try:
            self.ask("reassign", again_if_doubtful(work))
            self.world.counts["reassignments begun"] += 1
        except LogStoreError as error:
            self.world.counts[f"reassignments refused: {type(error).__name__}"] += 1


class TopicChurn(Operator):
    """Makes and deletes a topic of the same name again and again; nobody else uses it."""

    def begin(self) -> None:
        super().begin()
        self._rounds = 0
        self._late = 0

    def step(self) -> None:
        name = f"{self.name}-topic"
        self._rounds += 1
        self.create(name, 1, {}, 3)
        try:
            values = self._written(name, f"of round {self._rounds}")
        except UnknownTopicError as error:
            # A deletion whose answer was lost was asked for again, and the first of the two came late.
            if not self._late:
                raise BrokenPropertyError(f"{name} was made, and is not known: {error}") from error
            self._late -= 1
            self.world.counts["topics deleted by a late call"] += 1
            return
        if values != [f"of round {self._rounds}"]:
            raise BrokenPropertyError(f"{name} holds {values} in round {self._rounds}")
        self._late += self.delete(name)
        self.world.counts["topics made and deleted"] += 1
        self.world.scheduler.let_pass(self.dice.random() * 3)

    def _written(self, name: str, value: str) -> list[str]:
        """All values of the topic, of which ``value`` is the last. Its offset depends on how often a leader was elected
        before: each of them writes a batch."""
        lease = self.ask("init_producer", lambda node: node.engine.init_producer(None))
        sequences = Sequences(lease.producer_id, lease.epoch)
        data = sequences.encoded((name, 0), (value,), self.world.now_ms())
        base = self.ask(f"produce {name}-0", again_if_doubtful(produced((name, 0), data)))
        values: list[str] = []
        position = 0
        while position <= base:
            work = fetched((name, 0), position, "read_committed")
            found, following, _ = self.ask(f"fetch {name}-0", work)
            values += [
                (one.value or b"").decode() for one in decode_batches(found, name, 0, start_offset=position)
            ]
            position = following
        return values
