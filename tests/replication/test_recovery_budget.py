"""What replicas that are behind are sent has a bound; in-sync ones, and those that a commit waits for, have none."""

from __future__ import annotations

from logstore.config import TopicConfig
from logstore.format.batch import encode_batch
from logstore.log.append_validation import own_batch
from logstore.seams.clock import ManualClock
from replication.raft.types import RaftSettings
from replication.recovery_budget import RecoveryBudget
from tests.replication.nodes import NOW_MS, TICK_S, ClusterNode, Nodes

BYTES_S = 50_000
MESSAGE = 16_000
VALUE = b"v" * 4_000
SETTINGS = RaftSettings(silent_on_empty=True, max_entries_bytes=MESSAGE)


def test_a_second_is_there_at_once_and_debts_are_paid_off() -> None:
    clock = ManualClock()
    budget = RecoveryBudget(1000, clock)
    assert budget.has_room()
    budget.take(3000)
    assert not budget.has_room()
    clock.advance(1900)
    assert not budget.has_room()
    clock.advance(200)
    assert budget.has_room()
    clock.advance(60_000)
    assert budget.has_room()
    budget.take(1000)
    assert not budget.has_room(), "what was not used is not saved up"


def behind(*gone: int, values: int) -> tuple[Nodes, ClusterNode]:
    """A cluster of which some nodes were away for longer than a replica may lag, while much was written."""
    nodes = Nodes(settings=SETTINGS, recovery_bytes_s=BYTES_S)
    nodes.committed(b"first")
    leader = nodes.leader()
    for node in gone:
        nodes[node if node != leader.node_id else 1].kill()
    for _ in range(values):
        nodes.append(leader, VALUE, acks=1)
        nodes.tick()
    return nodes, leader


def end_of(node: ClusterNode) -> int:
    return node.files.log.log_end_offset


def test_a_replica_that_was_away_is_filled_at_the_rate_while_others_go_on() -> None:
    nodes, leader = behind(3, values=100)
    away = next(node for node in nodes.nodes.values() if not node.alive)
    away.start()
    before = end_of(away)
    for _ in range(int(2.0 / TICK_S)):
        nodes.tick()
    got = (end_of(away) - before) * len(VALUE)
    assert BYTES_S < got <= 3 * BYTES_S + MESSAGE, "a second's share at once, and two seconds' more"
    append = nodes.append(leader, b"now")
    nodes.settle()
    assert append.done, "the others have it"
    nodes.run(lambda: end_of(away) == end_of(leader))
    nodes.run(lambda: away.node_id in leader.replica.in_sync.nodes(leader.replica.core.state))
    nodes.tick()
    for _ in range(2 * BYTES_S // len(VALUE)):
        nodes.append(leader, VALUE)
    nodes.settle()
    assert end_of(away) == end_of(leader), "in sync, it is sent everything at once"


def test_a_replica_that_a_commit_waits_for_is_not_held_up() -> None:
    nodes, leader = behind(3, values=100)
    away = next(node for node in nodes.nodes.values() if not node.alive)
    third = next(node for node in nodes.living if node is not leader)
    away.start()
    nodes.tick()
    third.kill()
    append = nodes.append(leader, b"now")
    lag_ticks = int(2.0 / TICK_S)
    nodes.run(lambda: append.done, most=lag_ticks + 10)  # at the rate alone it would take four times as long
    assert append.error is None


def test_the_pieces_of_a_snapshot_count() -> None:
    settings = RaftSettings(silent_on_empty=True, snapshot_piece_bytes=1_000)
    nodes = Nodes(settings=settings, config=TopicConfig(segment_bytes=4_096), recovery_bytes_s=4_000)
    nodes.committed(b"first")
    leader = nodes.leader()
    away = next(node for node in nodes.living if node is not leader)
    away.kill()
    for producer in range(500):
        data = encode_batch(
            [(None, b"v")], now_ms=NOW_MS, producer_id=producer, producer_epoch=0, base_sequence=0
        )
        leader.partition.append([own_batch(data)], 1)
        nodes.tick()
    log = leader.files.log
    leader.partition.delete_records(log.high_watermark)
    while len(log.segments.segments) > 1:
        log.drop_front(1)
    size = len(log.snapshot().producers)
    away.start()
    nodes.run(lambda: away.replica.core.state.incoming)
    for _ in range(int(2.0 / TICK_S)):
        nodes.tick()
    incoming = away.replica.core.state.incoming
    assert incoming is not None
    share = 3 * 4_000  # of a second at once, as nothing was sent while it was away, and of two seconds more
    assert share - 1_000 <= len(incoming.data) <= share + 2_000 < size
    nodes.run(lambda: end_of(away) == end_of(leader), most=20 * size // 4_000 + 200)
    assert away.files.log.producers.entry(499) is not None
