"""Partitions move and brokers leave, at real processes, by the commands that do it, while records are written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rpc.drill import Drill, DrillReport, DrillSettings
from rpc.testing.broker import BrokerForTests
from rpc.testing.cluster import ClusterForTests
from tests.beside import Beside
from tests.rpc.peers.world import until
from tests.rpc.test_commands import BrokerShell


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterForTests]:
    monkeypatch.delenv("LOGSTORE_PATH", raising=False)
    with ClusterForTests(tmp_path) as made:
        yield made
    BrokerForTests.end_spares()


def told(shell: BrokerShell, *words: str) -> list[Any]:
    return [json.loads(line) for line in shell.run("--json", *words).stdout.splitlines()]


def replicas_of(shell: BrokerShell, topic: str) -> list[list[int]]:
    rows = told(shell, "cluster", "describe", "--topic", topic)
    return [[one["node_id"] for one in row["replicas"] if not one["learner"]] for row in rows]


@contextmanager
def writing(cluster: ClusterForTests, seconds: float) -> Iterator[None]:
    """A drill beside what the test does in the block: nothing it wrote is lost, or in doubt."""
    drill = Drill(cluster.connect(), DrillSettings(topic="t", rate=200, seconds=seconds))
    reports: list[DrillReport] = []
    with Beside(lambda: reports.append(drill.run())):
        yield
    (report,) = reports
    assert report.is_good, report
    assert report.in_doubt == 0, report


def test_partitions_move_while_records_are_written(cluster: ClusterForTests) -> None:
    shell = BrokerShell(cluster.address)
    shell.run("topic", "create", "t", "--partitions", "3", "--replication-factor", "2")
    cluster.await_healthy()
    assert all(len(nodes) == 2 for nodes in replicas_of(shell, "t"))
    with writing(cluster, 6):
        shell.run("cluster", "move", "t", "--to", "3,1", "--wait")
        until(lambda: replicas_of(shell, "t") == [[1, 3]] * 3, "all partitions are on 1 and 3")
        assert told(shell, "cluster", "moves") == []


@pytest.mark.slow
def test_a_broker_is_drained_stopped_and_removed(cluster: ClusterForTests) -> None:
    shell = BrokerShell(cluster.address)
    shell.run("topic", "create", "t", "--partitions", "6", "--replication-factor", "2")
    cluster.await_healthy()
    with writing(cluster, 8):
        shell.run("cluster", "drain", "2", "--wait")
        assert all(2 not in nodes for nodes in replicas_of(shell, "t"))
        assert "has" in shell.run("cluster", "remove", "1", code=1).stderr
    assert cluster.brokers[2].stop() == 0
    until(lambda: shell.run("cluster", "remove", "2", code=None).exit_code == 0, "the broker is removed")
    (info,) = told(shell, "cluster", "info")
    assert [one["node_id"] for one in info["brokers"]] == [1, 3]
    assert "there is no broker 2" in shell.run("cluster", "drain", "2", code=1).stderr


def test_what_cannot_be_is_refused(cluster: ClusterForTests) -> None:
    shell = BrokerShell(cluster.address)
    shell.run("topic", "create", "t")
    for words, code, words_told in (
        (("move", "t", "--to", "1,1"), 1, "each once"),
        (("move", "t", "--to", "9"), 1, "there is no broker 9"),
        (("move", "t", "-p", "5", "--to", "1"), 1, "has no partition 5"),
        (("move", "nope", "--to", "1"), 1, "there is no topic 'nope'"),
        (("move", "t", "--to", "a"), 2, "no list of brokers"),
        (("move", "t"), 2, "either --to"),
        (("drain", "9"), 1, "there is no broker 9"),
        (
            ("drain", "2"),
            0,
            "1 partition has more replicas than there are other brokers: it stays on broker 2",
        ),
    ):
        assert words_told in shell.run("cluster", *words, code=code).stderr, words


@pytest.mark.slow
def test_a_broker_is_added_while_the_others_run(cluster: ClusterForTests) -> None:
    shell = BrokerShell(cluster.address)
    shell.run("topic", "create", "t", "--partitions", "2")
    cluster.await_healthy()
    with writing(cluster, 10):
        added = cluster.add_broker()
        shell.run("cluster", "move", "t", "--to", f"{added},1,2", "--wait")
        assert replicas_of(shell, "t") == [[1, 2, added]] * 2
    (info,) = told(shell, "cluster", "info")
    assert [one["node_id"] for one in info["brokers"]] == [1, 2, 3, added]
