"""A coordinator on a replicated topic, at each of several nodes that are driven by hand."""

from __future__ import annotations

from typing import Generic, TypeVar

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.errors import InvalidRecordError
from logstore.machine import Decision, StateMachine
from replication.coordination.replicated_log import ReplicatedCoordinatorLog
from replication.errors import LeaderNotReadyError, NotLeaderError
from tests.replication.cluster.world import NodeView
from tests.replication.nodes import ClusterNode, Nodes

Machine = TypeVar("Machine", bound=StateMachine)


class Counter:
    """Counts what is added under each key: a decision on an old state would show."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.replayed = 0

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        assert key is not None
        assert value is not None
        self.counts[key] = int(value)
        self.replayed += 1

    def replay_pending(self, producer_id: int, epoch: int, key: bytes | None, value: bytes | None) -> None:
        raise InvalidRecordError("no transactions here")

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        raise InvalidRecordError("no transactions here")

    def decide_add(self, key: bytes) -> Decision[int]:
        count = self.counts.get(key, 0) + 1
        return Decision(((key, b"%d" % count),), count)


class CoordinatorWorld(Generic[Machine]):
    """``runtimes``: by node. One that was killed gets a new one with ``start``."""

    def __init__(self, make: type[Machine], count: int = 3, seed: int = 0) -> None:
        self.nodes = Nodes(count, seed=seed)
        self.make = make
        self.runtimes = {number: self.runtime(node) for number, node in self.nodes.nodes.items()}

    def runtime(self, node: ClusterNode) -> CoordinatorRuntime[Machine]:
        view = NodeView(self.nodes.clock_of(node))
        return CoordinatorRuntime(view, ReplicatedCoordinatorLog(node.partition, view.clock), self.make)

    def start(self, node: ClusterNode) -> None:
        node.start()
        self.runtimes[node.node_id] = self.runtime(node)

    def leading(self) -> CoordinatorRuntime[Machine]:
        return self.runtimes[self.nodes.leader().node_id]


def add(world: CoordinatorWorld[Counter], key: bytes) -> int:
    """As a client does: at whoever leads, again where it moved."""
    for _ in range(50):
        try:
            return world.leading().decide(lambda machine: machine.decide_add(key))
        except (NotLeaderError, LeaderNotReadyError):
            world.nodes.tick()
    raise AssertionError("nobody leads")
