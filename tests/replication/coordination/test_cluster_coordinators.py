"""Groups and transactions of a cluster whose nodes run in one process, with their coordinator stopped in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from logstore.api.groups import JoinRequest, MemberIdentity
from logstore.api.records import FetchRequest, ProduceItem
from logstore.errors import (
    InvalidPartitionsError,
    LogStoreError,
    ProducerFencedError,
    RetriableError,
    StoreClosedError,
    UnknownGroupError,
    UnknownMemberError,
    UnknownTopicError,
    UnknownTransactionError,
)
from logstore.format.batch import decode_batches, encode_batch
from logstore.machine import TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.coordination.backend import ClusterBackend
from replication.coordination.key_partition import partition_of
from replication.errors import LeaderNotReadyError, NotLeaderError
from tests.replication.cluster_nodes import Cluster, cluster, until

Answer = TypeVar("Answer")
MOST_TRIES = 600
REQUEST = JoinRequest(topics=frozenset({"in"}), session_timeout_ms=60_000, heartbeat_interval_ms=300)
SHORT = replace(REQUEST, session_timeout_ms=1_000)


class Client:
    """Goes where it is told to, as the clients over a network do."""

    def __init__(self, nodes: Cluster) -> None:
        self._nodes = nodes
        self._at = next(iter(nodes.nodes))
        self.on_failure: Callable[[], None] = lambda: None  # a call was in vain

    def coordinator(self, work: Callable[[ClusterBackend], Answer]) -> Answer:
        failure: LogStoreError | None = None
        for _ in range(MOST_TRIES):
            node = self._nodes.nodes.get(self._at) or next(iter(self._nodes.nodes.values()))
            try:
                return work(node.engine)
            except NotLeaderError as error:
                failure = error
                numbers = sorted(self._nodes.nodes)
                after = [number for number in numbers if number > node.node_id] or numbers
                self._at = error.leader_id if error.leader_id in self._nodes.nodes else after[0]
            except (RetriableError, StoreClosedError) as error:  # a broker that stops is asked no more
                failure = error
            self.on_failure()
            threading.Event().wait(0.02)
        raise AssertionError("nobody coordinates") from failure

    def node_of_group(self, group: str) -> int:
        return self._leader_of("__consumer_offsets", group)

    def node_of_id(self, transactional_id: str) -> int:
        return self._leader_of("__transaction_state", transactional_id)

    def _leader_of(self, topic: str, key: str) -> int:
        until(lambda: any(topic in node.engine.topics() for node in self._nodes.nodes.values()))
        count = max(
            node.engine.topic(topic).partitions
            for node in self._nodes.nodes.values()
            if topic in node.engine.topics()
        )
        return self._nodes.leader(topic, partition_of(key, count)).node_id

    def produce(self, place: TopicPartition, batch: bytes) -> None:
        for _ in range(MOST_TRIES):
            leader = self._nodes.leader(*place)
            try:
                (result,) = leader.engine.produce([ProduceItem(*place, batch)], "all", 5.0)
            except StoreClosedError:
                continue  # it stops: another one is to lead
            if result.error is None:
                return
            assert isinstance(result.error, RetriableError), result.error
            self.on_failure()
            threading.Event().wait(0.02)
        raise AssertionError("nobody leads")

    def committed(self, topic: str, partitions: int) -> list[bytes]:
        return sorted(value for number in range(partitions) for value in self._committed(topic, number))

    def _committed(self, topic: str, number: int) -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while True:
            request = FetchRequest(topic, number, offset, -1, 1 << 20)
            (result,) = self._nodes.leader(topic, number).engine.fetch(
                [request], isolation="read_committed", min_bytes=1, max_bytes=1 << 20, max_wait_s=0.0
            )
            if result.error is not None:
                assert isinstance(result.error, RetriableError), result.error
                threading.Event().wait(0.02)
                continue
            found += [one.value or b"" for one in decode_batches(bytes(result.batches), topic, number)]
            if result.next_offset <= offset:
                return found
            offset = result.next_offset


def batch_of(lease: Any, value: bytes, sequence: int = 0) -> bytes:
    return encode_batch(
        [(None, value)],
        now_ms=1_700_000_000_000,
        producer_id=lease.producer_id,
        producer_epoch=lease.epoch,
        base_sequence=sequence,
        transactional=True,
    )


def with_topics(three: Cluster) -> Client:
    for name in ("in", "out"):
        three.create_topic(name, partitions=3)
    until(lambda: all({"in", "out"} <= set(node.engine.topics()) for node in three.nodes.values()))
    three.leader("in").store.partition("in", 0).append([(None, b"x")] * 10)
    return Client(three)


SOURCE = TopicPartition("in", 0)
PLACES = [TopicPartition("out", number) for number in range(3)]


def test_offsets_outlive_their_coordinator(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        client.coordinator(lambda engine: engine.commit_offsets("g", {SOURCE: OffsetAndMetadata(4)}))
        three.stop(client.node_of_group("g"))
        found = client.coordinator(lambda engine: engine.committed_offsets("g"))
        assert found[SOURCE].offset == 4
        client.coordinator(lambda engine: engine.commit_offsets("g", {SOURCE: OffsetAndMetadata(5)}))
        (summary,) = client.coordinator(lambda engine: engine.list_groups())
        assert summary.offsets[SOURCE].offset == 5
        client.coordinator(lambda engine: engine.delete_group("g"))
        with pytest.raises(UnknownGroupError):
            client.coordinator(lambda engine: engine.delete_group("g"))


def test_offsets_of_a_deleted_topic_go_at_the_coordinators_of_all_nodes(tmp_path: Path) -> None:
    groups = [f"g{number}" for number in range(12)]

    def kept(group: str) -> object:
        node = three.nodes[client.node_of_group(group)]
        topic = node.engine.groups.shard(node.engine.groups.place(group).partition).topic(create=False)
        assert topic is not None
        topic.confirm()
        return topic.look(lambda machine: machine.committed(group))

    with cluster(tmp_path) as three:
        client = with_topics(three)
        for group in groups:
            offsets = {SOURCE: OffsetAndMetadata(4)}
            client.coordinator(lambda engine: engine.commit_offsets(group, offsets))  # noqa: B023
        assert len({client.node_of_group(group) for group in groups}) > 1
        assert all(kept(group) for group in groups)
        three.controller.store.delete_topic("in")
        assert not any(kept(group) for group in groups)


def test_an_offset_past_a_leaders_end_is_refused(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        for number in range(3):
            place = TopicPartition("in", number)
            with pytest.raises(LogStoreError, match="1000"):
                client.coordinator(
                    lambda engine, place=place: engine.commit_offsets("g", {place: OffsetAndMetadata(1_000)})  # type: ignore[misc]
                )
        with pytest.raises(UnknownTopicError):
            client.coordinator(
                lambda engine: engine.commit_offsets("g", {TopicPartition("no", 0): OffsetAndMetadata(0)})
            )


def test_a_transaction_reaches_leaders_on_all_nodes(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        assert len({three.leader("out", number).node_id for number in range(3)}) == 3
        lease = client.coordinator(lambda engine: engine.init_transactions("x", 60_000))
        for round_, commit in enumerate((True, False)):
            lease.begin()
            lease.add_partitions(PLACES)
            for place in PLACES:
                client.produce(place, batch_of(lease, b"%d-%d" % (round_, place.partition)))
            lease.send_offsets("g", {SOURCE: OffsetAndMetadata(round_ + 1)})
            lease.end(commit=commit)
        until(lambda: client.committed("out", 3) == [b"0-0", b"0-1", b"0-2"])
        found = client.coordinator(lambda engine: engine.committed_offsets("g"))
        assert found[SOURCE].offset == 1
        assert client.coordinator(lambda engine: engine.unstable_offsets("g")) in ([], (), {}.keys(), set())
        (summary,) = client.coordinator(lambda engine: engine.list_transactions())
        assert summary.state in ("COMPLETE_ABORT", "PREPARE_ABORT")


def test_a_transaction_is_committed_by_the_next_coordinator(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        lease = client.coordinator(lambda engine: engine.init_transactions("x", 60_000))
        writer = TransactionalWriter(lease.producer_id, lease.epoch)
        lease.begin()
        lease.add_partitions(PLACES, offsets=True)
        for place in PLACES:
            client.produce(place, batch_of(lease, b"%d" % place.partition))
        lease.send_offsets("g", {SOURCE: OffsetAndMetadata(7)})
        former = client.node_of_id("x")
        three.nodes[former].engine.step_down()
        three.stop(former)
        resumed = client.coordinator(lambda engine: engine.resume_transactions("x", 60_000, *writer))

        def commit(engine: ClusterBackend) -> None:
            engine.resume_transactions("x", 60_000, *writer).end(commit=True, writer=writer)

        client.coordinator(commit)
        client.coordinator(commit)  # its answer may have been lost
        assert resumed.transactional_id == "x"
        until(lambda: client.committed("out", 3) == [b"0", b"1", b"2"])
        assert client.coordinator(lambda engine: engine.committed_offsets("g"))[SOURCE].offset == 7
        client.coordinator(lambda engine: engine.init_transactions("x", 60_000))
        with pytest.raises(ProducerFencedError):
            client.coordinator(lambda engine: engine.resume_transactions("x", 60_000, *writer))


ASKED: dict[str, tuple[type[LogStoreError], Callable[[ClusterBackend], object]]] = {
    "resume_transactions": (
        UnknownTransactionError,
        lambda engine: engine.resume_transactions("x", 60_000, 7, 0),
    ),
    "abort_transaction": (UnknownTransactionError, lambda engine: engine.abort_transaction("x")),
    "resume_member": (UnknownMemberError, lambda engine: engine.resume_member("x", "m", REQUEST)),
    "commit_offsets": (
        UnknownMemberError,
        lambda engine: engine.commit_offsets("x", {}, member=MemberIdentity("m", 1)),
    ),
    "delete_group": (UnknownGroupError, lambda engine: engine.delete_group("x")),
}
"""About an id that the coordinator does not know."""


@pytest.mark.parametrize("name", ASKED)
def test_a_coordinator_that_is_cut_off_does_not_say_that_there_is_no_such_id(
    tmp_path: Path, name: str
) -> None:
    unknown, ask = ASKED[name]
    with cluster(tmp_path) as three:
        client = with_topics(three)
        client.coordinator(lambda engine: engine.init_transactions("y", 60_000))
        client.coordinator(lambda engine: engine.commit_offsets("y", {SOURCE: OffsetAndMetadata(1)}))
        with pytest.raises(unknown):
            client.coordinator(ask)
        of_ids = unknown is UnknownTransactionError
        leader = three.nodes[client.node_of_id("x") if of_ids else client.node_of_group("x")]
        with pytest.raises(unknown):
            ask(leader.engine)
        for number in three.nodes:
            three.network.cut(leader.node_id, number)
        with pytest.raises((NotLeaderError, LeaderNotReadyError)):  # another one may know it by now
            ask(leader.engine)
        three.network.heal()


def test_a_transaction_left_open_is_aborted_by_its_coordinator_of_then(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        lease = client.coordinator(lambda engine: engine.init_transactions("x", 5_000))
        lease.begin()
        lease.add_partitions(PLACES)
        for place in PLACES:
            client.produce(place, batch_of(lease, b"never"))
        three.stop(client.node_of_id("x"))

        def is_over() -> bool:
            (summary,) = client.coordinator(lambda engine: engine.list_transactions())
            return summary.state == "COMPLETE_ABORT"

        until(is_over)
        assert client.committed("out", 3) == []


def test_members_go_on_and_dead_ones_are_taken_out(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        one = client.coordinator(lambda engine: engine.join_group("g", REQUEST))
        other = client.coordinator(lambda engine: engine.join_group("g", SHORT))
        view = one.view()
        assert view is not None
        former = client.node_of_group("g")
        three.nodes[former].engine.step_down()
        assert isinstance(one.ended_by(), NotLeaderError)
        three.stop(former)
        resumed = client.coordinator(lambda engine: engine.resume_member("g", one.member_id, REQUEST))
        view = resumed.view()
        assert view is not None
        resumed.sync(view.assigned, view.epoch)

        def has_all() -> bool:
            now = resumed.view()
            assert now is not None
            resumed.polled()
            resumed.sync(now.assigned, now.epoch)
            return len(now.assigned) == 3

        until(has_all)  # the other one's session is over
        (summary,) = client.coordinator(lambda engine: engine.list_groups())
        assert [member.member_id for member in summary.members] == [one.member_id]
        assert other.member_id != one.member_id


def test_producers_and_administrators_are_answered_by_any_node(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        ids = {node.engine.init_producer(None).producer_id for node in three.nodes.values()}
        assert len(ids) == 3
        lease = next(iter(three.nodes.values())).engine.init_producer("import")
        batch = encode_batch(
            [(b"k", b"v")],
            now_ms=1_700_000_000_000,
            producer_id=lease.producer_id_of(0),
            producer_epoch=lease.epoch,
            base_sequence=0,
        )
        client.produce(PLACES[1], batch)
        assert [lease.last_sequence(*place) for place in PLACES] == [0, 1, 0]
        for node in three.nodes.values():
            described = node.engine.describe_topic("in")
            assert [row.partition for row in described.partitions] == [0, 1, 2]
            # As the leader has it, also where a follower has not heard of the commit yet.
            leader = three.leader(*PLACES[1])
            row = node.engine.describe_partition(*PLACES[1])
            assert row == leader.engine.describe_partition(*PLACES[1])
            assert (row.segments, row.high_watermark) == (1, row.log_end_offset)
        with pytest.raises(InvalidPartitionsError, match="keys"):
            three.controller.engine.add_partitions("out", 6, allow_keyed=False)
        three.controller.engine.add_partitions("in", 6, allow_keyed=False)
        until(lambda: all(node.engine.topic("in").partitions == 6 for node in three.nodes.values()))


def test_a_hanging_transaction_is_found_and_ended_from_the_coordinator(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        client = with_topics(three)
        client.coordinator(lambda engine: engine.init_transactions("x", 60_000)).release()
        for place in PLACES:
            batch = encode_batch(
                [(None, b"stray")],
                now_ms=1_700_000_000_000,
                producer_id=999_999,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            client.produce(place, batch)
        found = client.coordinator(lambda engine: engine.find_hanging(["out"]))
        assert [(one.topic, one.partition, one.producer_id) for one in found] == [
            (*place, 999_999) for place in PLACES
        ]
        for one in found:
            client.coordinator(lambda engine, one=one: engine.end_hanging(one))  # type: ignore[misc]
        assert client.coordinator(lambda engine: engine.find_hanging()) == []
