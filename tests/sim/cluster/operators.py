"""``Operator``: an administrator of a simulated cluster: topics come and go, partitions move."""

from __future__ import annotations

from typing import Final

from logstore.errors import LogStoreError, TopicExistsError, UnknownTopicError
from replication.cluster_node import ClusterNode
from replication.errors import NotLeaderError
from tests.history.events import Place
from tests.sim.cluster.client import Client, again_if_doubtful
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
