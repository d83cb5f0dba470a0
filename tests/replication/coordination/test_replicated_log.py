"""A coordinator's log that its leader writes: nothing acknowledged is lost, nothing is decided on an old state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from logstore.format.batch import encode_batch
from logstore.log.append_validation import CheckedBatch, own_batch
from logstore.log.producers.producer_state import Marker
from logstore.machine import Decision
from logstore.partition.partition import PendingAppend
from logstore.seams.memory_crash import KeepNothing
from replication.coordination.replicated_log import ReplicatedCoordinatorLog
from replication.errors import LeaderNotReadyError, NotLeaderError
from replication.raft.membership import Membership
from tests.beside import Beside
from tests.replication.coordination.world import CoordinatorWorld, Counter, add


def counts(world: CoordinatorWorld[Counter]) -> dict[bytes, int]:
    return world.leading().look(lambda machine: dict(machine.counts))


def test_the_leader_decides_and_the_others_say_who_it_is() -> None:
    world = CoordinatorWorld(Counter)
    assert [add(world, b"a") for _ in range(3)] == [1, 2, 3]
    leader = world.nodes.leader().node_id
    for number, runtime in world.runtimes.items():
        if number == leader:
            assert runtime.lost() is None
            continue
        lost = runtime.lost()
        assert isinstance(lost, NotLeaderError)
        assert lost.leader_id == leader
        assert not runtime.changed()
        works: list[Callable[[], Any]] = [
            lambda runtime=runtime: runtime.look(lambda machine: machine.counts),  # type: ignore[misc]
            lambda runtime=runtime: runtime.decide(lambda machine: machine.decide_add(b"a")),  # type: ignore[misc]
            lambda runtime=runtime: runtime.end_transaction(1, 1, commit=True),  # type: ignore[misc]
        ]
        for work in works:
            with pytest.raises(NotLeaderError) as refused:
                work()
            assert refused.value.leader_id == leader


def test_the_next_leader_knows_all_that_was_acknowledged() -> None:
    world = CoordinatorWorld(Counter)
    for _ in range(4):
        add(world, b"a")
    former = world.nodes.leader()
    former.kill(KeepNothing())
    assert add(world, b"a") == 5
    world.start(former)
    world.nodes.agree()
    assert world.nodes.leader() is not former
    assert counts(world) == {b"a": 5}
    assert world.leading()._followed.machine.replayed == 5


def test_what_a_leader_that_was_cut_off_decided_is_not_known_and_no_more_there() -> None:
    world = CoordinatorWorld(Counter)
    add(world, b"a")
    nodes = world.nodes
    former = nodes.leader()
    runtime = world.runtimes[former.node_id]
    for other in nodes.nodes:
        if other != former.node_id:
            nodes.network.cut(former.node_id, other)
    with pytest.raises((NotLeaderError, LeaderNotReadyError)):
        runtime.decide(lambda machine: machine.decide_add(b"lost"))
    nodes.network.heal()
    assert add(world, b"a") == 2
    nodes.agree()
    assert counts(world) == {b"a": 2}


def test_a_leader_that_was_cut_off_confirms_nothing() -> None:
    world = CoordinatorWorld(Counter)
    add(world, b"a")
    nodes = world.nodes
    former = nodes.leader()
    runtime = world.runtimes[former.node_id]
    runtime.confirm()
    for other in nodes.nodes:
        if other != former.node_id:
            nodes.network.cut(former.node_id, other)
    assert former.replica.is_leader  # it does not know yet
    assert runtime.look(lambda machine: dict(machine.counts)) == {b"a": 1}
    with pytest.raises((NotLeaderError, LeaderNotReadyError)):
        runtime.confirm()


def test_a_lead_that_was_lost_and_won_again_decides_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the log's end and the append the lead goes away, another node writes, and it comes back."""
    world = CoordinatorWorld(Counter)
    add(world, b"a")
    nodes = world.nodes
    former = nodes.leader()
    runtime, append = world.runtimes[former.node_id], former.partition.append
    moved = []

    def append_late(batches: list[CheckedBatch], *args: Any, **kwargs: Any) -> PendingAppend:
        if not moved:
            moved.append(True)
            other = next(number for number in nodes.nodes if number != former.node_id)
            former.replica.transfer(other)
            nodes.run(lambda: nodes[other].replica.is_leader)
            assert world.runtimes[other].decide(lambda machine: machine.decide_add(b"a")) == 2
            nodes[other].replica.transfer(former.node_id)
            nodes.run(lambda: former.replica.is_leader)
        return append(batches, *args, **kwargs)

    monkeypatch.setattr(former.partition, "append", append_late)
    assert runtime.decide(lambda machine: machine.decide_add(b"a")) == 3
    nodes.agree()
    assert counts(world) == {b"a": 3}


class Intruder:
    """Has a learner come or go in the middle of a decision: an entry of Raft's own."""

    def __init__(self, world: CoordinatorWorld[Counter], times: int) -> None:
        self.left = times
        self.leader = world.nodes.leader()

    def strike(self) -> None:
        if not self.left:
            return
        self.left -= 1
        members = self.leader.replica.membership
        self.leader.replica.change_membership(Membership(members.voters, members.learners ^ {4}))


@pytest.mark.parametrize("times", [1, 3])
def test_members_that_change_beneath_a_decision_have_it_made_anew(times: int) -> None:
    world = CoordinatorWorld(Counter)
    add(world, b"a")
    intruder = Intruder(world, times)
    decisions = []

    def decide(machine: Counter) -> Decision[int]:
        decisions.append(dict(machine.counts))
        intruder.strike()
        return machine.decide_add(b"a")

    assert world.leading().decide(decide) == 2
    assert decisions == [{b"a": 1}] * (times + 1)
    assert counts(world) == {b"a": 2}


def test_all_of_a_group_are_decided_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CoordinatorWorld(Counter)
    add(world, b"a")
    intruder = Intruder(world, 2)
    runtime, append = world.leading(), intruder.leader.partition.append
    done: list[int] = []
    gate = threading.Barrier(5)

    def append_late(batches: list[CheckedBatch], *args: Any, **kwargs: Any) -> PendingAppend:
        intruder.strike()
        return append(batches, *args, **kwargs)

    def work() -> None:
        gate.wait()
        done.append(runtime.decide(lambda machine: machine.decide_add(b"a")))

    monkeypatch.setattr(intruder.leader.partition, "append", append_late)
    Beside(*[work] * 5).run()
    assert sorted(done) == [2, 3, 4, 5, 6]
    assert counts(world) == {b"a": 6}


def test_a_log_that_goes_on_beneath_every_hold_is_given_up_in_time() -> None:
    world = CoordinatorWorld(Counter)
    add(world, b"a")
    intruder = Intruder(world, 1 << 30)

    def decide(machine: Counter) -> Decision[int]:
        intruder.strike()
        world.nodes.tick()
        return machine.decide_add(b"a")

    with pytest.raises(LeaderNotReadyError, match="nothing was written"):
        world.leading().decide(decide)
    intruder.left = 0
    assert add(world, b"a") == 2


def test_a_look_does_not_wait_for_what_is_written_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = CoordinatorWorld(Counter)
    add(world, b"a")
    leader = world.nodes.leader()
    wait = leader.partition.wait_committed

    def wait_while_it_is_written(timeout_s: float) -> None:
        wait(timeout_s)
        leader.partition.append([own_batch(encode_batch([(b"a", b"2")], now_ms=1))], "all")

    monkeypatch.setattr(leader.partition, "wait_committed", wait_while_it_is_written)
    offsets = ReplicatedCoordinatorLog(leader.partition, world.nodes.clock_of(leader)).offsets()
    assert offsets.high_watermark < offsets.log_end_offset


def test_threads_share_a_batch() -> None:
    world = CoordinatorWorld(Counter)
    runtime = world.leading()
    add(world, b"a")
    done: list[int] = []
    gate = threading.Barrier(5)

    def work() -> None:
        gate.wait()
        done.append(runtime.decide(lambda machine: machine.decide_add(b"a")))

    Beside(*[work] * 5).run()
    assert sorted(done) == [2, 3, 4, 5, 6]


class Ended(Counter):
    """Counts the markers, too."""

    def replay_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        self.counts[b"markers"] = self.counts.get(b"markers", 0) + 1


def test_a_marker_behind_records_of_others_is_looked_for_and_not_written_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world: CoordinatorWorld[Counter] = CoordinatorWorld(Ended)
    add(world, b"a")
    intruder = Intruder(world, 1)
    append_marker = intruder.leader.partition.append_marker

    def append_late(marker: Marker, **kwargs: Any) -> PendingAppend:
        intruder.strike()
        return append_marker(marker, **kwargs)

    monkeypatch.setattr(intruder.leader.partition, "append_marker", append_late)
    world.leading().end_transaction(1, 1, commit=True)
    assert not intruder.left
    assert counts(world) == {b"a": 1, b"markers": 1}
    world.leading().end_transaction(1, 1, commit=True)
    assert add(world, b"a") == 2
    assert counts(world) == {b"a": 2, b"markers": 1}
