"""A node that comes with an empty or another directory under its old number: nothing is lost, and nothing voted
twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replication.cluster import duties
from replication.cluster.controller import ControllerSettings
from replication.cluster.duties import ChangeMembers, Readmitted
from replication.cluster.machine import ClusterMachine
from replication.errors import LeaderNotReadyError, LostReplicaError
from replication.raft.types import Membership
from replication.replicas import repair
from replication.transport import METADATA_GROUP, GroupId
from tests.replication.cluster.test_duties import Groups, machine_of
from tests.replication.cluster.test_machine import begun, carry_out
from tests.replication.cluster_nodes import Cluster, cluster, until
from tests.replication.nodes import Nodes, values_of

QUICK = ControllerSettings(look_s=0.05, busy_s=0.02, settle_s=0.3)
ROWS = [(None, b"%d" % number) for number in range(50)]


def lose_disk(three: Cluster, number: int) -> None:
    """Of a node that does not run."""
    shutil.rmtree(three.root / str(number))


def is_whole(three: Cluster) -> bool:
    """Whether every node votes in the metadata and in all partitions, and none is held back."""
    image = three.controller.metadata.follower.newest()
    if image.vacated or any(
        one.is_held_back for node in three.nodes.values() for one in node.node.replicas()
    ):
        return False
    groups = [GroupId(*place) for place, _ in image.places()] + [METADATA_GROUP]
    for group in groups:
        for node in three.nodes.values():
            replica = node.node.replica(group)
            if replica is None or replica.failure is not None or replica.core.state.abstains:
                return False
            if replica.membership != Membership(frozenset(three.nodes)):
                return False
    return True


def values(three: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in three.leader(topic).store.partition(topic, 0).records(0)]


@pytest.mark.parametrize("of_leader", [False, True])
def test_a_node_that_lost_its_disk_comes_back(tmp_path: Path, of_leader: bool) -> None:
    with cluster(tmp_path, controller=QUICK) as three:
        three.create_topic("t")
        leader = three.leader("t")
        leader.store.partition("t", 0).append(ROWS)
        lost = next(number for number in three.nodes if (number == leader.node_id) == of_leader)
        before = three.nodes[lost]._identity.identity.directory_id
        three.stop(lost)
        lose_disk(three, lost)
        three.start(lost)
        assert three.nodes[lost]._identity.identity.directory_id != before
        until(lambda: is_whole(three))
        assert values(three, "t") == [row[1] for row in ROWS]
        other = next(number for number in three.nodes if number != lost)
        three.stop(other)  # what is left is a majority only with the node that lost its disk
        assert values(three, "t") == [row[1] for row in ROWS]
        three.leader("t").store.partition("t", 0).append(ROWS)
        assert len(values(three, "t")) == 100


def test_every_node_in_turn_loses_its_disk(tmp_path: Path) -> None:
    with cluster(tmp_path, controller=QUICK) as three:
        three.create_topic("t")
        for number in (1, 2, 3):
            three.leader("t").store.partition("t", 0).append(ROWS)
            three.stop(number)
            lose_disk(three, number)
            three.leader("t").store.partition("t", 0).append(ROWS)
            three.start(number)
            until(lambda: is_whole(three))
        assert values(three, "t") == [row[1] for row in ROWS] * 6


def test_a_cluster_that_lost_its_majority_is_not_begun_anew(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.create_topic("t")
        three.leader("t").store.partition("t", 0).append(ROWS)
    for number in (1, 2):
        lose_disk(three, number)
    again = Cluster(tmp_path)
    again.join_timeout_s = 1.0
    try:
        with pytest.raises(
            LeaderNotReadyError, match=r"begins with all of its nodes, and (\d, )?3 did not answer"
        ):
            again.start(1, 2)
    finally:
        again.close()


def test_the_only_replica_is_named_as_lost(tmp_path: Path) -> None:
    with cluster(tmp_path, controller=QUICK) as three:
        three.controller.engine.create_topic("alone", 1, {}, replication_factor=1)
        (home,) = three.controller.replicas_of("alone", 0)
        three.leader("alone").store.partition("alone", 0).append(ROWS)
        three.stop(home)
        lose_disk(three, home)
        three.start(home)
        manager = three.nodes[home]._manager
        until(lambda: any(isinstance(one, LostReplicaError) for one in manager.failures().values()))
        three.controller.store.admin.delete_topic("alone")
        until(lambda: is_whole(three))


# --- one group, by hand ---


def test_a_replica_that_is_held_back_votes_for_nobody_however_much_it_has() -> None:
    nodes = Nodes()
    nodes.committed(b"kept")
    leader = nodes.leader()
    lost, other = (node for node in nodes.living if node is not leader)
    lost.stop()
    lost.fs = type(lost.fs)()
    lost.fs.mkdir("/store")
    lost.fs.sync_dir("/")
    lost.held_back = True
    lost.start()
    assert values_of(nodes.agree()) == [b"kept"]
    assert lost.replica.core.state.abstains
    assert repair.is_held_back(lost.fs, lost.files.directory)
    leader.stop()
    for _ in range(200):
        nodes.tick()
    assert not nodes.leaders(), "its vote could be the second one of its number in a term"
    leader.start()
    nodes.leader()
    now = nodes.leader()
    now.replica.change_membership(
        Membership(frozenset({leader.node_id, other.node_id}), frozenset({lost.node_id}))
    )
    nodes.committed(b"more")
    lost.replica.readmit()
    nodes.committed(b"again")
    nodes.run(lambda: not lost.replica.core.state.abstains)
    now = nodes.leader()
    now.replica.change_membership(Membership(frozenset(nodes.nodes)))
    nodes.committed(b"whole")
    nodes.leader().stop()
    nodes.committed(b"end")
    assert values_of(nodes.agree()) == [b"kept", b"more", b"again", b"whole", b"end"]


def test_what_the_lost_directory_held_does_not_count_for_the_new_one() -> None:
    nodes = Nodes()
    for number in range(20):
        nodes.committed(b"%d" % number)
    nodes.agree()
    leader = nodes.leader()
    lost = next(node for node in nodes.living if node is not leader)
    lost.stop()
    lost.fs = type(lost.fs)()
    lost.fs.mkdir("/store")
    lost.fs.sync_dir("/")
    lost.held_back = True
    lost.start()
    rest = frozenset(nodes.nodes) - {lost.node_id}
    leader.replica.change_membership(Membership(rest, frozenset({lost.node_id})))
    assert leader.replica.core.state.peers[lost.node_id].match == 0
    assert len(nodes.agree()) == 20


# --- what is decided ---


def test_all_replicas_of_another_directory_are_vacated_and_counted_out_step_by_step() -> None:
    machine = machine_of(3, 2, 3)
    image = machine.image
    for node in (1, 2, 3):
        carry_out(
            machine,
            machine.decide_register_broker(node, "h", 1, "", image.cluster_id, directory_id=f"d{node}"),
        )
    assert not machine.image.vacated
    carry_out(machine, machine.decide_register_broker(2, "h", 1, "", image.cluster_id, directory_id="d2"))
    assert not machine.image.vacated, "the same directory again"
    carry_out(machine, machine.decide_register_broker(2, "h", 1, "", image.cluster_id, directory_id="other"))
    assert set(machine.image.vacated) == {*(place for place, _ in image.places()), METADATA_GROUP}
    groups = Groups(machine.image)
    groups.members[METADATA_GROUP] = Membership(frozenset({1, 2, 3}))
    groups.leaders = dict.fromkeys(groups.members, 1)
    for _ in range(50):
        now = machine.image
        due = duties.vacated(now, groups.status(), 50) + duties.refilled(now, groups.status())
        due += list(duties.metadata_members(now, groups.status()))
        for duty in due:
            if isinstance(duty, Readmitted):
                assert 2 not in groups.members[GroupId(*duty.place)].voters
                carry_out(machine, machine.decide_readmitted(duty.place, duty.node))
            else:
                assert isinstance(duty, ChangeMembers)
                groups.carry_out(duty)
        groups.catch_up()
    assert not machine.image.vacated
    assert set(groups.members.values()) == {Membership(frozenset({1, 2, 3}))}


def test_a_learner_whose_making_is_not_committed_is_not_taken_for_counted_out() -> None:
    machine = machine_of(3, 1, 3)
    for directory in ("one", "two"):
        decision = machine.decide_register_broker(
            2, "h", 1, "", machine.image.cluster_id, directory_id=directory
        )
        carry_out(machine, decision)
    groups = Groups(machine.image)
    (group,) = groups.members
    groups.members[group] = Membership(frozenset({1, 3}), frozenset({2}))
    groups.leaders[group] = 1
    status = groups.status()
    unsettled = status._replace(partitions={group: status.partitions[group]._replace(settled=False)})
    assert duties.vacated(machine.image, unsettled, 50) == []
    assert duties.vacated(machine.image, status, 50) == [Readmitted((group.topic_id, 0), 2)]


def test_the_state_survives_a_replay_of_its_snapshot() -> None:
    machine = begun(2)
    for directory in ("one", "two"):
        decision = machine.decide_register_broker(
            2, "h", 1, "", machine.image.cluster_id, directory_id=directory
        )
        carry_out(machine, decision)
    other = ClusterMachine()
    for key, value in machine.snapshot():
        other.replay(key, value)
    assert other.image == machine.image
    assert other.image.vacated
