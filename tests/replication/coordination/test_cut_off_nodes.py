"""What a node that is cut off must not say: that there is no such topic, or nothing in it, where others may have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.api.records import FetchRequest, FetchResult, ListedOffset, ProduceItem
from logstore.errors import (
    LogStoreError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.format.batch import encode_batch
from logstore.types import TopicPartition
from replication.cluster_node import ClusterNode
from replication.coordination.backend import ClusterBackend
from replication.errors import LeaderNotReadyError, NotLeaderError, PeerUnavailableError
from tests.replication.cluster_nodes import Cluster, cluster, until

PLACE = TopicPartition("t", 0)
FAR = 1_000


def _fetched(engine: ClusterBackend, place: TopicPartition = PLACE, *, reverse: bool) -> FetchResult:
    request = FetchRequest(*place, FAR, -1, 1 << 20, reverse)
    ((found,), _) = engine.collect([request], "read_committed", 1, 1 << 20)
    if found.error is not None:
        raise found.error
    return found


def _refused(work: Callable[[ClusterBackend], object]) -> Callable[[ClusterBackend], object]:
    """Whether it is refused because of its offset."""

    def asked(engine: ClusterBackend) -> object:
        try:
            return work(engine)
        except OffsetOutOfRangeError:
            return "refused"

    return asked


ASKED: dict[str, tuple[object, Callable[[ClusterBackend], object]]] = {
    "fetch": ("refused", _refused(lambda engine: _fetched(engine, reverse=False))),
    "fetch backwards": (b"", lambda engine: bytes(_fetched(engine, reverse=True).batches)),
    "latest": (
        {PLACE: False},
        lambda engine: {
            place: one.offset is None
            for place, one in engine.list_offsets([PLACE], "latest", "read_committed").items()
        },
    ),
    "at a time": (
        {PLACE: ListedOffset(None)},
        lambda engine: engine.list_offsets([PLACE], 1, "read_committed"),
    ),
    "max_timestamp": (
        {PLACE: ListedOffset(None)},
        lambda engine: engine.list_offsets([PLACE], "max_timestamp", "read_committed"),
    ),
    "delete_records": ("refused", _refused(lambda engine: engine.delete_records({PLACE: FAR}))),
    "producers": ({}, lambda engine: engine.parts.calls.producers_here(PLACE, [7])),
    "keys": (False, lambda engine: engine.parts.calls.keyed_here(PLACE)),
    "open transactions": (None, lambda engine: engine.parts.calls.open_here(PLACE)),
    "ends": (
        True,
        lambda engine: (
            not isinstance(engine.parts.calls.ends_here([PLACE], confirmed=True)[0], LogStoreError)
        ),
    ),
}
"""Of a partition without records: the answer of its leader, and the question."""


def test_a_leader_that_is_cut_off_does_not_say_that_there_is_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t")
        for name, (answer, ask) in ASKED.items():
            leader = _answering(three, ask, answer)
            for number in three.nodes:
                three.network.cut(leader.node_id, number)
            try:
                assert ask(leader.engine) != answer, name
            except (NotLeaderError, LeaderNotReadyError):
                pass  # another one may have some by now
            three.network.heal()


def _answering(three: Cluster, ask: Callable[[ClusterBackend], object], answer: object) -> ClusterNode:
    """The leader, once it gives the answer."""
    found: list[ClusterNode] = []

    def look() -> bool:
        found[:] = [three.leader("t")]
        try:
            return ask(found[0].engine) == answer
        except (NotLeaderError, LeaderNotReadyError):
            return False

    until(look)
    return found[0]


NAMED: dict[str, Callable[[ClusterBackend, TopicPartition], object]] = {
    "topic": lambda engine, place: engine.topic(place.topic),
    "describe_topic": lambda engine, place: engine.describe_topic(place.topic),
    "alter_topic": lambda engine, place: engine.alter_topic(place.topic, {}),
    "produce": lambda engine, place: _produced(engine, place),
    "fetch": lambda engine, place: _fetched(engine, place, reverse=False),
    "fetch backwards": lambda engine, place: _fetched(engine, place, reverse=True),
    "earliest": lambda engine, place: engine.list_offsets([place], "earliest", "read_committed"),
    "latest": lambda engine, place: engine.list_offsets([place], "latest", "read_committed"),
    "delete_records": lambda engine, place: engine.delete_records({place: -1}),
    "describe_partition": lambda engine, place: engine.describe_partition(*place),
}
"""Calls that name a topic, or a partition."""
OF_A_TOPIC = ("topic", "describe_topic", "alter_topic")


def _produced(engine: ClusterBackend, place: TopicPartition) -> None:
    batch = encode_batch([(None, b"x")], now_ms=1_700_000_000_000)
    (result,) = engine.produce([ProduceItem(*place, batch)], "all", 0.1)
    if result.error is not None:
        raise result.error


@pytest.mark.parametrize("grown", [False, True])
def test_a_node_that_is_behind_does_not_say_that_there_is_no_such_topic(tmp_path: Path, grown: bool) -> None:
    with cluster(tmp_path) as three:
        if grown:
            three.create_topic("t")
            until(lambda: all("t" in node.engine.topics() for node in three.nodes.values()))
        behind = next(node for node in three.nodes.values() if node is not three.controller)
        controller = three.controller
        for number in three.nodes:
            three.network.cut(behind.node_id, number)
        if grown:
            controller.engine.add_partitions("t", 2, allow_keyed=True)
        else:
            controller.store.create_topic("t", partitions=2)
        for name, ask in NAMED.items():
            if grown and name in OF_A_TOPIC:
                continue
            with (
                behind.engine.limit_waits(0.1),
                pytest.raises((NotLeaderError, LeaderNotReadyError, PeerUnavailableError)),
            ):
                ask(behind.engine, TopicPartition("t", 1))
        three.network.heal()
        for ask in NAMED.values():
            try:
                ask(behind.engine, TopicPartition("t", 1))
            except (NotLeaderError, LeaderNotReadyError):
                pass
        for ask in NAMED.values():
            with pytest.raises((UnknownTopicError, UnknownPartitionError, NotLeaderError)):
                ask(three.controller.engine, TopicPartition("no", 0))


def test_a_node_that_is_behind_does_not_say_that_there_is_a_topic(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t")
        until(lambda: all("t" in node.engine.topics() for node in three.nodes.values()))
        controller = three.controller
        behind = next(node for node in three.nodes.values() if node is not controller)
        for number in three.nodes:
            three.network.cut(behind.node_id, number)
        controller.engine.delete_topic("t")
        assert "t" in behind.engine.topics()
        with (
            behind.engine.limit_waits(0.1),
            pytest.raises((NotLeaderError, LeaderNotReadyError, PeerUnavailableError)),
        ):
            behind.engine.create_topic("t", 1, {})
        three.network.heal()
        controller.engine.create_topic("t", 1, {})
        with pytest.raises(TopicExistsError):
            three.controller.engine.create_topic("t", 1, {})
