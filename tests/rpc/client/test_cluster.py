"""A client of a cluster: what it sends, reads and holds goes on while leaders, coordinators and brokers move."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from logstore.client.consumer.consumer import Consumer
from logstore.errors import LogStoreError, ProducerFencedError
from logstore.format.batch import decode_batches
from logstore.types import TopicPartition
from rpc.client.store import RemoteStore
from tests.beside import Beside
from tests.rpc.cluster import NOBODY, Cluster

PARTITIONS = 4


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        made.store.create_topic("t", PARTITIONS)
        yield made


@pytest.fixture
def client(cluster: Cluster) -> Iterator[RemoteStore]:
    with cluster.connect() as made:
        yield made


def until(met: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < end_s, "it has not come to it"
        time.sleep(0.005)


@contextmanager
def moving(
    cluster: Cluster,
    seed: int,
    *,
    pause_s: float = 0.02,
    gaps: bool = False,
    told: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Leaders of all partitions move in the block, again and again; ``gaps``: with nobody in between; ``told``: called
    after each move."""
    chance, over = random.Random(seed), threading.Event()

    def move() -> None:
        while not over.wait(pause_s * chance.random()):
            partition = chance.randrange(PARTITIONS)
            if gaps and chance.random() < 0.5:
                cluster.table.move("t", partition, NOBODY)
                over.wait(pause_s * chance.random())
            cluster.table.move("t", partition, chance.choice(sorted(cluster.brokers)))
            told()

    try:
        with Beside(move, stop=over.set):
            yield
    finally:
        for partition in range(PARTITIONS):
            cluster.table.move("t", partition, chance.choice(sorted(cluster.brokers)))


def stored(cluster: Cluster) -> dict[int, list[bytes]]:
    """Values by partition, in the log's order."""
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for partition in range(PARTITIONS):
        cluster.store.partition("t", partition).flush()
    with cluster.store.consumer("t", until_end=True) as consumer:
        for record in consumer:
            found[record.partition].append(record.value or b"")
    return found


def numbers(count: int, partition: int) -> list[bytes]:
    return [b"%d" % number for number in range(count) if number % PARTITIONS == partition]


def test_a_client_learns_of_all_brokers_from_one(cluster: Cluster) -> None:
    with cluster.connect(2) as client:
        client.create_topic("made", 3)
        with client.producer() as producer:
            for partition in range(3):
                producer.send("made", b"v", partition=partition).result(60)
        assert [client.partition("made", partition).high_watermark for partition in range(3)] == [1, 1, 1]


def test_a_broker_that_is_away_is_left_out_of_the_list(cluster: Cluster) -> None:
    cluster.stop(1)
    cluster.table.controller = cluster.table.coordinator = 2
    for partition in range(PARTITIONS):
        cluster.table.move("t", partition, 3)
    with cluster.connect() as client, client.producer() as producer:
        assert producer.send("t", b"v", partition=0).result(60).offset == 0
        assert client.admin.list_groups() == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("wait", [False, True])
def test_records_are_stored_once_and_in_order_while_leaders_move(
    cluster: Cluster, client: RemoteStore, seed: int, gaps: bool, wait: bool
) -> None:
    count = 400 if wait else 4000
    with client.producer(linger_ms=0, batch_bytes=400) as producer, moving(cluster, seed, gaps=gaps):
        sent = []
        for number in range(count):
            sent.append(producer.send("t", b"%d" % number, partition=number % PARTITIONS))
            if wait and number % 10 == 0:
                sent[-1].result(60)
        producer.flush(60)
    offsets = [one.result(60).offset for one in sent]
    assert stored(cluster) == {partition: numbers(count, partition) for partition in range(PARTITIONS)}
    # The place of one that was in already may be forgotten.
    assert all(offset in (-1, number // PARTITIONS) for number, offset in enumerate(offsets))


@pytest.mark.parametrize("seed", range(3))
def test_order_needs_no_sequences(cluster: Cluster, client: RemoteStore, seed: int) -> None:
    """A refusal takes along what is behind it, and that reaches no other leader before, though it is known."""
    count, told = 6000, client.backend._metadata.refresh_now
    with (
        client.producer(acks=1, linger_ms=0, batch_bytes=400) as producer,
        moving(cluster, seed, pause_s=0.005, told=told),
    ):
        for number in range(count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)
        producer.flush(60)
    assert stored(cluster) == {partition: numbers(count, partition) for partition in range(PARTITIONS)}


def test_a_broker_that_stops_takes_nothing_with_it(cluster: Cluster, client: RemoteStore) -> None:
    count = 3000
    with client.producer(linger_ms=1, batch_bytes=400) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            if number == count // 3:
                cluster.stop(2)
                for partition in range(PARTITIONS):
                    cluster.table.move("t", partition, 3 if partition % 2 else 1)
        producer.flush(60)
    assert stored(cluster) == {partition: numbers(count, partition) for partition in range(PARTITIONS)}


def test_a_consumer_goes_on_while_leaders_move(cluster: Cluster, client: RemoteStore) -> None:
    count, read = 3000, []
    with (
        client.producer(linger_ms=1) as producer,
        client.consumer("t") as consumer,
        moving(cluster, 7, gaps=True),
    ):
        for number in range(count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            if number % 100 == 0:
                read += consumer.poll(timeout_s=0)
        producer.flush(60)
        until(lambda: len(read.extend(consumer.poll(timeout_s=0.1)) or read) >= count)
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for record in read:
        found[record.partition].append(record.value or b"")
    assert found == {partition: numbers(count, partition) for partition in range(PARTITIONS)}


def test_a_reader_of_a_partition_without_a_leader_waits_for_one(
    cluster: Cluster, client: RemoteStore
) -> None:
    with client.producer() as producer:
        producer.send("t", b"v", partition=0).result(60)
    log = client.partition("t", 0)
    cluster.table.move("t", 0, NOBODY)
    again = threading.Timer(0.5, lambda: cluster.table.move("t", 0, 3))
    again.start()
    assert decode_batches(log.read(0), "t", 0)[0].value == b"v"
    assert log.high_watermark == 1
    again.join()


def test_a_partition_that_nobody_leads_has_an_error_in_the_end(cluster: Cluster) -> None:
    with cluster.connect(request_timeout_s=0.5) as client:
        log = client.partition("t", 0)
        cluster.table.move("t", 0, NOBODY)
        with pytest.raises(LogStoreError, match=r"node|leads"):
            log.read(0)
        with pytest.raises(LogStoreError, match=r"node|leads"):
            log.describe()


def test_offsets_and_deletions_go_to_the_leaders(cluster: Cluster, client: RemoteStore) -> None:
    with client.producer() as producer:
        for number in range(8):
            producer.send("t", b"v", partition=number % PARTITIONS)
    places = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    listed = client.backend.list_offsets(places, "latest", "read_committed")
    assert {place: one.offset for place, one in listed.items()} == dict.fromkeys(places, 2)
    cluster.table.move("t", 1, 3)
    assert client.backend.delete_records(dict.fromkeys(places, 1)) == dict.fromkeys(places, 1)
    described = client.backend.describe_partitions(places)
    assert [described[place].log_start_offset for place in places] == [1] * PARTITIONS


# --- coordinators ---


def fill(cluster: Cluster, count: int) -> None:
    with cluster.store.producer() as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)


def test_offsets_are_committed_at_whatever_node_coordinates(cluster: Cluster, client: RemoteStore) -> None:
    fill(cluster, 8)
    with client.consumer("t", group="g") as consumer:
        for node in (2, 3, 1, 2):
            consumer.poll(max_records=2)
            consumer.commit()
            cluster.table.move_coordinator(node)
            assert client.backend.committed_offsets("g")
        consumer.commit()


def test_members_of_a_group_keep_their_partitions_when_the_coordinator_moves(cluster: Cluster) -> None:
    changes: list[object] = []
    with cluster.connect() as one, cluster.connect() as other:
        first = one.consumer("t", group="g", heartbeat_interval_ms=100, on_lost=changes.append)
        second = other.consumer("t", group="g", heartbeat_interval_ms=100, on_lost=changes.append)
        with first, second:

            def shared() -> bool:
                first.poll(timeout_s=0.01)
                second.poll(timeout_s=0.01)
                return len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2

            until(shared)
            before = first.assignment(), second.assignment()
            for node in (3, 2, 1):
                cluster.table.move_coordinator(node)
                until(lambda: all(member.ended_by() is None for member in cluster.table.members.values()))
                fill(cluster, 8)
                seen: list[object] = []
                until(lambda: len(seen.extend(read(first, second)) or seen) >= 8)  # noqa: B023
                first.commit()
                second.commit()
                assert (first.assignment(), second.assignment()) == before
            # The group goes on: what one leaves the other takes up.
            second.close()
            until(lambda: first.poll(timeout_s=0.01) is not None and len(first.assignment()) == PARTITIONS)
    assert changes == []
    assert len(cluster.table.members) == 2, "nobody has joined anew"


def read(*consumers: Consumer[bytes, bytes]) -> list[object]:
    return [record for consumer in consumers for record in consumer.poll(timeout_s=0.01)]


def test_a_member_that_the_new_coordinator_does_not_know_joins_again(
    cluster: Cluster, client: RemoteStore
) -> None:
    lost: list[object] = []
    with client.consumer("t", group="g", heartbeat_interval_ms=100, on_lost=lost.append) as consumer:
        (member,) = cluster.table.members.values()
        member.leave()
        cluster.table.members.clear()
        cluster.table.move_coordinator(2)
        until(lambda: consumer.poll(timeout_s=0.01) is not None and bool(lost))
        until(lambda: consumer.poll(timeout_s=0.01) is not None and len(consumer.assignment()) == PARTITIONS)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_transactions_are_all_or_nothing_while_the_coordinator_and_leaders_move(
    cluster: Cluster, client: RemoteStore, seed: int
) -> None:
    chance = random.Random(seed)
    committed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    with client.producer(transactional_id="tx") as producer, moving(cluster, seed, pause_s=0.05):
        for turn in range(30):
            commit = chance.random() < 0.7
            producer.begin()
            for partition in range(PARTITIONS):
                value = b"%d-%d" % (turn, partition)
                producer.send("t", value, partition=partition)
                if commit:
                    committed[partition].append(value)
                if chance.random() < 0.2:
                    cluster.table.move_coordinator(chance.randint(1, 3))
            producer.commit() if commit else producer.abort()
            if chance.random() < 0.3:
                cluster.table.move_coordinator(chance.randint(1, 3))
    assert stored(cluster) == dict(enumerate(committed))


def test_a_transaction_goes_on_when_its_coordinators_broker_stops(
    cluster: Cluster, client: RemoteStore
) -> None:
    with client.producer(transactional_id="tx") as producer:
        producer.begin()
        producer.send("t", b"0", partition=0).result(60)
        cluster.stop(1)
        cluster.table.move_coordinator(2)
        for partition in range(PARTITIONS):
            cluster.table.move("t", partition, 3)
        producer.send("t", b"1", partition=0).result(30)
        producer.commit()
    assert stored(cluster)[0] == [b"0", b"1"]


def test_a_transaction_of_a_newer_opening_fences_the_one_that_would_be_taken_up(
    cluster: Cluster, client: RemoteStore
) -> None:
    with client.producer(transactional_id="tx") as old:
        old.begin()
        old.send("t", b"old", partition=0).result(60)
        cluster.table.move_coordinator(2)
        with client.producer(transactional_id="tx") as new:
            new.begin()
            new.send("t", b"new", partition=0).result(60)
            with pytest.raises(ProducerFencedError):
                old.commit()
            new.commit()
        with suppress(LogStoreError):
            old.abort()
    assert stored(cluster)[0] == [b"new"]


def test_a_producer_that_closes_behind_a_move_leaves_no_transaction_open(cluster: Cluster) -> None:
    with cluster.connect() as client:
        producer = client.producer(transactional_id="tx")
        producer.begin()
        producer.send("t", b"v", partition=0).result(60)
        cluster.table.move_coordinator(3)
        producer.close()
        (summary,) = client.admin.list_transactions()
    assert summary.state in ("COMPLETE_ABORT", "EMPTY")


def test_a_named_producer_is_opened_again_where_the_controller_moves(cluster: Cluster) -> None:
    with cluster.connect() as client, client.producer(name="import") as producer:
        producer.send("t", b"0", partition=0).result(60)
        epoch = cluster.store.admin.list_producers()[0].epoch
        cluster.brokers[1]._leases._held.popitem()[
            1
        ].what.release()  # as the new controller does not know of it
        cluster.table.controller = 2
        producer.send("t", b"1", partition=1).result(60)
        producer.send("t", b"2", partition=0).result(60)
        assert cluster.store.admin.list_producers()[0].epoch == epoch + 1
    assert [stored(cluster)[partition] for partition in (0, 1)] == [[b"0", b"2"], [b"1"]]


def test_topics_are_changed_at_the_controller(cluster: Cluster, client: RemoteStore) -> None:
    for node in (3, 2, 1):
        cluster.table.controller = node
        name = f"made-{node}"
        client.create_topic(name)
        client.admin.add_partitions(name, 2)
        assert client.backend.topic(name).partitions == 2
        client.admin.delete_topic(name)
        assert name not in client.admin.list_topics()


# --- brokers that hang ---


@pytest.mark.slow
def test_records_go_on_when_the_broker_that_led_them_hangs(cluster: Cluster, client: RemoteStore) -> None:
    count = 2000
    with client.producer(linger_ms=1, batch_bytes=400) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=number % PARTITIONS)
            if number == count // 2:
                cluster.freeze(2)
                for partition in range(PARTITIONS):
                    cluster.table.move("t", partition, 3 if partition % 2 else 1)
        producer.flush(60)
        with client.consumer("t", until_end=True) as consumer:
            assert len(list(consumer)) == count
    assert stored(cluster) == {partition: numbers(count, partition) for partition in range(PARTITIONS)}


@pytest.mark.parametrize("cut", ["freeze", "cut_off"])
@pytest.mark.parametrize("node", [1, 2, 3])
def test_calls_go_on_without_a_broker_that_hangs_or_is_cut_off(
    cluster: Cluster, client: RemoteStore, node: int, cut: str
) -> None:
    fill(cluster, 8)
    cluster.table.controller = cluster.table.coordinator = 1 + node % 3
    with client.consumer("t", group="g") as consumer, client.producer() as producer:
        until(lambda: len(consumer.poll(timeout_s=0.1)) > 0)
        producer.send("t", b"v").result(30)
        getattr(cluster, cut)(node)
        cluster.table.move_coordinator(1 + (node + 1) % 3)
        cluster.table.controller = 1 + (node + 1) % 3
        for partition in range(PARTITIONS):
            cluster.table.move("t", partition, 1 + node % 3)
        fill(cluster, 8)
        seen: list[object] = []
        until(lambda: len(seen.extend(consumer.poll(timeout_s=0.1)) or seen) >= 8)
        producer.send("t", b"v").result(60)
        consumer.commit()
        client.create_topic("made")
