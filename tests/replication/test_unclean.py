"""Unclean recovery: a node goes on alone with what it has, and only when it is asked to."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from logstore.cli.main import cli
from logstore.errors import InvalidArgumentError, StoreNotFoundError, TopicLockedError
from logstore.seams.clock import SystemClock
from logstore.seams.fs import OsFileSystem
from replication.errors import ClusterMismatchError
from replication.unclean import UncleanPartition, recover
from tests.replication.cluster_nodes import Cluster, cluster, until

ROWS = [(b"k", b"v%d" % number) for number in range(10)]


def plan(root: Path, node: int, *, dry_run: bool = True) -> dict[str, UncleanPartition]:
    rows = recover(OsFileSystem(), str(root), node, SystemClock(), dry_run=dry_run)
    return {f"{row.topic}-{row.partition}": row for row in rows}


def three_with_records(root: Path) -> None:
    with cluster(root) as three:
        three.create_topic("t")
        three.leader("t").store.partition("t", 0).append(ROWS)
        replicas = [node.node.replicas() for node in three.nodes.values()]
        until(
            lambda: all(
                one.log.high_watermark == 10 for found in replicas for one in found if one.where == "t-0"
            )
        )


def test_one_of_three_goes_on_alone_with_all_that_it_has(tmp_path: Path) -> None:
    three_with_records(tmp_path)
    shown = plan(tmp_path / "2", 2)
    assert shown["t-0"] == UncleanPartition("t", 0, (1, 2, 3), 10, 10)
    assert shown["__cluster_metadata-0"].voters == (1, 2, 3)
    assert plan(tmp_path / "2", 2) == shown  # a look changes nothing
    assert plan(tmp_path / "2", 2, dry_run=False) == shown
    assert plan(tmp_path / "2", 2)["t-0"].voters == (2,)
    alone = Cluster(tmp_path)
    alone.voters = frozenset({2})
    try:
        alone.start(2)
        leader = alone.leader("t")
        leader.store.partition("t", 0).append([(b"k", b"more")])
        found = [record.value for record in leader.store.partition("t", 0).records(0)]
        assert found == [value for _, value in ROWS] + [b"more"]
    finally:
        alone.close()


def test_a_node_that_runs_is_refused(tmp_path: Path) -> None:
    with cluster(tmp_path, 1), pytest.raises(TopicLockedError):
        plan(tmp_path / "1", 1)


def test_directories_of_others_are_refused(tmp_path: Path) -> None:
    import logstore

    three_with_records(tmp_path)
    with pytest.raises(ClusterMismatchError):
        plan(tmp_path / "2", 3)
    with logstore.open(tmp_path / "plain"):
        pass
    with pytest.raises(InvalidArgumentError, match="no directory of a cluster's node"):
        plan(tmp_path / "plain", 1)
    with pytest.raises(StoreNotFoundError):
        plan(tmp_path / "none", 1)
    assert not (tmp_path / "none").exists(), "what is refused makes nothing"


def test_the_command_shows_what_may_be_lost(tmp_path: Path) -> None:
    three_with_records(tmp_path)
    words = ["cluster", "recover", "--data", str(tmp_path / "1"), "--node-id", "1"]
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 2
    assert "--unclean" in refused.output
    shown = CliRunner().invoke(cli, [*words, "--unclean", "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert "t-0" in shown.output
    done = CliRunner().invoke(cli, [*words, "--unclean", "--json"])
    assert done.exit_code == 0, done.output
    assert '"high_watermark": 10' in done.output
