"""Whole nodes: a group's coordinator, a transaction's, or both are killed at each step from reading to a commit."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from logstore.errors import LogStoreError, OutcomeUnknownError, ProducerFencedError, TransactionAbortedError
from logstore.machine import TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.coordination.backend import ClusterBackend
from replication.coordination.key_partition import java_hash, partition_of
from replication.errors import LeaderNotReadyError, NotLeaderError
from tests.replication.cluster_nodes import Cluster, cluster, until
from tests.replication.coordination.test_cluster_coordinators import (
    PLACES,
    SOURCE,
    Client,
    batch_of,
    with_topics,
)
from tests.replication.coordination.test_failover_history import _AgainError, _Identity, stop_roughly

STEPS = ("begun", "added", "written", "offsets", "decided", "marked", "told")


@pytest.mark.parametrize(
    ("key", "hashed"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_names_are_hashed_as_by_java(key: str, hashed: int) -> None:
    assert java_hash(key) == hashed
    assert partition_of(key, 12) == (0 if hashed == -(2**31) else abs(hashed) % 12)


class Copier:
    """Copies one record of the source after the other, with its group's offset; goes on wherever its coordinators are.
    ``after``: called behind each step."""

    def __init__(self, client: Client, group: str, name: str) -> None:
        self.client = client
        self.group = group
        self.name = name
        self.after: Callable[[str], None] = lambda step: None
        self.open()

    def open(self) -> None:
        lease = self.client.coordinator(lambda engine: engine.init_transactions(self.name, 60_000))
        self.writer = TransactionalWriter(lease.producer_id, lease.epoch)

    def position(self) -> int:
        until(lambda: not self.client.coordinator(lambda engine: engine.unstable_offsets(self.group)))
        found = self.client.coordinator(lambda engine: engine.committed_offsets(self.group))
        return found[SOURCE].offset if SOURCE in found else 0

    def copy(self) -> None:
        """The next record, again until it is committed."""
        number = self.position()
        while True:
            try:
                self._copy(number)
                return
            except (TransactionAbortedError, ProducerFencedError):
                self.open()
                if self.position() != number:
                    return  # the commit had been decided

    def _copy(self, number: int) -> None:
        writer = self.writer

        def begin(engine: ClusterBackend) -> None:
            engine.resume_transactions(self.name, 60_000, *writer).begin(writer)

        def add(engine: ClusterBackend) -> None:
            lease = engine.resume_transactions(self.name, 60_000, *writer)
            lease.add_partitions(PLACES, offsets=True, writer=writer)

        def offsets(engine: ClusterBackend) -> None:
            lease = engine.resume_transactions(self.name, 60_000, *writer)
            lease.send_offsets(self.group, {SOURCE: OffsetAndMetadata(number + 1)}, writer=writer)

        def commit(engine: ClusterBackend) -> TransactionalWriter:
            lease = engine.resume_transactions(self.name, 60_000, *writer)
            try:
                lease.end(commit=True, writer=writer)
            except OutcomeUnknownError as error:
                raise _AgainError(error.message) from error
            return TransactionalWriter(lease.producer_id, lease.epoch)

        self.client.coordinator(begin)
        self.after("begun")
        self.client.coordinator(add)
        self.after("added")
        for place in PLACES:
            value = b"%s-%d-%d" % (self.name.encode(), number, place.partition)
            self.client.produce(place, batch_of(_Identity(writer), value))
        self.after("written")
        self.client.coordinator(offsets)
        self.after("offsets")
        self.writer = self.client.coordinator(commit)


def names(three: Cluster, client: Client) -> tuple[str, str]:
    """A group and a transactional id whose coordinators are different nodes now."""
    first = client.node_of_id("x0")
    group = next(
        name for name in (f"g{number}" for number in range(200)) if client.node_of_group(name) != first
    )
    return group, "x0"


def killed(three: Cluster, numbers: Collection[int]) -> None:
    for number in numbers:
        if number in three.nodes:
            stop_roughly(three, number)


def back(three: Cluster) -> None:
    """Those that were killed are started anew."""
    gone = sorted(three.voters - set(three.nodes))
    if gone:
        three.start(*gone)


def at_step_of_end(
    three: Cluster, engine: ClusterBackend, name: str, step: str, act: Callable[[], None]
) -> None:
    """Have ``act`` called once, on the way from the decision to the end of the transaction under way."""
    manager = engine.transactions.of(name).manager
    whole_write, whole_tell = manager.markers.write, manager.tell
    if step == "decided":

        def write(ended: object, *, wait: bool) -> object:
            manager.markers.write = whole_write  # type: ignore[method-assign]
            act()
            raise LeaderNotReadyError("the node is gone")

        manager.markers.write = write  # type: ignore[assignment,method-assign]
    elif step == "marked":

        def marked(ended: object, *, wait: bool) -> object:
            manager.markers.write = whole_write  # type: ignore[method-assign]
            found = whole_write(ended, wait=wait)  # type: ignore[arg-type]
            act()
            return found

        manager.markers.write = marked  # type: ignore[assignment,method-assign]
    else:

        def tell(told: object) -> None:
            manager.tell = whole_tell  # type: ignore[method-assign]
            act()
            raise LeaderNotReadyError("the node is gone")

        manager.tell = tell  # type: ignore[assignment,method-assign]


@pytest.mark.parametrize(
    "side", ["both", *(pytest.param(side, marks=pytest.mark.slow) for side in ("group", "id"))]
)
def test_coordinators_die_at_every_step(tmp_path: Path, side: str) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        client.coordinator(lambda engine: engine.init_transactions("x0", 60_000)).release()
        client.coordinator(lambda engine: engine.commit_offsets("first", {SOURCE: OffsetAndMetadata(0)}))
        group, name = names(three, client)
        copier = Copier(client, group, name)
        copier.copy()
        for number, step in enumerate(STEPS):
            victims = {
                "group": [client.node_of_group(group)],
                "id": [client.node_of_id(name)],
                "both": [client.node_of_group(group), client.node_of_id(name)],
            }[side]
            engine = three.nodes[client.node_of_id(name)].engine
            dead: list[int] = []

            def unplug(victims: list[int] = victims, dead: list[int] = dead) -> None:
                """As if they had been killed at this moment; their threads may still be in a call of the test."""
                for victim in victims:
                    three.network.lines[victim].close()
                dead.extend(victims)

            def after(done: str, step: str = step, victims: list[int] = victims) -> None:
                if done == step:
                    killed(three, victims)
                    if side == "both":
                        back(three)

            copier.after = after
            if step in ("decided", "marked", "told"):
                at_step_of_end(three, engine, name, step, unplug)
            client.on_failure = lambda dead=dead: bury(three, dead)  # type: ignore[misc]
            copier.copy()
            bury(three, dead)
            back(three)
            assert copier.position() == number + 2
        check(three, client, copier, len(STEPS) + 1)


def bury(three: Cluster, dead: list[int]) -> None:
    """Nodes without a network are closed, and started anew where no majority is left."""
    while dead:
        number = dead.pop()
        if number in three.nodes:
            stop_roughly(three, number)
    if len(three.nodes) < 2:
        back(three)


def check(three: Cluster, client: Client, copier: Copier, count: int) -> None:
    wanted = sorted(
        b"%s-%d-%d" % (copier.name.encode(), number, place.partition)
        for number in range(count)
        for place in PLACES
    )
    until(lambda: client.committed("out", 3) == wanted)
    assert copier.position() == count
    assert client.coordinator(lambda engine: engine.find_hanging()) == []


def test_a_zombie_is_fenced_at_a_group_of_another_node(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        client.coordinator(lambda engine: engine.init_transactions("x0", 60_000)).release()
        client.coordinator(lambda engine: engine.commit_offsets("first", {SOURCE: OffsetAndMetadata(0)}))
        group, name = names(three, client)
        older = client.coordinator(lambda engine: engine.init_transactions(name, 60_000))
        writer = TransactionalWriter(older.producer_id, older.epoch)
        older.begin()
        older.add_partitions(PLACES)
        older.send_offsets(group, {SOURCE: OffsetAndMetadata(3)})
        assert list(client.coordinator(lambda engine: engine.unstable_offsets(group))) == [SOURCE]
        newer = client.coordinator(lambda engine: engine.init_transactions(name, 60_000))
        assert list(client.coordinator(lambda engine: engine.unstable_offsets(group))) == []
        offsets = three.nodes[client.node_of_id(name)].engine.transactions.of(name).manager
        with pytest.raises(ProducerFencedError):  # its call comes to the group's coordinator after all
            offsets.send_offsets(group, {SOURCE: OffsetAndMetadata(4)}, writer, None)
        with pytest.raises(ProducerFencedError):
            older.send_offsets(group, {SOURCE: OffsetAndMetadata(5)})
        newer.begin()
        newer.send_offsets(group, {SOURCE: OffsetAndMetadata(1)})
        newer.end(commit=True)
        found = client.coordinator(lambda engine: engine.committed_offsets(group))
        assert found[SOURCE].offset == 1


def test_lists_come_from_all_coordinators_and_hanging_offsets_are_found(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        groups = [f"group-{number}" for number in range(20)]
        ids = [f"id-{number}" for number in range(20)]
        for group in groups:
            client.coordinator(
                lambda engine, group=group: engine.commit_offsets(group, {SOURCE: OffsetAndMetadata(1)})
            )  # type: ignore[misc]
        for name in ids:
            client.coordinator(lambda engine, name=name: engine.init_transactions(name, 60_000)).release()  # type: ignore[misc]
        assert len({client.node_of_group(group) for group in groups}) == 3
        assert len({client.node_of_id(name) for name in ids}) == 3
        for node in three.nodes.values():
            assert [one.group for one in node.engine.list_groups()] == sorted(groups)
            assert [one.transactional_id for one in node.engine.list_transactions()] == sorted(ids)
        first, second, *_ = three.nodes.values()
        wrong = next(group for group in groups if client.node_of_group(group) != first.node_id)
        with pytest.raises(NotLeaderError) as refused:
            first.engine.committed_offsets(wrong)
        assert refused.value.leader_id == client.node_of_group(wrong)
        stray = TransactionalWriter(999_999, 0)
        for group in groups[:3]:
            second.engine.transactions.of("any").manager.send_offsets(
                group, {SOURCE: OffsetAndMetadata(9)}, stray, None
            )
        places = {TopicPartition("__consumer_offsets", partition_of(group, 12)) for group in groups[:3]}
        hanging = second.engine.find_hanging()
        assert {TopicPartition(one.topic, one.partition) for one in hanging} == places
        for one in hanging:
            first.engine.end_hanging(one)
        assert second.engine.find_hanging() == []
        for group in groups[:3]:
            found = client.coordinator(lambda engine, group=group: engine.committed_offsets(group))  # type: ignore[misc]
            assert found[SOURCE].offset == 1


def test_a_cluster_that_has_one_partition_keeps_it(tmp_path: Path) -> None:
    with cluster(tmp_path, coordinators=1) as three:
        client = with_topics(three)
        client.coordinator(lambda engine: engine.commit_offsets("g", {SOURCE: OffsetAndMetadata(4)}))
        client.coordinator(lambda engine: engine.init_transactions("x0", 60_000)).release()
    with cluster(tmp_path) as three:
        client = Client(three)
        assert client.coordinator(lambda engine: engine.committed_offsets("g"))[SOURCE].offset == 4
        lease = client.coordinator(lambda engine: engine.init_transactions("x0", 60_000))
        lease.begin()
        lease.add_partitions([PLACES[0]], offsets=True)
        lease.send_offsets("g", {SOURCE: OffsetAndMetadata(5)})
        lease.end(commit=True)
        assert client.coordinator(lambda engine: engine.committed_offsets("g"))[SOURCE].offset == 5
        for topic in ("__consumer_offsets", "__transaction_state"):
            assert three.controller.engine.topic(topic).partitions == 1


def test_what_is_lost_is_forgotten_and_loaded_where_it_goes(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        client.coordinator(lambda engine: engine.commit_offsets("g", {SOURCE: OffsetAndMetadata(4)}))
        former = three.nodes[client.node_of_group("g")]
        number = partition_of("g", 12)
        topic = former.engine.groups.shard(number).topic(create=False)
        assert topic is not None
        assert topic.look(lambda machine: machine.groups()) == ["g"]
        replica = former._manager.partition(former._registry.get("__consumer_offsets"), number).replica()
        other = next(node for node in three.nodes.values() if node is not former)

        def moved() -> bool:
            try:
                if replica.is_leader:
                    replica.transfer(other.node_id)
            except LogStoreError:
                pass  # it is under way
            return client.node_of_group("g") == other.node_id

        # Each of them may see it come back, as the nodes elect anew where the machine is busy.
        until(lambda: moved() and not topic._followed.applied)  # type: ignore[attr-defined]
        loaded = other.engine.groups.shard(number)
        until(lambda: moved() and loaded.topic(create=False)._followed.applied)  # type: ignore[union-attr]
