"""A leader of before: what it refuses for good it has a majority confirm first."""

from __future__ import annotations

from logstore.errors import OutOfOrderSequenceError
from logstore.format.batch import encode_batch
from logstore.log.append_validation import own_batch
from replication.errors import NotLeaderError
from replication.replicas.pending import ReplicatedAppend
from tests.replication.nodes import NOW_MS, ClusterNode, Nodes


def _append(node: ClusterNode, sequence: int) -> ReplicatedAppend:
    data = encode_batch(
        [(None, b"%d" % sequence)], now_ms=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    return node.partition.append([own_batch(data)])


def test_a_sequence_that_a_deposed_leader_does_not_expect_is_no_final_refusal() -> None:
    nodes = Nodes(3)
    old = nodes.leader()
    first = _append(old, 0)
    nodes.run(lambda: first.done)
    for other in nodes.nodes.values():
        if other is not old:
            nodes.network.cut(old.node_id, other.node_id)
    nodes.run(lambda: any(one is not old for one in nodes.leaders()))
    (new,) = (one for one in nodes.leaders() if one is not old)
    nodes.run(lambda: new.replica.is_all_committed)
    second = _append(new, 1)
    nodes.run(lambda: second.done)
    assert second.error is None
    if old.replica.is_leader:
        third = _append(old, 2)  # it has not seen sequence 1
        nodes.run(lambda: third.done)
        assert isinstance(third.error, NotLeaderError)


def test_a_leader_that_leads_refuses_a_gap() -> None:
    nodes = Nodes(3)
    leader = nodes.leader()
    first = _append(leader, 0)
    nodes.run(lambda: first.done)
    gap = _append(leader, 5)
    nodes.run(lambda: gap.done)
    assert isinstance(gap.error, OutOfOrderSequenceError)


def test_records_that_were_deleted_stay_so_at_the_next_leader() -> None:
    nodes = Nodes(3)
    for sequence in range(4):
        append = _append(nodes.leader(), sequence)
        nodes.run(lambda append=append: append.done)  # type: ignore[misc]
    old = nodes.leader()
    nodes.run(
        lambda: all(one.files.log.high_watermark == old.files.log.high_watermark for one in nodes.living)
    )
    end = old.files.log.high_watermark
    assert old.partition.delete_records(end - 1) == end - 1
    old.kill()
    nodes.run(lambda: any(one is not old for one in nodes.leaders()))
    assert nodes.leader().files.log.log_start_offset == end - 1
