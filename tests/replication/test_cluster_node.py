"""Whole nodes: a cluster begins, topics come and go on all of its nodes, and a node's directory stays a store."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.api.records import FetchRequest
from logstore.directory.layout import PROBE_FILE
from logstore.errors import (
    DataLossError,
    ForeignDirectoryError,
    OffsetOutOfRangeError,
    RetriableError,
    TopicLockedError,
    UnknownTopicError,
)
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.seams.clock import SystemClock
from logstore.seams.fs import OsFileSystem
from logstore.types import TopicPartition
from replication.cluster.identity import IdentityFile
from replication.cluster_node import ClusterNode
from replication.errors import ClusterMismatchError, LeaderNotReadyError, NotLeaderError
from tests.replication.cluster_nodes import Cluster, cluster, until

ROWS = [(b"k", b"v%d" % number) for number in range(10)]


def values(store: logstore.LogStore, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in store.partition(topic, partition).records(0)]


def test_a_topic_is_on_all_nodes_and_survives_its_leader(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t", partitions=3)
        leader = three.leader("t")
        leader.store.partition("t", 0).append(ROWS)
        three.stop(leader.node_id)
        successor = three.leader("t")
        successor.store.partition("t", 0).append([(b"k", b"more")])
        assert values(successor.store, "t") == [row[1] for row in ROWS] + [b"more"]


def test_all_is_there_after_all_were_stopped(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t", config={"max.message.bytes": "2000000"})
        three.leader("t").store.partition("t", 0).append(ROWS)
        identity = three.nodes[1].cluster_id
    with cluster(tmp_path) as three:
        assert three.nodes[1].cluster_id == identity
        leader = three.leader("t")
        assert values(leader.store, "t") == [row[1] for row in ROWS]
        assert leader.engine.topic("t").max_message_bytes == 2_000_000


def test_a_stopped_nodes_directory_is_a_store(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t")
        three.leader("t").store.partition("t", 0).append(ROWS)
        until(lambda: all(node.node.replicas()[-1].log.high_watermark == 10 for node in three.nodes.values()))
    for number in (1, 2, 3):
        root = tmp_path / str(number)
        with logstore.open(root, mode="r") as store:
            assert values(store, "t") == [row[1] for row in ROWS]
        (root / PROBE_FILE).write_bytes(b"left by a node that was killed")
        found = verify_store(OsFileSystem(), str(root), SystemClock().boot_id(), Totals())
        assert [str(fault) for fault in found] == []


def test_a_nodes_directory_is_written_by_the_cluster_alone(tmp_path: Path) -> None:
    """One record that only its directory has, and the replica takes no part any more."""
    with cluster(tmp_path) as three:
        three.create_topic("t")
        with pytest.raises(ForeignDirectoryError, match="a directory of a cluster's node"):
            logstore.open(tmp_path / "1")
    with pytest.raises(ForeignDirectoryError, match="a directory of a cluster's node"):
        logstore.open(tmp_path / "2")
    with logstore.open(tmp_path / "2", mode="r") as store:
        store.backup(tmp_path / "copy")
    logstore.restore(tmp_path / "copy", tmp_path / "own")
    with logstore.open(tmp_path / "own") as store:  # a copy is a store like any other
        store.partition("t", 0).append(ROWS)


def test_a_broker_that_found_no_peer_has_left_the_directory_to_its_store(tmp_path: Path) -> None:
    """Started with wrong peers, say: nothing was replicated, and the store's owner goes on."""
    with logstore.open(tmp_path / "own") as store:
        store.create_topic("t")
    identity = IdentityFile(OsFileSystem(), str(tmp_path / "own"), 1)
    identity.draw_directory_id(bytes)
    with logstore.open(tmp_path / "own") as store:
        store.partition("t", 0).append(ROWS)
    identity.begin({1: "a"})
    with pytest.raises(ForeignDirectoryError):
        logstore.open(tmp_path / "own")
    (tmp_path / "own" / "cluster.json").write_text("{")
    with pytest.raises(ForeignDirectoryError):
        logstore.open(tmp_path / "own")


def test_how_clean_a_topic_is_at_a_node_that_has_none_of_it(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        config = {"cleanup.policy": "compact"}
        three.controller.store.admin.create_topic("t", 3, config, replication_factor=1)
        for number in range(3):
            rows = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]
            three.leader("t", number).store.partition("t", number).append(rows)
        three.controller.store.admin.compact("t", roll=True)
        for node in three.nodes.values():
            compactions = [row.compaction for row in node.store.admin.describe_topic("t").partitions]
            assert [None if one is None else one.exact_from for one in compactions] == [3] * 3


def test_a_store_becomes_a_clusters_first_node(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "2") as store:
        store.create_topic("old", config={"retention.ms": "-1"})
        store.partition("old", 0).append(ROWS)
    with cluster(tmp_path) as three:
        until(lambda: all("old" in node.engine.topics() for node in three.nodes.values()))
        leader = three.leader("old")
        assert leader.node_id == 2
        assert values(leader.store, "old") == [row[1] for row in ROWS]
        leader.store.partition("old", 0).append([(b"k", b"new")])
        assert three.nodes[1].replicas_of("old", 0) == (2,)


def test_a_deleted_topic_goes_everywhere_also_from_a_node_that_was_away(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        controller = three.controller
        for name in ("gone", "kept"):
            controller.store.create_topic(name)
        away = next(number for number in three.nodes if number != controller.node_id)
        until(lambda: (tmp_path / str(away) / "gone-0").exists())
        three.stop(away)
        three.controller.store.admin.delete_topic("gone")
        three.start(away)
        until(lambda: not any((tmp_path / str(number) / "gone-0").exists() for number in three.nodes))
        assert all("kept" in node.engine.topics() for node in three.nodes.values())
        three.create_topic("gone")
        three.leader("gone").store.partition("gone", 0).append(ROWS)


def test_a_node_that_does_not_lead_names_the_leader(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t")
        leader = three.leader("t")
        other = next(node for node in three.nodes.values() if node is not leader)
        until(lambda: "t" in other.engine.topics() and other.leader_of("t", 0)[0] == leader.node_id)
        with pytest.raises(NotLeaderError) as caught:
            other.store.partition("t", 0).append(ROWS)
        assert caught.value.leader_id == leader.node_id


def test_only_the_controller_makes_topics(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        controller = three.controller
        other = next(node for node in three.nodes.values() if node is not controller)
        with pytest.raises(NotLeaderError) as caught:
            other.store.create_topic("t")
        assert caught.value.leader_id == controller.node_id


def test_a_directory_is_one_nodes_and_one_clusters(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as one, pytest.raises(TopicLockedError):
        one.make(1).start()
    other = Cluster(tmp_path, 1)
    (tmp_path / "1").rename(tmp_path / "moved")
    (tmp_path / "moved").rename(tmp_path / "7")
    other.voters = frozenset({7})
    with pytest.raises(ClusterMismatchError):
        other.start()


def test_what_the_stores_own_threads_ask_for_is_there_before_its_opening_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The housekeeper of a node that starts again begins its work while the store is still being opened."""
    enlist = logstore.LogStore._enlist

    def look_at_once(store: logstore.LogStore, *, threads: bool) -> None:
        store._housekeeper.step()
        enlist(store, threads=threads)

    with cluster(tmp_path) as three:
        three.create_topic("t")
        until(lambda: all("t" in node.engine.topics() for node in three.nodes.values()))
        until(lambda: any("__transaction_state" in node.engine.topics() for node in _asked(three)))
        three.stop(1)
        monkeypatch.setattr(logstore.LogStore, "_enlist", look_at_once)
        three.start(1)


def _asked(three: Cluster) -> list[ClusterNode]:
    """The nodes, after somebody wanted a transactional id."""
    for node in three.nodes.values():
        try:
            node.engine.init_transactions("x", 1000).release()
        except RetriableError:
            continue
    return list(three.nodes.values())


def test_a_position_past_the_end_is_told_by_a_leader_that_a_majority_confirms(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t")
        leader = three.leader("t")
        leader.store.partition("t", 0).append(ROWS)
        beyond = FetchRequest("t", 0, 1000, -1, 1 << 20)
        ((found,), _) = leader.engine.collect([beyond], "read_committed", 1, 1 << 20)
        assert isinstance(found.error, OffsetOutOfRangeError)
        reached = beyond._replace(leader_epoch=leader.store.partition("t", 0).leader_epoch)
        ((found,), _) = leader.engine.collect([reached], "read_committed", 1, 1 << 20)
        assert isinstance(found.error, DataLossError)
        for number in three.nodes:
            three.network.cut(leader.node_id, number)
        ((found,), _) = leader.engine.collect([beyond], "read_committed", 1, 1 << 20)
        assert isinstance(found.error, NotLeaderError | LeaderNotReadyError)
        three.network.heal()


def test_a_node_that_has_not_heard_of_a_topic_asks_before_it_refuses_to_change_it(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t")
        late = next(node for node in three.nodes.values() if node is not three.controller)
        until(lambda: "t" in late.engine.topics())
        known, asked = late.engine.parts._catch_up, []
        late.engine.parts._catch_up = lambda: (asked.append(1), known())[1]
        with pytest.raises(UnknownTopicError):
            late.engine.delete_topic("u")
        with pytest.raises(UnknownTopicError):
            late.engine.alter_topic("u", {"retention.ms": "1"})
        assert len(asked) == 2
        with pytest.raises(NotLeaderError):
            late.engine.delete_topic("t")
        assert len(asked) == 2


def test_a_leader_that_is_cut_off_answers_nothing_that_is_out_of_date(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t")
        old = three.leader("t")
        old.store.partition("t", 0).append(ROWS)
        place = TopicPartition("t", 0)
        assert old.engine.list_offsets([place], "latest", "read_committed")[place].offset == 10
        for number in three.nodes:
            three.network.cut(old.node_id, number)
        with pytest.raises((NotLeaderError, LeaderNotReadyError)):
            old.engine.list_offsets([place], "latest", "read_committed")
        others = {number: node for number, node in three.nodes.items() if node is not old}
        until(lambda: any(node.leader_of("t", 0)[0] == number for number, node in others.items()))
        new = next(node for number, node in others.items() if node.leader_of("t", 0)[0] == number)
        new.store.partition("t", 0).append(ROWS)
        assert new.engine.list_offsets([place], "latest", "read_committed")[place].offset > 20
        with pytest.raises((NotLeaderError, LeaderNotReadyError)):
            old.engine.list_offsets([place], "latest", "read_committed")
        beyond = FetchRequest("t", 0, 20, 1, 1 << 20)
        ((found,), _) = old.engine.collect([beyond], "read_committed", 1, 1 << 20)
        assert isinstance(found.error, NotLeaderError | LeaderNotReadyError)  # and not that records are lost
        (end,) = old.engine.parts.calls.ends_here([place], confirmed=True)
        assert isinstance(end, NotLeaderError | LeaderNotReadyError)
        three.network.heal()
