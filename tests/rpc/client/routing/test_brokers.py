"""``Brokers``: any of several addresses answers, and home moves away from a broker that does not."""

from __future__ import annotations

import pytest

from rpc.client.channel.connection import Connection
from rpc.client.channel.settings import ConnectionSettings
from rpc.client.routing.brokers import Brokers
from rpc.client.store import RemoteStore, connect
from rpc.errors import BrokerUnavailableError
from rpc.pb import cluster_pb2 as pb
from tests.rpc.cluster import Cluster
from tests.rpc.served import Served


def made(target: str) -> Brokers:
    brokers = Brokers(target, ConnectionSettings(request_timeout_s=5.0))
    brokers.greet(pb.GetClusterRequest(client="tests"), 5.0)
    return brokers


def test_a_broker_that_is_alone_is_one_connection(served: Served, client: RemoteStore) -> None:
    brokers = client.backend._brokers
    assert brokers.only is brokers.home()
    with pytest.raises(BrokerUnavailableError):
        brokers.to(7)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_that_nobody_listens_on_is_left_out(served: Served, host: str) -> None:
    with connect(f"{host}:1,{host}:{served.port}", request_timeout_s=10.0) as client:
        client.create_topic("t")
        assert client.backend._brokers.only is not None
        assert client.list_topics() == ["t"]


def test_the_last_address_is_not_asked_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error would say that a thousandth of a second was too short, and not what is the matter."""
    limits: list[float] = []

    def refused(connection: Connection, method: str, data: bytes, limit_s: float) -> bytes:
        limits.append(limit_s)
        raise BrokerUnavailableError("nothing listens there")

    monkeypatch.setattr(Connection, "send", refused)
    brokers = Brokers("127.0.0.1:1,127.0.0.1:2", ConnectionSettings(request_timeout_s=5.0))
    with pytest.raises(BrokerUnavailableError, match="nothing listens there"):
        brokers.greet(pb.GetClusterRequest(client="tests"), 0.3)
    assert len(limits) > 2
    assert min(limits) > 0.001


def test_where_nobody_answers_the_error_says_so() -> None:
    with pytest.raises(BrokerUnavailableError):
        connect("127.0.0.1:1,127.0.0.1:2", connect_timeout_s=0.3)


def test_home_moves_on_and_each_broker_has_one_connection() -> None:
    with Cluster() as cluster:
        brokers = made(cluster.address)
        assert brokers.only is None
        homes = []
        for _ in range(3):
            homes.append(brokers.home())
            brokers.move_home(homes[-1])
            brokers.move_home(homes[-1])  # the second word about the same broker is no news
        assert len(set(homes)) == 3
        assert brokers.home() is homes[0]
        assert {brokers.to(node) for node in (1, 2, 3)} == set(homes)
        brokers.close()


def test_a_node_that_nobody_has_heard_of_is_asked_for() -> None:
    with Cluster(2) as cluster:
        brokers = made(f"127.0.0.1:{cluster.ports[1]}")
        with pytest.raises(BrokerUnavailableError):
            brokers.to(3)
        cluster.start(3)
        brokers._looked_s = 0.0
        assert brokers.to(3).target == f"127.0.0.1:{cluster.ports[3]}"
        brokers.close()
