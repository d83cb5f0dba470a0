"""Three brokers as real processes: a cluster comes about, outlives each of its brokers, and says how it is."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.types import TopicPartition
from rpc.errors import BrokerTimeoutError, BrokerUnavailableError
from rpc.testing.broker import BrokerForTests
from rpc.testing.cluster import ClusterForTests, HeldPort
from rpc.wire.cluster import ClusterDescription
from tests.rpc.peers.world import until
from tests.rpc.security.authority import Authority


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterForTests]:
    with ClusterForTests(tmp_path) as made:
        yield made
    BrokerForTests.end_spares()


def made(cluster: ClusterForTests, partitions: int) -> ClusterDescription:
    """The topic ``t``, made through the controller."""
    controller = cluster.brokers[cluster.describe().controller]
    with logstore.connect(controller.address) as client:
        client.create_topic("t", partitions)
    return cluster.await_healthy()


def test_every_partition_is_on_all_and_led_by_one(cluster: ClusterForTests) -> None:
    found = made(cluster, 3)
    assert [one.node_id for one in found.brokers] == [1, 2, 3]
    assert all(one.alive for one in found.brokers)
    of = [one.status for one in found.partitions if one.topic == "t"]
    assert len(of) == 3
    for status in of:
        assert [one.node_id for one in status.replicas] == [1, 2, 3]
        assert status.leader in (1, 2, 3)


def test_another_leads_when_the_leader_is_killed_or_stops(cluster: ClusterForTests) -> None:
    made(cluster, 1)
    first = cluster.leader_of("t")
    with logstore.connect(cluster.brokers[first].address) as client, client.producer() as producer:
        producer.send("t", b"before", partition=0).result(60)
    cluster.kill(first)
    until(lambda: cluster.leader_of("t") not in (-1, first), "another leads")
    cluster.restart(first)
    cluster.await_healthy()
    second = cluster.leader_of("t")
    assert cluster.brokers[second].stop() == 0
    until(lambda: cluster.leader_of("t") not in (-1, second), "another leads")
    third = cluster.leader_of("t")
    with logstore.connect(cluster.brokers[third].address) as client:
        assert [one.value for one in client.partition("t", 0).records(0)] == [b"before"]
    cluster.restart(second)
    cluster.await_healthy()


def test_a_broker_that_is_cut_off_is_told(cluster: ClusterForTests) -> None:
    made(cluster, 3)
    cluster.isolate(2)
    until(lambda: cluster.brokers[1].is_running and 2 not in _leaders(cluster, 1), "the others go on")
    with pytest.raises(BrokerTimeoutError, match="not healthy within"):
        cluster.await_healthy(0.5)
    cluster.heal()
    cluster.await_healthy()


def test_brokers_with_certificates_make_a_cluster(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "peers")
    pair = authority.issue("broker", "127.0.0.1")
    files = {
        "peer_tls_certificate": pair.certificate,
        "peer_tls_key": pair.key,
        "peer_tls_ca": authority.file,
    }
    with ClusterForTests(tmp_path / "brokers", **files) as cluster:
        made(cluster, 1)
        with cluster.connect() as client, client.producer() as producer:
            assert producer.send("t", b"v").result(60).offset == 0
    BrokerForTests.end_spares()


def _leaders(cluster: ClusterForTests, asked: int) -> set[int]:
    with logstore.connect(cluster.brokers[asked].address) as client:
        return {one.status.leader for one in client.describe_cluster(0.5).partitions}


def test_a_reader_in_a_rack_reads_there_and_from_the_leader_when_that_fails(tmp_path: Path) -> None:
    with ClusterForTests(tmp_path, racks=("a", "b", "c")) as cluster:
        made(cluster, 1)
        leader = cluster.leader_of("t")
        near = next(node for node in cluster.nodes if node != leader)
        place = TopicPartition("t", 0)
        address = ",".join(broker.address for broker in cluster.brokers.values())
        sent = [b"%d" % number for number in range(40)]
        with (
            logstore.connect(address, rack="abc"[near - 1]) as client,
            client.producer() as producer,
            client.consumer("t") as consumer,
        ):
            read: list[bytes | None] = []

            def pass_on(values: list[bytes]) -> None:
                for value in values:
                    producer.send("t", value, partition=0).result(60)
                more: list[bytes | None] = []
                until(lambda: more.extend(one.value for one in consumer.poll()) or len(more) >= 10, "read")
                read.extend(more)

            pass_on(sent[:10])
            pass_on(sent[10:20])
            assert client.backend._near.of(place) == near
            cluster.kill(near)
            pass_on(sent[20:30])
            assert client.backend._near.of(place) is None
            pass_on(sent[30:])
            assert read == sent
    BrokerForTests.end_spares()


if sys.platform == "linux":

    def test_a_held_port_is_given_to_nobody_and_listened_on_by_name() -> None:
        held = HeldPort()
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind(("127.0.0.1", held.port))  # as one that asks for any port: without SO_REUSEADDR
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", held.port))
            with (
                socket.create_server(("127.0.0.1", held.port)),
                socket.create_connection(("127.0.0.1", held.port)),
            ):
                pass
        held.close()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        peers = f"1=127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerUnavailableError, match=r"(?s)ended with 1; .*cannot listen for peers"):
            BrokerForTests(tmp_path, node_id=1, peers=peers)
    BrokerForTests.end_spares()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["full_disk", "broken_disk"])
def test_producers_go_on_where_a_leaders_disk_takes_nothing_more(
    cluster: ClusterForTests, fault: str
) -> None:
    made(cluster, 3)
    first = cluster.leader_of("t")
    with (
        logstore.connect(cluster.address) as client,
        client.producer() as producer,
    ):
        producer.send("t", b"before", partition=0).result(60)
        getattr(cluster.brokers[first], fault)()
        for number in range(3):
            producer.send("t", b"%d" % number, partition=0).result(60)
        until(lambda: not leads(cluster, first), "others lead all that it led")
        getattr(cluster.brokers[first], fault)(False)
        if fault == "broken_disk":  # what it could not make durable it does not try again
            cluster.kill(first)
            cluster.restart(first)
        cluster.await_healthy()
        until(lambda: leads(cluster, first), "it leads again what it preferably leads")
        producer.send("t", b"after", partition=0).result(60)
    with logstore.connect(cluster.brokers[first].address) as client:
        values = [record.value for record in client.partition("t", 0).records(0)]
    assert values == [b"before", b"0", b"1", b"2", b"after"]


def leads(cluster: ClusterForTests, node: int) -> bool:
    return any(one.status is not None and one.status.leader == node for one in cluster.describe().partitions)
