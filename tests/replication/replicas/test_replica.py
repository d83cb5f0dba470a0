"""Replicas with their real logs: what is committed is on all of them, whatever stops, starts or fills up."""

from __future__ import annotations

from unittest import mock

import pytest

from logstore.config import TopicConfig
from logstore.errors import LogStoreError, OutcomeUnknownError
from logstore.format.batch import encode_batch
from logstore.log.append_validation import own_batch
from logstore.seams.memory_crash import KeepAll
from replication.errors import NotConfirmedError, NotEnoughReplicasError, NotLeaderError
from replication.raft.messages import AppendRequest
from replication.raft.types import Membership
from replication.replicas.pending import LONGEST_KNOWN_S, LONGEST_S
from replication.transport import GroupMessage
from tests.replication.nodes import NOW_MS, Nodes, values_of


def test_a_record_is_committed_on_all_at_offset_0() -> None:
    nodes = Nodes()
    append = nodes.committed(b"a", b"b")
    assert (append.base_offset, append.next_offset) == (0, 2)
    assert nodes.agree() == [(0, b"a"), (1, b"b")]


def test_followers_hold_the_leaders_bytes() -> None:
    nodes = Nodes()
    for number in range(20):
        nodes.committed(b"%d" % number)
    nodes.agree()
    logs = [node.files.log for node in nodes.living]
    contents = [bytes(log.read(0, 1 << 20, log.log_end_offset).data) for log in logs]
    assert contents[0] == contents[1] == contents[2]


def test_what_is_appended_together_goes_to_each_follower_in_one_message() -> None:
    nodes = Nodes()
    nodes.committed(b"first")
    leader = nodes.leader()
    requests: list[AppendRequest] = []
    take = leader.node.network.send

    def note(to: int, message: GroupMessage) -> None:
        if isinstance(message.message, AppendRequest) and message.message.entries:
            requests.append(message.message)
        take(to, message)

    with mock.patch.object(leader.node.network, "send", note):
        with leader.partition.together():
            pending = [nodes.append(leader, b"%d" % number) for number in range(5)]
            assert not requests
        nodes.run(lambda: all(one.done for one in pending))
    assert [len(request.entries) for request in requests] == [5, 5]
    assert [one.base_offset for one in pending] == [1, 2, 3, 4, 5]
    assert values_of(nodes.agree()) == [b"first", *(b"%d" % number for number in range(5))]


def test_what_is_appended_together_is_decided_apart() -> None:
    """A batch that is refused ends neither those before it nor those behind it."""
    nodes = Nodes()
    leader = nodes.leader()
    late = encode_batch([(None, b"late")], now_ms=NOW_MS)
    with leader.partition.together():
        kept = nodes.append(leader, b"kept")
        with pytest.raises(LogStoreError):
            leader.partition.append([own_batch(late)], expected_offset=17)
        more = nodes.append(leader, b"more")
    nodes.run(lambda: kept.done and more.done)
    assert (kept.error, more.error) == (None, None)
    assert values_of(nodes.agree()) == [b"kept", b"more"]


def test_a_follower_has_nothing_to_send_on_together() -> None:
    nodes = Nodes()
    leader = nodes.leader()
    follower = next(node for node in nodes.living if node is not leader)
    with follower.partition.together(), pytest.raises(NotLeaderError):
        nodes.append(follower, b"x")
    assert nodes.agree() == []


def test_a_single_voter_commits_what_it_synced() -> None:
    nodes = Nodes(1)
    nodes.committed(b"alone")
    assert values_of(nodes.agree()) == [b"alone"]


def test_a_follower_refuses_appends_and_names_the_leader() -> None:
    nodes = Nodes()
    leader = nodes.leader()
    follower = next(node for node in nodes.living if node is not leader)
    with pytest.raises(NotLeaderError) as caught:
        nodes.append(follower, b"x")
    assert caught.value.leader_id == leader.node_id
    with pytest.raises(NotLeaderError):
        follower.partition.reader()


def test_what_was_committed_survives_the_leaders_machine() -> None:
    nodes = Nodes()
    nodes.committed(b"kept")
    old = nodes.leader()
    old.kill()
    assert nodes.leader() is not old
    nodes.committed(b"more")
    old.start()
    assert values_of(nodes.agree()) == [b"kept", b"more"]


def test_what_a_deposed_leader_appended_alone_is_cut_off() -> None:
    nodes = Nodes()
    nodes.committed(b"kept")
    old = nodes.leader()
    for node in nodes.living:
        if node is not old:
            nodes.network.cut(old.node_id, node.node_id)
    lost = nodes.append(old, b"lost")
    nodes.run(lambda: lost.done)
    assert isinstance(lost.error, OutcomeUnknownError)
    nodes.run(lambda: any(node is not old for node in nodes.leaders()))
    new = next(node for node in nodes.leaders() if node is not old)
    kept = nodes.append(new, b"won")
    nodes.run(lambda: kept.done)
    nodes.network.heal()
    assert values_of(nodes.agree()) == [b"kept", b"won"]


def test_an_idempotent_append_again_at_the_next_leader_is_found_there() -> None:
    nodes = Nodes()
    data = encode_batch([(None, b"once")], now_ms=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=0)
    first = nodes.leader().partition.append([own_batch(data)])
    nodes.run(lambda: first.done)
    nodes.leader().kill()
    again = nodes.leader().partition.append([own_batch(data)])
    nodes.run(lambda: again.done)
    assert (again.base_offset, again.error) == (first.base_offset, None)
    assert values_of(nodes.agree()) == [b"once"]


@pytest.mark.parametrize("in_order", [True, False])
def test_all_stop_and_start(in_order: bool) -> None:
    nodes = Nodes()
    for number in range(5):
        nodes.committed(b"%d" % number)
    nodes.agree()
    for node in nodes.living:
        if in_order:
            node.stop()
        else:
            node.kill()
    for node in nodes.nodes.values():
        node.start()
    assert values_of(nodes.agree()) == [b"%d" % number for number in range(5)]
    nodes.committed(b"5")


def test_a_follower_behind_the_log_start_gets_a_snapshot_with_producers() -> None:
    nodes = Nodes(config=TopicConfig(segment_bytes=1024))
    behind = next(node for node in nodes.living if node is not nodes.leader())
    behind.stop()
    for sequence in range(40):
        data = encode_batch(
            [(None, bytes(100))], now_ms=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        append = nodes.leader().partition.append([own_batch(data)])
        nodes.run(lambda append=append: append.done)  # type: ignore[misc]
    leader = nodes.leader()
    log = leader.files.log
    assert leader.partition.delete_records(35) == 35
    while len(log.segments.segments) > 1 and log.segments.segments[0].next_offset <= 35:
        log.drop_front(1)
    behind.start()
    nodes.run(lambda: behind.files.log.high_watermark == log.high_watermark)
    assert behind.files.log.log_start_offset >= 30
    found = behind.files.log.producers.entry(7)
    assert found is not None
    assert found.last_sequence == 39
    nodes.run(lambda: behind.files.log.log_start_offset == 35)
    behind.stop()
    behind.start()
    assert behind.files.log.log_start_offset == 35
    nodes.committed(b"after")


def test_a_full_disk_takes_a_follower_out_and_back_in() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    follower = next(node for node in nodes.living if node is not nodes.leader())
    follower.fs.capacity_bytes = follower.fs._used + 100
    for number in range(5):
        nodes.committed(b"%d" % number + bytes(3000))
    nodes.run(lambda: follower.replica.failure is not None)
    follower.fs.capacity_bytes = None
    nodes.run(lambda: follower.replica.failure is None)
    assert len(nodes.agree()) == 6


def test_too_few_in_sync_replicas_refuse_before_the_append() -> None:
    nodes = Nodes(config=TopicConfig(min_insync_replicas=3))
    nodes.committed(b"a")
    leader = nodes.leader()
    next(node for node in nodes.living if node is not leader).kill()
    nodes.run(lambda: len(leader.replica.in_sync.nodes(leader.replica.core.state)) == 2)
    end = leader.files.log.log_end_offset
    with pytest.raises(NotEnoughReplicasError):
        nodes.append(leader, b"b")
    assert leader.files.log.log_end_offset == end
    assert nodes.append(leader, b"c", acks=1).done


def test_membership_changes_survive_a_restart() -> None:
    nodes = Nodes(3, learners=1)
    nodes.committed(b"a")
    wanted = Membership(frozenset({1, 2, 3}), frozenset({4}))
    change = nodes.leader().replica.change_membership(wanted)
    nodes.run(lambda: change.done)
    nodes.run(lambda: nodes[4].files.log.high_watermark == nodes.leader().files.log.high_watermark)
    change = nodes.leader().replica.change_membership(Membership(frozenset({1, 2, 3, 4})))
    nodes.run(lambda: change.done)
    for node in list(nodes.living):
        node.kill(KeepAll())
    for node in nodes.nodes.values():
        node.start()
    assert nodes.leader().replica.membership.voters == {1, 2, 3, 4}
    assert values_of(nodes.agree()) == [b"a"]


def test_a_membership_change_of_an_empty_log_comes_after_a_leader_change() -> None:
    nodes = Nodes(3, learners=1)
    leader = nodes.leader()
    wanted = Membership(frozenset({1, 2, 3}), frozenset({4}))
    with pytest.raises(LogStoreError):
        leader.replica.change_membership(wanted)
    nodes.run(lambda: leader.replica.core.state.has_committed)
    change = leader.replica.change_membership(wanted)
    nodes.run(lambda: change.done)
    nodes.run(lambda: nodes[4].files.log.high_watermark == 2)


def test_a_read_is_confirmed_by_a_majority() -> None:
    nodes = Nodes()
    nodes.committed(b"a", b"b")
    found: list[tuple[int, LogStoreError | None]] = []
    leader = nodes.leader()
    leader.replica.read_index(lambda position, error: found.append((position, error)))
    nodes.run(lambda: found)
    assert found == [(2, None)]
    for node in nodes.living:
        nodes.network.cut(leader.node_id, node.node_id)
    found.clear()
    leader.replica.read_index(lambda position, error: found.append((position, error)))
    nodes.run(lambda: found)
    assert found[0][0] == -1
    assert isinstance(found[0][1], NotLeaderError)


def test_a_leader_hands_over_before_it_stops() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    old = nodes.leader()
    nodes.run(lambda: len(old.replica.in_sync.nodes(old.replica.core.state)) == 3)
    assert old.node.hand_over() == 1
    nodes.settle()
    assert nodes.leader() is not old


def test_a_leader_whose_node_has_ended_is_followed_by_another_sooner() -> None:
    took = []
    for told in (False, True):
        nodes = Nodes()
        nodes.committed(b"a")
        nodes.agree()
        old = nodes.leader()
        old.kill()
        if told:
            for node in nodes.living:
                node.node.node_is_gone(old.node_id)
        before_s = nodes.now_s
        nodes.run(lambda nodes=nodes, old=old: any(node is not old for node in nodes.leaders()))
        took.append(nodes.now_s - before_s)
    assert took[1] < took[0]


def test_who_is_told_wrongly_that_a_leader_has_ended_elects_nobody() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    nodes.agree()
    leader = nodes.leader()
    term = leader.replica.term
    follower = next(node for node in nodes.living if node is not leader)
    follower.node.node_is_gone(leader.node_id)
    for _ in range(100):
        nodes.tick()
    assert nodes.leader() is leader
    assert leader.replica.term == term
    nodes.committed(b"b")


@pytest.mark.parametrize("known", [True, False])
def test_an_append_that_nobody_confirms_ends(known: bool) -> None:
    """The followers live and answer, but their disks hang: the leader keeps its place."""
    nodes = Nodes()
    nodes.committed(b"a")
    leader = nodes.leader()
    for node in nodes.living:
        if node is not leader:
            node.node.sync_waiting = lambda: False  # type: ignore[method-assign]
    ids = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if known else {}
    data = encode_batch([(None, b"b")], now_ms=NOW_MS, **ids)
    began_s = nodes.now_s
    append = leader.partition.append([own_batch(data)])
    nodes.run(lambda: append.done, most=1000)
    assert isinstance(append.error, NotConfirmedError if known else OutcomeUnknownError)
    assert leader.replica.is_leader
    # Other partitions of the same request do not wait longer than that for one that may be asked for again.
    longest_s = LONGEST_KNOWN_S if known else LONGEST_S
    assert longest_s < nodes.now_s - began_s < longest_s + 1
    assert f"within {longest_s:g} s" in str(append.error)
