"""What the controller decides: moves step by step, leaders that go home, brokers that are emptied."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.directory.catalogue import Catalogue, encode_uuid
from replication.cluster import duties
from replication.cluster.changes import changes_between
from replication.cluster.duties import ChangeMembers, Duty, Moved, Transfer
from replication.cluster.image import ClusterImage
from replication.cluster.machine import ClusterMachine
from replication.cluster.placement import Replicas
from replication.cluster_status import ClusterStatus, PartitionStatus, ReplicaStatus
from replication.raft.types import Membership
from replication.transport import METADATA_GROUP, GroupId
from tests.replication.cluster.test_machine import begun, carry_out

TOPIC_ID = encode_uuid(b"t" * 16)


def with_topic(catalogue: Catalogue, partitions: int) -> Catalogue:
    return catalogue.with_topic("t", topic_id=TOPIC_ID, partitions=partitions, created_ms=1)


def machine_of(brokers: int, partitions: int, factor: int) -> ClusterMachine:
    machine = begun(brokers)
    before = machine.image.catalogue
    carry_out(
        machine, machine.decide_changes(changes_between(before, with_topic(before, partitions)), factor)
    )
    return machine


class Groups:
    """The Raft groups of a topic's partitions, as duties are carried out on them; a learner catches up by itself."""

    def __init__(self, image: ClusterImage) -> None:
        self.members: dict[GroupId, Membership] = {}
        self.leaders: dict[GroupId, int] = {}
        self.lags: dict[tuple[GroupId, int], int] = {}
        for place, replicas in image.places():
            self.members[GroupId(*place)] = Membership(frozenset(replicas))
            self.leaders[GroupId(*place)] = replicas[0]

    def status(self) -> ClusterStatus:
        found = {}
        for group, (voters, learners) in self.members.items():
            rows = [
                ReplicaStatus(node, 0, self.lags.get((group, node), 0), node in voters, node in learners)
                for node in sorted(voters | learners)
            ]
            found[group] = PartitionStatus(group, self.leaders[group], 1, 10, tuple(rows))
        return ClusterStatus(found, ())

    def carry_out(self, duty: Duty) -> None:
        match duty:
            case Transfer(group, leader, to):
                assert self.leaders[group] == leader
                assert to in self.members[group].voters
                self.leaders[group] = to
            case ChangeMembers(group, leader, members):
                assert self.leaders[group] == leader
                before = self.members[group]
                assert len(members.voters ^ before.voters) <= 1, "one voter at a time"
                assert members.voters - before.voters <= before.learners, "learners first"
                assert leader in members.voters
                for node in members.learners - before.learners:
                    self.lags[group, node] = 5_000
                self.members[group] = members.checked()
            case Moved():
                raise AssertionError("of the metadata, not of a group")

    def catch_up(self) -> None:
        for key in self.lags:
            self.lags[key] = max(self.lags[key] - 2_500, 0)


@settings(max_examples=120, deadline=None)
@given(
    before=st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True),
    after=st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True),
    seed=st.integers(0, 100),
)
def test_a_move_ends_with_its_target_and_never_has_fewer_voters(
    before: list[int], after: list[int], seed: int
) -> None:
    dice = random.Random(seed)
    machine = machine_of(6, 1, len(before))
    place = (TOPIC_ID, 0)
    carry_out(machine, machine.decide_moved(place, tuple(before), done=True))
    groups = Groups(machine.image)
    group = GroupId(*place)
    groups.leaders[group] = dice.choice(before)
    carry_out(machine, machine.decide_reassign({("t", 0): tuple(after)}))
    least = min(len(before), len(after))
    for _ in range(60):
        if not machine.image.targets:
            break
        for duty in duties.moves(machine.image, groups.status(), 1):
            if isinstance(duty, Moved):
                carry_out(machine, machine.decide_moved(duty.place, duty.replicas, done=True))
            elif dice.random() < 0.8:  # else the call got lost
                groups.carry_out(duty)
        assert len(groups.members[group].voters) >= least
        groups.catch_up()
    assert machine.image.targets == {}
    assert machine.image.replicas_of(*place) == tuple(after)
    assert groups.members[group] == Membership(frozenset(after))
    assert groups.leaders[group] in after


@settings(max_examples=120, deadline=None)
@given(
    before=st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True),
    aims=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True), min_size=1, max_size=3),
    cancelled=st.booleans(),
    seed=st.integers(0, 100),
)
def test_what_a_move_that_is_given_up_brought_in_leaves_and_has_its_replica_until_then(
    before: list[int], aims: list[list[int]], cancelled: bool, seed: int
) -> None:
    """It stayed a member, filled at the cost of all others or not answering for good, and its node removed the files of
    what could be a voter."""
    dice = random.Random(seed)
    machine = machine_of(6, 1, len(before))
    place = (TOPIC_ID, 0)
    carry_out(machine, machine.decide_moved(place, tuple(before), done=True))
    groups, group = Groups(machine.image), GroupId(*place)

    def go_on(most: int) -> None:
        for _ in range(most):
            for duty in duties.moves(machine.image, groups.status(), 1):
                if isinstance(duty, Moved):
                    carry_out(machine, machine.decide_moved(duty.place, duty.replicas, done=True))
                elif dice.random() < 0.8:
                    groups.carry_out(duty)
            members = groups.members[group]
            assert members.voters | members.learners <= {*machine.image.holders_of(*place)}
            groups.catch_up()

    for aim in aims:
        carry_out(machine, machine.decide_reassign({("t", 0): tuple(aim)}))
        go_on(dice.randrange(12))
    if cancelled:
        carry_out(machine, machine.decide_reassign({("t", 0): None}))
    wanted = machine.image.targets.get(place, machine.image.replicas_of(*place))
    go_on(80)
    assert machine.image.targets == {}
    assert groups.members[group] == Membership(frozenset(wanted))
    assert machine.image.holders_of(*place) == wanted
    assert groups.leaders[group] in wanted


def test_progress_says_what_is_lacking() -> None:
    machine = machine_of(4, 1, 2)
    now = machine.image.replicas_of(TOPIC_ID, 0)
    aim = tuple(node for node in (1, 2, 3, 4) if node not in now)
    carry_out(machine, machine.decide_reassign({("t", 0): aim}))
    groups = Groups(machine.image)
    (duty,) = duties.moves(machine.image, groups.status(), 1)
    groups.carry_out(duty)
    (row,) = duties.progress(machine.image, groups.status())
    assert (row.replicas, row.target) == (now, aim)
    assert dict(row.lags) == dict.fromkeys(aim, 5_000)
    assert set(row.left) == set(now)


def test_only_so_many_fill_learners_at_a_time() -> None:
    machine = machine_of(4, 6, 1)
    groups = Groups(machine.image)
    wanted: dict[tuple[str, int], Replicas | None] = {
        ("t", number): (1 + machine.image.replicas_of(TOPIC_ID, number)[0] % 4,) for number in range(6)
    }
    carry_out(machine, machine.decide_reassign(wanted))
    begun_moves = duties.moves(machine.image, groups.status(), 2)
    assert len(begun_moves) == 2
    for duty in begun_moves:
        groups.carry_out(duty)
    assert duties.moves(machine.image, groups.status(), 2) == []
    assert len(duties.moves(machine.image, groups.status(), 3)) == 1


def test_leaders_go_home_when_home_is_there() -> None:
    machine = machine_of(3, 6, 3)
    groups = Groups(machine.image)
    for group in groups.leaders:
        groups.leaders[group] = 1
    found = duties.misled(machine.image, groups.status(), {1, 2})
    assert {one.to for one in found} == {2}
    assert len(found) == 2
    carry_out(machine, machine.decide_drain(2, True))
    assert duties.misled(machine.image, groups.status(), {1, 2}) == []


def test_a_drained_broker_is_emptied_onto_the_others() -> None:
    machine = machine_of(4, 8, 2)
    carry_out(machine, machine.decide_drain(4, True))
    for _ in range(30):
        found = duties.drains(machine.image, machine.spots(), 3)
        assert len(found) <= 3
        for place, target in found.items():
            assert len(set(target)) == 2
            assert 4 not in target
            carry_out(machine, machine.decide_moved(place, target, done=True))
    assert machine.image.places_on(4) == []
    carry_out(machine, machine.decide_unregister_broker(4))
    assert machine.image.load().replicas == {1: 4, 2: 8, 3: 4}  # 2 is alone in its rack now


def test_what_has_nowhere_to_go_stays() -> None:
    machine = machine_of(2, 1, 2)
    carry_out(machine, machine.decide_drain(2, True))
    assert duties.drains(machine.image, machine.spots(), 10) == {}


def test_every_broker_gets_the_metadata() -> None:
    machine = begun(3)
    rows = [ReplicaStatus(1, 9, 0, True), ReplicaStatus(2, 9, 0, True)]

    def next_step() -> list[Membership]:
        now = PartitionStatus(METADATA_GROUP, 1, 1, 9, tuple(rows))
        status = ClusterStatus({METADATA_GROUP: now}, ())
        return [duty.members for duty in duties.metadata_members(machine.image, status)]

    assert next_step() == [Membership(frozenset({1, 2}), frozenset({3}))]
    rows.append(ReplicaStatus(3, 0, 2_000, False, True))
    assert next_step() == []
    rows[2] = ReplicaStatus(3, 9, 0, False, True)
    assert next_step() == [Membership(frozenset({1, 2, 3}))]
    rows[2] = ReplicaStatus(3, 9, 0, True)
    assert next_step() == []
