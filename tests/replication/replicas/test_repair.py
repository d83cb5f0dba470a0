"""A replica whose log is damaged is filled by the others, and does not vote before it holds what was committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.config import TopicConfig
from logstore.errors import DamagedStoreError, OutcomeUnknownError
from logstore.seams.faults import FaultKind, SimulatedCrash
from replication.replicas import repair
from tests.replication.cluster_nodes import cluster, until
from tests.replication.nodes import ClusterNode, Nodes, values_of

SMALL = TopicConfig(segment_bytes=400)


def full() -> Nodes:
    nodes = Nodes(config=SMALL)
    for number in range(20):
        nodes.committed(b"%d" % number)
    nodes.agree()
    return nodes


def lose(node: ClusterNode, number: int) -> None:
    """The segment of that number is gone from the disk of a node that was stopped."""
    directory = node.files.directory
    logs = sorted(name for name in node.fs.listdir(directory) if name.endswith(".log"))
    node.fs.remove(f"{directory}/{logs[number]}")
    node.fs.sync_dir(directory)


@pytest.mark.parametrize("number", [0, 1, -2])
def test_a_follower_that_lost_a_file_is_filled_again(number: int, caplog: pytest.LogCaptureFixture) -> None:
    nodes = full()
    node = next(node for node in nodes.living if node is not nodes.leader())
    node.stop()
    lose(node, number)
    node.start()
    assert node.files.repaired is not None
    assert f"filled from the others: {node.files.repaired}" in caplog.text
    assert repair.abstains(node.fs, node.files.directory)
    assert len(nodes.agree()) == 20
    assert not repair.abstains(node.fs, node.files.directory)
    assert any(repair.ASIDE in name for name in node.fs.listdir("/store"))
    node.stop()
    node.start()
    assert node.files.repaired is None
    assert len(nodes.agree()) == 20


def test_a_state_that_cannot_tell_of_a_failed_log_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    nodes = full()
    node = nodes.leader()
    node.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log", forever=True)
    node.fs.faults.on("pwritev", FaultKind.ENOSPC, path_ends="t.json.tmp", forever=True)
    with pytest.raises(OutcomeUnknownError):
        node.files.log.append_voters(b"", 99)  # begins a segment, and syncs the one before
    assert f"the state of {node.files.directory} does not say that its log failed" in caplog.text


def test_it_gives_no_vote_meanwhile() -> None:
    """A, B and C: the last records are on A and B. B loses its log, A goes: C must not be elected by B."""
    nodes = full()
    leader = nodes.leader()
    behind, damaged = (node for node in nodes.living if node is not leader)
    behind.stop()
    nodes.committed(b"kept")
    damaged.stop()
    leader.stop()
    lose(damaged, 0)
    damaged.start()
    behind.start()
    for _ in range(200):
        nodes.tick()
    assert not nodes.leaders()
    leader.start()
    assert values_of(nodes.agree())[-1] == b"kept"


def test_a_log_without_others_is_not_set_aside() -> None:
    nodes = Nodes(1, config=SMALL)
    for number in range(20):
        nodes.committed(b"%d" % number)
    nodes[1].stop()
    lose(nodes[1], 0)
    with pytest.raises(DamagedStoreError):
        nodes[1].start()


@pytest.mark.parametrize("calls", range(1, 14))
def test_a_repair_that_is_cut_short_goes_on(calls: int) -> None:
    nodes = full()
    node = next(node for node in nodes.living if node is not nodes.leader())
    node.stop()
    lose(node, 0)
    node.fs.faults.on("rename", FaultKind.CRASH, skip=calls)
    try:
        node.start()
    except SimulatedCrash:
        node.kill()
        node.start()
    node.fs.faults.clear()
    assert len(nodes.agree()) == 20


def test_damage_that_is_met_at_work_is_repaired_too(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t", config={"segment.bytes": "1024"})
        leader = three.leader("t")
        for _ in range(10):
            leader.store.partition("t", 0).append([(b"k", bytes(500))])
        group = next(one.group for one in leader.node.replicas() if one.where == "t-0")
        other = next(node for node in three.nodes.values() if node is not leader)
        until(lambda: (found := other.node.replica(group)) is not None and found.log.high_watermark == 10)
        replica = other.node.replica(group)
        assert replica is not None
        with replica.lock:
            replica._fail(DamagedStoreError("as if a read had found it"))
        until(lambda: other.node.replica(group) not in (None, replica))
        until(lambda: (found := other.node.replica(group)) is not None and found.log.high_watermark == 10)
        assert list((tmp_path / str(other.node_id)).glob("t-0.damaged-*"))
