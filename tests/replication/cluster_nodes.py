"""Whole nodes of a cluster in one process: their stores in directories, their network in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from logstore.errors import TopicExistsError
from logstore.seams.fs import FileSystem
from replication.cluster_node import ClusterNode
from replication.errors import LeaderNotReadyError, NotLeaderError
from replication.memory_network import MemoryLine, MemoryNetwork
from replication.node_settings import NodeSettings
from replication.raft.types import RaftSettings
from tests.beside import Beside

DEADLINE_S = 60.0
RAFT = RaftSettings(election_ticks=10, silent_on_empty=True)


class Line(MemoryLine):
    cluster_id = ""

    def take_cluster_id(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id


class Network(MemoryNetwork):
    def line(self, node: int) -> Line:
        made = Line(self, node)
        self.lines[node] = made
        return made


class Cluster:
    """``nodes``: those that run, by number."""

    def __init__(self, root: Path, count: int = 3, **settings: Any) -> None:
        self.settings = settings
        self.root = root
        self.voters = frozenset(range(1, count + 1))
        self.network = Network(threads=True)
        self.nodes: dict[int, ClusterNode] = {}
        self.join_timeout_s = 30.0
        self.disks: dict[int, FileSystem] = {}  # where there is none: the real one

    def make(self, number: int) -> ClusterNode:
        """One that is none of the voters asks these: it waits to be added."""
        voters = self.voters | {number}
        settings = NodeSettings(
            node_id=number,
            voters=voters,
            peers={node: ("", node) for node in voters},
            port=9000 + number,
            tick_s=0.05,
            raft=RAFT,
            join_timeout_s=self.join_timeout_s,
            **self.settings,
        )
        disk = self.disks.get(number)
        root = str(self.root / str(number)) if disk is None else "/data"
        return ClusterNode(root, settings, self.network.line(number), fs=disk)

    def start(self, *numbers: int) -> None:
        """Side by side: a node joins once a majority is there."""

        def start(number: int) -> None:
            node = self.make(number)
            node.start()
            self.nodes[number] = node

        Beside(*[partial(start, number) for number in numbers or sorted(self.voters)]).run()

    def stop(self, number: int) -> None:
        self.nodes.pop(number).close()

    @property
    def controller(self) -> ClusterNode:
        found: list[ClusterNode] = []

        def look() -> bool:
            nodes = dict(self.nodes)  # those of now: other threads may look while a test stops some
            named = [
                node.controller() for node in nodes.values()
            ]  # asked once: it may be another one in a moment
            found[:] = [nodes[number] for number in named if number in nodes]
            return bool(found)

        until(look)
        return found[0]

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> None:
        """As ``LogStore.create_topic`` of the controller, as a client does it: again where the metadata's lead moved,
        and done where the first try was in after all."""
        tried = False

        def create() -> bool:
            nonlocal tried
            try:
                self.controller.store.create_topic(name, partitions, **settings)
            except (NotLeaderError, LeaderNotReadyError):
                tried = True
                return False
            except TopicExistsError:
                if not tried:
                    raise
            return True

        until(create)

    def leader(self, topic: str, partition: int = 0) -> ClusterNode:
        """The node that leads, once it is there."""
        found: list[ClusterNode] = []

        def look() -> bool:
            found[:] = [
                node
                for node in list(self.nodes.values())
                if topic in node.engine.topics()
                and node.engine.topic(topic).leaders[partition] == node.node_id
            ]
            return len(found) == 1

        until(look)
        return found[0]

    def close(self) -> None:
        for number in list(self.nodes):
            self.stop(number)


def until(condition: Callable[[], object], most_s: float = DEADLINE_S) -> None:
    """Poll. AssertionError: it did not come to it in time."""
    deadline_s = time.monotonic() + most_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come to it in time"
        pause.wait(0.01)


@contextmanager
def cluster(root: Path, count: int = 3, **settings: Any) -> Iterator[Cluster]:
    """``settings``: more of ``NodeSettings``."""
    made = Cluster(root, count, **settings)
    try:
        made.start()
        yield made
    finally:
        made.close()


def listens(three: Cluster, number: int) -> bool:
    line = three.network.lines[number]
    return line._deliver is not None and not line.closed


@contextmanager
def starting(three: Cluster, number: int) -> Iterator[None]:
    """A node that starts meanwhile, and waits to be added; it has joined when this ends."""
    with Beside(lambda: three.start(number)):
        until(lambda: number in three.network.lines and listens(three, number))
        yield


def add(three: Cluster, number: int) -> None:
    with starting(three, number):
        three.controller.administration.add(number, "", number)
