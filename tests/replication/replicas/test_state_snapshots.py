"""Snapshots of a log's state: their files, their way to a follower in pieces, and what a crash or damage leaves."""

from __future__ import annotations

import json

import pytest

from logstore.config import TopicConfig
from logstore.errors import CorruptBatchError, DamagedStoreError
from logstore.format.batch import read_header
from logstore.format.control import ControlType, decode_control_batch
from logstore.machine import Change
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import KeepAll, KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from replication.raft.types import RaftSettings
from replication.replicas.state_snapshots import (
    DAMAGED_SUFFIX,
    SnapshotId,
    decode_state,
    encode_state,
)
from tests.replication.nodes import NOW_MS, ClusterNode, Nodes, values_of

SMALL = TopicConfig(segment_bytes=400)
PIECES = RaftSettings(silent_on_empty=True, snapshot_piece_bytes=100)


def state_of(node: ClusterNode, end: int) -> list[Change]:
    """What the test's machine is: the values so far, in one record."""
    before = node.replica.state_before(0)
    first, kept = (0, []) if before is None else (before.end_offset, json.loads(before.changes[0][1] or b""))
    values = [value.decode() for _, value in node.values_between(first, end)]
    return [(b"all", json.dumps([*kept, *values]).encode())]


def take(node: ClusterNode) -> SnapshotId:
    log, states = node.files.log, node.files.states
    assert states is not None
    end = log.high_watermark
    snapshot = SnapshotId(end, log.term_at(end - 1))
    states.save(snapshot, encode_state(state_of(node, end), snapshot.term, NOW_MS))
    with node.replica.lock:
        node.files.cut_front()
    return snapshot


def shown(node: ClusterNode) -> list[bytes]:
    """All that the node's machine would know."""
    state = state_of(node, node.files.log.high_watermark)
    return [value.encode() for value in json.loads(state[0][1] or b"")]


def fill(nodes: Nodes, first: int, count: int) -> None:
    for number in range(first, first + count):
        nodes.committed(b"value-%d" % number)
    nodes.agree()


def with_snapshots(*, settings: RaftSettings = PIECES) -> tuple[Nodes, list[bytes]]:
    """Three nodes, each of which has two snapshots and has cut its log."""
    nodes = Nodes(config=SMALL, keeps_state=True, settings=settings)
    for first in (0, 20):
        fill(nodes, first, 20)
        for node in nodes.living:
            take(node)
    fill(nodes, 40, 5)
    return nodes, [b"value-%d" % number for number in range(45)]


# --- files ---


def test_a_file_is_what_kafka_takes_for_a_snapshot() -> None:
    changes: list[Change] = [(b"%d" % number, b"v") for number in range(2500)]
    data = encode_state(changes, 7, NOW_MS)
    assert decode_state(data, "x") == changes
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (0, 7)
    assert decode_control_batch(data[: header.size], 0, header).type == ControlType.SNAPSHOT_HEADER
    assert SnapshotId(7228, 1).file_name == "00000000000000007228-0000000001.checkpoint"
    assert decode_state(encode_state([], 0, NOW_MS), "x") == []


def test_what_is_cut_off_or_changed_is_no_snapshot() -> None:
    data = encode_state([(b"%d" % number, b"v") for number in range(1500)], 7, NOW_MS)
    for size in range(0, len(data), 11):
        with pytest.raises(CorruptBatchError):
            decode_state(data[:size], "x")
    for at in range(16, len(data), 97):
        changed = bytearray(data)
        changed[at] ^= 4
        with pytest.raises(CorruptBatchError):
            decode_state(bytes(changed), "x")
    batches = _batches(data)
    for gone in range(len(batches)):
        with pytest.raises(CorruptBatchError):
            decode_state(b"".join(batches[:gone] + batches[gone + 1 :]), "x")


def _batches(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = read_header(data).size
        found.append(data[:size])
        data = data[size:]
    return found


# --- the front of a log goes ---


def test_the_log_is_cut_before_the_last_but_one() -> None:
    nodes, values = with_snapshots()
    for node in nodes.living:
        assert node.files.states is not None
        assert len(node.files.states.kept) == 2
        assert node.files.log.log_start_offset == node.files.states.kept[0].end_offset
        assert node.files.log.segments.segments[0].base_offset > 0
        assert shown(node) == values
        node.stop()
    for node in nodes.nodes.values():
        node.start()
    nodes.agree()
    assert all(shown(node) == values for node in nodes.living)


def test_one_far_behind_is_sent_the_snapshot_in_pieces_then_the_log() -> None:
    nodes = Nodes(config=SMALL, keeps_state=True, settings=PIECES)
    fill(nodes, 0, 5)
    behind = next(node for node in nodes.living if node is not nodes.leader())
    behind.stop()
    for first in (5, 40):
        fill(nodes, first, 35)
        for node in nodes.living:
            take(node)
    fill(nodes, 75, 3)
    leader = nodes.leader()
    assert leader.files.states is not None
    newest = leader.files.states.newest
    assert newest is not None
    assert len(leader.files.states.content(newest) or b"") > 5 * PIECES.snapshot_piece_bytes
    behind.start()
    nodes.agree()
    assert behind.files.states is not None
    assert behind.files.states.newest == newest
    assert behind.files.log.log_start_offset == newest.end_offset
    assert shown(behind) == [b"value-%d" % number for number in range(78)]
    nodes.append(leader, b"more")
    assert values_of(nodes.agree())[-1] == b"more"
    behind.stop()
    behind.start()
    nodes.agree()
    assert shown(behind)[-1] == b"more"


def test_pieces_that_are_lost_come_again() -> None:
    nodes = Nodes(config=SMALL, keeps_state=True, settings=PIECES)
    fill(nodes, 0, 1)
    behind = next(node for node in nodes.living if node is not nodes.leader())
    behind.stop()
    for first in (1, 30):
        fill(nodes, first, 29)
        for node in nodes.living:
            take(node)
    leader = nodes.leader()
    behind.start()
    for number in range(200):  # the line is cut again and again
        if number % 3 == 0:
            nodes.network.cut(leader.node_id, behind.node_id)
        nodes.tick()
        nodes.network.heal()
        for _ in range(2):
            nodes.network.step()
    nodes.agree()
    assert shown(behind) == [b"value-%d" % number for number in range(59)]


# --- damage ---


def damage(node: ClusterNode, snapshot: SnapshotId) -> None:
    path = f"{node.files.directory}/{snapshot.file_name}"
    file = node.fs.open(path, "rw")
    file.pwritev([b"\x00\x01\x02"], 100)
    file.sync()
    file.close()


@pytest.mark.parametrize("lost", [[1], [0], [0, 1]], ids=["newest", "older", "both"])
def test_a_damaged_snapshot_is_told_and_made_good(lost: list[int], caplog: pytest.LogCaptureFixture) -> None:
    nodes, values = with_snapshots()
    node = next(node for node in nodes.living if node is not nodes.leader())
    assert node.files.states is not None
    kept = node.files.states.kept
    node.stop()
    for number in lost:
        damage(node, kept[number])
    node.start()
    assert "damaged" in caplog.text
    if len(lost) == 1:
        assert any(name.endswith(DAMAGED_SUFFIX) for name in node.fs.listdir(node.files.directory))
    nodes.agree()
    assert shown(node) == values
    assert (node.files.repaired is not None) == (len(lost) == 2)  # filled by the others


def test_damage_that_a_leader_meets_takes_it_out_of_its_place() -> None:
    """The snapshot is needed for a new node, and is damaged: another leads, which has a whole one."""
    nodes, values = with_snapshots()
    leader = nodes.leader()
    behind = next(node for node in nodes.living if node is not leader)
    behind.stop()
    behind.fs = MemoryFileSystem()
    behind.fs.mkdir("/store")
    behind.fs.sync_dir("/")
    assert leader.files.states is not None
    for snapshot in leader.files.states.kept:
        damage(leader, snapshot)
    behind.start()
    nodes.run(lambda: isinstance(leader.replica.failure, DamagedStoreError))
    leader.stop()
    leader.start()
    assert leader.files.repaired is not None
    nodes.agree()
    assert all(shown(node) == values for node in nodes.living)


def test_without_others_damage_is_an_error() -> None:
    nodes = Nodes(1, config=SMALL, keeps_state=True)
    for first in (0, 20):
        fill(nodes, first, 20)
        take(nodes[1])
    assert nodes[1].files.states is not None
    kept = nodes[1].files.states.kept
    nodes[1].stop()
    for snapshot in kept:
        damage(nodes[1], snapshot)
    with pytest.raises(DamagedStoreError, match="no whole snapshot"):
        nodes[1].start()


# --- crashes ---


@pytest.mark.parametrize("chooser", [KeepNothing(), KeepAll()], ids=["nothing", "all"])
@pytest.mark.parametrize("at", range(1, 60))
def test_a_crash_at_every_step_of_taking_one(at: int, chooser: KeepNothing | KeepAll) -> None:
    nodes, values = with_snapshots()
    node = nodes.leader()
    node.fs.faults.on("", FaultKind.CRASH, skip=at)
    try:
        take(node)
    except SimulatedCrash:
        node.kill(chooser)
        node.start()
    node.fs.faults.clear()
    nodes.agree()
    assert shown(node) == values
    take(node)
    assert shown(node) == values


@pytest.mark.parametrize("chooser", [KeepNothing(), KeepAll()], ids=["nothing", "all"])
@pytest.mark.parametrize("at", range(1, 60))
def test_a_crash_at_every_step_of_installing_one(at: int, chooser: KeepNothing | KeepAll) -> None:
    """The node that is filled had another end of the log, which was never committed."""
    nodes, values = with_snapshots()
    behind = next(node for node in nodes.living if node is not nodes.leader())
    behind.stop()
    for first in (45, 65):
        fill(nodes, first, 20)
        for node in nodes.living:
            take(node)
    values += [b"value-%d" % number for number in range(45, 85)]
    behind.start()
    behind.fs.faults.on("", FaultKind.CRASH, skip=at)
    for _ in range(200):
        try:
            nodes.tick()
        except SimulatedCrash:
            behind.kill(chooser)
            behind.start()
    behind.fs.faults.clear()
    nodes.agree()
    assert shown(behind) == values
