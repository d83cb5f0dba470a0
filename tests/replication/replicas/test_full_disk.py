"""A leader whose disk takes nothing more gives its place up, and does not come back before the disk takes some."""

from __future__ import annotations

import pytest

from logstore.errors import DiskFullError
from logstore.format.batch import encode_batch
from logstore.log.append_validation import own_batch
from logstore.seams.faults import FaultKind
from replication.errors import LeaderDiskError, LeaderNotReadyError, NotLeaderError
from replication.raft.types import NO_NODE
from replication.replicas.pending import ReplicatedAppend
from tests.replication.nodes import NOW_MS, ClusterNode, Nodes, values_of


def _fill(node: ClusterNode, room: int = 100) -> None:
    node.fs.capacity_bytes = node.fs._used + room


def _append(node: ClusterNode, sequence: int, size: int = 3000) -> ReplicatedAppend:
    rows = [(None, b"%d" % sequence + bytes(size))]
    data = encode_batch(rows, now_ms=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=sequence)
    return node.partition.append([own_batch(data)])


def _refuse(node: ClusterNode) -> type[Exception]:
    with pytest.raises((LeaderDiskError, DiskFullError, LeaderNotReadyError, NotLeaderError)) as refused:
        _append(node, 1)
    return refused.type


def test_a_leader_whose_disk_is_full_gives_its_place_to_a_follower() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    old = nodes.leader()
    _fill(old)
    assert _refuse(old) is LeaderDiskError
    assert _refuse(old) is not DiskFullError
    nodes.run(lambda: nodes.leaders() and old not in nodes.leaders(), most=5)
    new = nodes.leader()
    appended = _append(new, 1)
    nodes.run(lambda: appended.done)
    assert appended.error is None
    # It stays so for as long as the disk is full: nothing of what it does ends the new leader's term.
    term = new.replica.term
    for _ in range(400):
        nodes.tick()
    assert nodes.leader() is new
    assert new.replica.term == term
    old.fs.capacity_bytes = None
    nodes.run(lambda: old.files.log.high_watermark == new.files.log.high_watermark)
    assert len(nodes.agree()) == 2


def test_it_does_not_stand_while_another_may_and_its_disk_refuses() -> None:
    nodes = Nodes(5)
    nodes.committed(b"a")
    old = nodes.leader()
    _fill(old)
    _refuse(old)
    for _ in range(10):
        new = nodes.leader()
        assert new is not old
        new.stop()
        nodes.run(lambda: len(nodes.leaders()) == 1)
        assert nodes.leaders() != [old]
        new.start()
        nodes.run(lambda: all(node.replica.leader_id >= 0 for node in nodes.living if node is not old))


def test_it_leads_again_when_its_disk_takes_writes() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    old = nodes.leader()
    _fill(old)
    _refuse(old)
    new = nodes.leader()
    assert new is not old
    old.fs.capacity_bytes = None
    nodes.run(lambda: not old.node.disk_refuses(old.node_id))
    nodes.run(lambda: not new.node.disk_refuses(old.node_id))
    nodes.run(lambda: old.files.log.high_watermark == new.files.log.high_watermark)
    with new.replica.lock:
        new.replica.transfer(old.node_id)
    nodes.run(lambda: nodes.leaders() == [old])
    nodes.committed(b"b")
    assert len(nodes.agree()) == 2


def test_where_all_disks_are_nearly_full_a_leader_stays_and_takes_what_goes() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    for node in nodes.living:
        _fill(node, 2_500)
        node.node.note_refused(DiskFullError("full"))
    nodes.run(lambda: all(one.node.disk_refuses(two) for one in nodes.living for two in nodes.nodes))
    leader = nodes.leader()
    nodes.run(lambda: leader.replica.core.state.transfer_to == NO_NODE)
    assert leader.replica.is_leader
    assert _refuse(leader) is DiskFullError
    term = leader.replica.term
    for _ in range(200):
        nodes.tick()
    assert nodes.leader() is leader
    assert leader.replica.term == term
    nodes.committed(b"b")
    leader.kill()
    nodes.run(nodes.leaders)  # one whose disk refuses most is better than none
    nodes.committed(b"c")
    assert nodes.leader().replica.term > term
    assert values_of(nodes.agree()) == [b"a", b"b", b"c"]


def test_a_leader_whose_disk_fails_in_a_write_gives_its_place_up() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    old = nodes.leader()
    old.fs.faults.on("pwritev", FaultKind.EIO, path_ends=".log")
    assert _refuse(old) is LeaderDiskError
    nodes.run(lambda: nodes.leaders() and old not in nodes.leaders(), most=5)
    new = nodes.leader()
    nodes.run(lambda: not old.node.disk_refuses(old.node_id))
    appended = _append(new, 1)
    nodes.run(lambda: appended.done)
    assert len(nodes.agree()) == 2


def test_a_leader_whose_disk_fails_in_a_sync_is_followed_at_once() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    old = nodes.leader()
    old.fs.faults.on("sync", FaultKind.EIO, path_ends=".log")
    first = _append(old, 1)
    nodes.run(lambda: first.done, most=5)
    assert isinstance(first.error, NotLeaderError)
    nodes.run(lambda: nodes.leaders(), most=5)  # sooner than an election time
    again = _append(nodes.leader(), 1)
    nodes.run(lambda: again.done)
    assert again.error is None


def test_what_comes_and_goes_soon_is_tried_less_and_less_often() -> None:
    nodes = Nodes(1)
    nodes.committed(b"a")
    node = nodes.leader()
    waited = []
    for _ in range(6):
        node.node.note_refused(DiskFullError("full"))
        since_s = nodes.now_s
        nodes.run(lambda: not node.node.disk_refuses(node.node_id), most=2_000)
        waited.append(nodes.now_s - since_s)
    assert waited == sorted(waited)
    assert waited[0] <= 2.5
    assert waited[-1] >= 25


@pytest.mark.parametrize("room", [0, 66_000])
def test_a_follower_whose_disk_is_full_does_not_come_and_go(
    room: int, caplog: pytest.LogCaptureFixture
) -> None:
    """``room``: that there is again each time that it has failed, so that a probe gets through, and little else."""
    nodes = Nodes()
    nodes.committed(b"a")
    follower = next(node for node in nodes.living if node is not nodes.leader())
    _fill(follower)
    failures, failed, sequence, until_s = 0, False, 0, nodes.now_s + 240
    while nodes.now_s < until_s:
        appended = _append(nodes.leader(), sequence)
        sequence += 1
        nodes.run(lambda appended=appended: appended.done)  # type: ignore[misc]
        for _ in range(10):
            nodes.tick()
        fails = follower.replica.failure is not None
        failures += fails and not failed
        failed = fails
        if failed:
            _fill(follower, room)
    assert failures == 1 if room == 0 else 3 <= failures <= 14
    assert len(_said(caplog, "takes no part")) == 1
    follower.fs.capacity_bytes = None
    nodes.run(lambda: follower.replica.failure is None, most=2_000)
    nodes.run(lambda: follower.files.log.high_watermark == nodes.leader().files.log.high_watermark)
    for _ in range(1_600):
        nodes.tick()
    assert len(_said(caplog, "takes part again")) == 1
    assert len(nodes.agree()) > 100


def _said(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [one.message for one in caplog.records if one.levelname != "DEBUG" and what in one.message]
