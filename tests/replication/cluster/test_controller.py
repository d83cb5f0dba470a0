"""A cluster's controller at work on whole nodes: moves, brokers that come and go, leaders that go home."""

from __future__ import annotations

from pathlib import Path

import pytest

from replication.cluster.controller import ControllerSettings
from replication.errors import BrokerInUseError, NotLeaderError
from tests.replication.cluster_nodes import Cluster, add, cluster, until

ROWS = [(None, b"%d" % number) for number in range(50)]
QUICK = ControllerSettings(look_s=0.05, busy_s=0.02, settle_s=0.3)


def values(three: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    log = three.leader(topic, partition).store.partition(topic, partition)
    return [record.value for record in log.records(0)]


def voters(three: Cluster, topic: str, partition: int) -> frozenset[int]:
    leader = three.leader(topic, partition)
    entry = leader.engine.topic(topic)
    (found,) = [
        one
        for one in leader.node.replicas()
        if (one.group.topic_id, one.group.partition) == (entry.topic_id, partition)
    ]
    return found.membership.voters


def test_a_partition_moves_with_its_records(tmp_path: Path) -> None:
    with cluster(tmp_path, controller=QUICK) as three:
        three.controller.engine.create_topic("t", 1, {}, replication_factor=1)
        (home,) = three.controller.replicas_of("t", 0)
        three.leader("t").store.partition("t", 0).append(ROWS)
        aim = tuple(number for number in (1, 2, 3) if number != home)
        other = next(node for node in three.nodes.values() if node is not three.controller)
        with pytest.raises(NotLeaderError):
            other.administration.reassign({("t", 0): aim})
        three.controller.administration.reassign({("t", 0): aim})
        until(lambda: three.controller.replicas_of("t", 0) == aim)
        assert three.controller.administration.progress() == []
        assert voters(three, "t", 0) == frozenset(aim)
        assert values(three, "t") == [row[1] for row in ROWS]
        three.leader("t").store.partition("t", 0).append(ROWS)
        assert len(values(three, "t")) == 100
        former = three.nodes[home]
        until(lambda: all(one.where != "t-0" for one in former.node.replicas()))
        folder = tmp_path / str(home) / "t-0"
        until(lambda: not list(folder.glob("*.log")) and not list(folder.glob("raft-[lm]*")))
        assert all((tmp_path / str(number) / "t-0" / "raft-members").exists() for number in aim)
        three.stop(home)
        three.start(home)
        three.controller.administration.reassign({("t", 0): (home,)})
        until(lambda: three.controller.replicas_of("t", 0) == (home,))
        assert len(values(three, "t")) == 100
        until(lambda: not any(list((tmp_path / str(number) / "t-0").glob("*.log")) for number in aim))


def test_a_broker_joins_takes_over_and_another_leaves(tmp_path: Path) -> None:
    with cluster(tmp_path, controller=QUICK) as three:
        three.controller.engine.create_topic("t", 4, {}, replication_factor=2)
        for number in range(4):
            three.leader("t", number).store.partition("t", number).append(ROWS)
        add(three, 4)
        until(lambda: 4 in {one.node_id for one in three.controller.brokers()})
        until(lambda: 4 in three.controller._candidates().expected)  # it has the metadata, and a vote on them
        leaving = next(number for number in (1, 2, 3) if number != three.controller.node_id)
        with pytest.raises(BrokerInUseError):
            three.controller.administration.remove(leaving)
        three.controller.administration.drain(leaving)
        image = three.controller.metadata.follower
        until(lambda: not image.newest().places_on(leaving))
        three.stop(leaving)
        three.controller.administration.remove(leaving)
        until(lambda: leaving not in three.controller._candidates().expected)
        until(lambda: leaving not in {one.node_id for one in three.controller.brokers()})
        for number in range(4):
            assert values(three, "t", number) == [row[1] for row in ROWS]
            assert leaving not in voters(three, "t", number)
        three.controller.engine.create_topic("new", 3, {})
        assert all(leaving not in three.controller.replicas_of("new", number) for number in range(3))


def test_leaders_go_home(tmp_path: Path) -> None:
    with cluster(tmp_path, controller=QUICK) as three:
        three.controller.engine.create_topic("t", 6, {})
        three.stop(2)
        for number in range(6):
            assert three.leader("t", number).node_id != 2
        three.start(2)
        homes = [three.controller.replicas_of("t", number)[0] for number in range(6)]
        assert sorted(set(homes)) == [1, 2, 3]
        until(lambda: [three.leader("t", number).node_id for number in range(6)] == homes)
