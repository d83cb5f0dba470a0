"""Whole nodes whose metadata's log is cut: nodes that were away, or are new, get the snapshot and then the log."""

from __future__ import annotations

import shutil
from pathlib import Path

from replication.cluster_node import ClusterNode
from replication.transport import METADATA_GROUP
from tests.replication.cluster_nodes import Cluster, cluster, until


def log_start(node: ClusterNode) -> int:
    replica = node.node.replica(METADATA_GROUP)
    assert replica is not None
    return replica.log.log_start_offset


def log_end(node: ClusterNode) -> int:
    replica = node.node.replica(METADATA_GROUP)
    assert replica is not None
    return replica.log.log_end_offset


def make_topics(three: Cluster, prefix: str, count: int) -> list[str]:
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        three.create_topic(name, config={"retention.ms": "123456"})
    return names


def knows(node: ClusterNode, names: list[str]) -> bool:
    return set(names) <= set(node.engine.topics())


def test_a_node_that_was_away_and_one_with_an_empty_directory_are_sent_the_snapshot(tmp_path: Path) -> None:
    with cluster(tmp_path, snapshot_bytes=2_000) as three:
        names = make_topics(three, "first", 5)
        away, lost = (number for number in three.nodes if number != three.controller.node_id)
        has = log_end(three.nodes[away])
        three.stop(away)
        three.controller.store.admin.delete_topic(names.pop())
        # Any of them may lead later, and what it lacks must be gone there: else it is sent the log alone.
        while not all(log_start(node) > has for node in three.nodes.values()):
            names += make_topics(three, f"more-{len(names)}", 5)
        three.start(away)
        until(lambda: knows(three.nodes[away], names))
        assert log_start(three.nodes[away]) > 0
        assert "first-4" not in three.nodes[away].engine.topics()
        three.stop(lost)
        shutil.rmtree(tmp_path / str(lost))
        three.start(lost)
        until(lambda: knows(three.nodes[lost], names))
        assert log_start(three.nodes[lost]) > 0
        names += make_topics(three, "last", 2)
        until(lambda: all(knows(node, names) for node in three.nodes.values()))
    with cluster(tmp_path, snapshot_bytes=2_000) as three:
        until(lambda: all(knows(node, names) for node in three.nodes.values()))
        assert all(log_start(node) > 0 for node in three.nodes.values())
        make_topics(three, "again", 1)
