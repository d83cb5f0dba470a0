"""Whole nodes: what the metadata say of who may do what is changed at any of them, and known to all."""

from __future__ import annotations

from pathlib import Path

import pytest

from replication.cluster.machine import AccessChange
from replication.errors import MetadataConflictError
from tests.replication.cluster_nodes import cluster, until

ALICE = ("user", "alice")
BOB = ("user", "bob")


def test_it_is_changed_at_any_node_and_known_to_all(tmp_path: Path) -> None:
    with cluster(tmp_path, snapshot_bytes=2_000) as three:
        for number, node in sorted(three.nodes.items()):
            change = AccessChange(ALICE, number - 1 or None, number)
            until(lambda node=node, change=change: node.access().get(ALICE) == change.before)
            node.change_access([change], 20.0)
            assert node.access()[ALICE] == number
        node = three.nodes[1]
        until(lambda: node.access()[ALICE] == 3)
        seen = node.access()
        three.create_topic("t")
        until(lambda: "t" in node.engine.topics())
        assert node.access() is seen  # brokers make nothing anew of it
        with pytest.raises(MetadataConflictError):
            node.change_access([AccessChange(BOB, None, 1), AccessChange(ALICE, 2, 5)], 20.0)
        assert BOB not in node.access()
        node.change_access([AccessChange(ALICE, 2, 3)], 20.0)  # it is in: an answer may have been lost
        node.change_access(
            [AccessChange(ALICE, 3, None), AccessChange(BOB, None, {"a": [1, None, "ü"]})], 20.0
        )
        for one in three.nodes.values():
            until(lambda one=one: dict(one.access()) == {BOB: {"a": [1, None, "ü"]}})
    with cluster(tmp_path) as three:
        for one in three.nodes.values():
            until(lambda one=one: dict(one.access()) == {BOB: {"a": [1, None, "ü"]}})
