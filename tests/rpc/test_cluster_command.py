"""`logstore cluster`: at a broker that is alone, and at one that says to be in a cluster which is not well."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from replication.cluster.duties import MoveProgress
from replication.cluster.view import BrokerInfo
from replication.cluster_status import ClusterStatus, PartitionStatus, ReplicaStatus
from replication.raft.types import NodeId
from replication.transport import METADATA_GROUP, GroupId
from rpc.handlers.cluster import ClusterPlace
from tests.rpc.served import Served
from tests.rpc.test_commands import BrokerShell


class SomeView:
    """A ``ClusterView`` of three brokers, the last of which is away."""

    node_id = 1
    cluster_id = "some-cluster"

    def brokers(self) -> Sequence[BrokerInfo]:
        return [BrokerInfo(node, "h", 9000 + node, f"rack-{node}", node != 3) for node in (1, 2, 3)]

    def controller(self) -> NodeId:
        return 2

    def leader_of(self, topic: str, partition: int) -> tuple[NodeId, int]:
        return -1, -1

    def replicas_of(self, topic: str, partition: int) -> Sequence[NodeId]:
        return (3, 1)


class SomeAdministration:
    """A ``ClusterAdministration`` that notes what it is asked, with one partition that moves."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.topic_id = ""

    def add(self, node: NodeId, host: str, port: int) -> None:
        self.asked.append(("add", node, host, port))

    def drain(self, node: NodeId, draining: bool = True) -> None:
        self.asked.append(("drain", node, draining))

    def remove(self, node: NodeId) -> None:
        self.asked.append(("remove", node))

    def reassign(self, wanted: Mapping[tuple[str, int], tuple[NodeId, ...] | None]) -> None:
        self.asked.append(dict(wanted))

    def progress(self) -> list[MoveProgress]:
        return [MoveProgress((self.topic_id, 0), (1, 2), (2, 3), {3: 17}, (1,))]


ADMINISTRATION = SomeAdministration()


@pytest.fixture
def clustered(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[BrokerShell, Served]]:
    """Topic ``led`` is led by broker 2 and has a replica that lags; nothing is known of ``t``."""
    monkeypatch.delenv("LOGSTORE_PATH", raising=False)
    asked: list[float] = []

    def gather(brokers: Any, timeout_s: float) -> ClusterStatus:
        asked.append(timeout_s)
        topic_id = served.store.backend.topics()["led"].topic_id
        replicas = (
            ReplicaStatus(1, 7, 3, False),
            ReplicaStatus(2, 10, 0, True),
            ReplicaStatus(3, -1, -1, False, True),
        )
        led = PartitionStatus(GroupId(topic_id, 0), 2, 5, 9, replicas)
        metadata = PartitionStatus(METADATA_GROUP, 2, 4, 20, (ReplicaStatus(2, 20, 0, True),))
        return ClusterStatus({led.group: led, METADATA_GROUP: metadata}, (3,))

    place = ClusterPlace(view=SomeView(), led=list, gather=gather, administration=ADMINISTRATION)
    with Served(":memory:", place=place) as served:
        for topic in ("led", "t"):
            served.store.create_topic(topic)
        ADMINISTRATION.topic_id = served.store.backend.topics()["led"].topic_id
        ADMINISTRATION.asked.clear()
        yield BrokerShell(served.address), served


def test_a_broker_that_is_alone_leads_everything(tmp_path: Path) -> None:
    with Served(tmp_path / "store", node_id=7, rack="west") as served:
        served.store.create_topic("t", 2)
        shell = BrokerShell(served.address)
        told = json.loads(shell.run("--json", "cluster", "info").stdout)
        (broker,) = told["brokers"]
        assert (told["cluster_id"], told["controller"]) == ("tests", 7)
        assert broker == {
            "node_id": 7, "host": "127.0.0.1", "port": served.port, "rack": "west", "alive": True,
            "answers": True, "controller": True, "leads": 2, "replicas": 2,
        }  # fmt: skip
        assert json.loads(shell.run("--json", "cluster", "health").stdout)["healthy"]
        rows = [json.loads(line) for line in shell.run("--json", "cluster", "describe").stdout.splitlines()]
        assert [(row["topic"], row["partition"], row["leader"]) for row in rows] == [("t", 0, 7), ("t", 1, 7)]


def test_what_is_wrong_is_named_and_shows_in_the_exit_code(clustered: tuple[BrokerShell, Served]) -> None:
    shell, _ = clustered
    told = json.loads(shell.run("--json", "cluster", "health", code=1).stdout)
    assert told == {
        "healthy": False,
        "cluster_id": "some-cluster",
        "controller": 2,
        "brokers": 3,
        "brokers_away": [3],
        "partitions": 3,
        "leaderless": [{"topic": "t", "partition": 0}],
        "under_replicated": [{"topic": "led", "partition": 0}],
    }
    lines = shell.run("cluster", "health", code=1).stdout.splitlines()
    assert lines[0] == "not healthy"
    assert "2 of 3 (away: 3)" in lines[1]
    assert lines[4].endswith("1 (t-0)")


def test_info_says_who_leads_what(clustered: tuple[BrokerShell, Served]) -> None:
    shell, _ = clustered
    lines = shell.run("cluster", "info").stdout.splitlines()
    assert lines[0] == "cluster some-cluster, controller 2"
    assert [line.split() for line in lines[2:]] == [
        ["1", "h:9001", "rack-1", "yes", "yes", "no", "0", "2"],
        ["2", "h:9002", "rack-2", "yes", "yes", "yes", "2", "2"],
        ["3", "h:9003", "rack-3", "no", "no", "no", "0", "2"],
    ]


def test_describe_shows_replicas_and_lags(clustered: tuple[BrokerShell, Served]) -> None:
    shell, _ = clustered
    rows = [line.split() for line in shell.run("cluster", "describe").stdout.splitlines()[1:]]
    assert rows == [
        ["__cluster_metadata", "0", "2", "4", "2", "2", "-", "20"],
        ["led", "0", "2", "5", "1,2,3*", "2", "1:3", "9"],
        ["t", "0", "-", "-", "1,3", "-", "-", "-"],
    ]
    only = shell.run("--json", "cluster", "describe", "--topic", "led").stdout.splitlines()
    (row,) = map(json.loads, only)
    assert row["in_sync"] == [2]
    assert row["replicas"][0] == {"node_id": 1, "end_offset": 7, "lag": 3, "in_sync": False, "learner": False}
    faulty = shell.run("--json", "cluster", "describe", "--under-replicated").stdout.splitlines()
    assert [json.loads(line)["topic"] for line in faulty] == ["led", "t"]
    assert "there is no topic 'nope'" in shell.run("cluster", "describe", "--topic", "nope", code=1).stderr
    assert "brokers that did not answer: 3" in shell.run("cluster", "describe").stderr


def test_what_administrators_ask_arrives(clustered: tuple[BrokerShell, Served]) -> None:
    shell, _ = clustered
    for words in (
        ("drain", "3"),
        ("drain", "3", "--undo"),
        ("add", "4=h:9004"),
        ("remove", "3"),
        ("move", "led", "--to", "2,3"),
        ("move", "led", "-p", "0", "--cancel"),
    ):
        shell.run("cluster", *words)
    assert ADMINISTRATION.asked == [
        ("drain", 3, True),
        ("drain", 3, False),
        ("add", 4, "h", 9004),
        ("remove", 3),
        {("led", 0): (2, 3)},
        {("led", 0): None},
    ]
    assert shell.run("cluster", "moves").stdout.splitlines()[1].split() == ["led", "0", "1,2", "2,3", "3:17"]
    (row,) = map(json.loads, shell.run("--json", "cluster", "moves").stdout.splitlines())
    assert row == {"topic": "led", "partition": 0, "replicas": [1, 2], "target": [2, 3], "lags": {"3": 17}}
