"""The cluster's part of a broker's settings: what is refused, and what it says to change."""

from __future__ import annotations

from typing import Any

import pytest

from rpc.errors import BrokerConfigError
from rpc.peers.settings import parse_peers
from rpc.settings import BrokerSettings

PEERS = "1=127.0.0.1:9195,2=127.0.0.1:9196,3=[::1]:9197"
FILES = {"peer_tls_certificate": "c", "peer_tls_key": "k", "peer_tls_ca": "a"}


def made(**settings: Any) -> BrokerSettings:
    return BrokerSettings(data="x", **settings)


def test_a_broker_of_a_cluster() -> None:
    settings = made(peers=PEERS, node_id=3, rack="west")
    assert settings.peer_address == ("::1", 9197)
    assert settings.peer_addresses == {
        1: ("127.0.0.1", 9195),
        2: ("127.0.0.1", 9196),
        3: ("::1", 9197),
    }
    assert settings.in_cluster
    assert not made(node_id=7).in_cluster
    assert made(peers=PEERS, peer_listen="127.0.0.1:0").peer_address == ("127.0.0.1", 0)
    beyond = "1=10.0.0.1:1, 2=10.0.0.2:1"
    assert made(peers=beyond, **FILES).in_cluster
    assert made(peers=beyond, insecure_peers_beyond_loopback=True).in_cluster
    assert made(peers=PEERS, listen="127.0.0.1:0", advertise="127.0.0.1:7").in_cluster


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"peers": "127.0.0.1:9195"}, "peers has '127.0.0.1:9195'.*e.g. 1=10.0.0.1:9195"),
        ({"peers": "one=127.0.0.1:9195"}, "peers has 'one="),
        ({"peers": "1=127.0.0.1:9195,"}, "peers has ''"),
        ({"peers": "1=h"}, "peers='h' is not HOST:PORT"),
        ({"peers": "1=127.0.0.1:1,1=127.0.0.1:2"}, "node 1 twice"),
        ({"peers": "1=127.0.0.1:1,2=127.0.0.1:1"}, "the same address"),
        ({"peers": "1=127.0.0.1:0"}, "port 0"),
        ({"peers": "4294967296=127.0.0.1:1"}, "at most 2147483647"),
        ({"peers": PEERS, "node_id": 4}, "node_id=4 is not in peers.*set node_id"),
        ({"node_id": -1}, "node_id=-1: it is 0 to"),
        ({"peers": PEERS, "listen": "127.0.0.1:0"}, "listen has port 0.*choose a port, or set advertise"),
        ({"peers": PEERS, "advertise": "127.0.0.1:0"}, "advertise has port 0"),
        ({"peers": PEERS, "advertise": "here"}, "advertise='here' is not HOST:PORT"),
        ({"peers": PEERS, "peer_listen": "here"}, "peer_listen='here' is not HOST:PORT"),
        ({"peers": "1=10.0.0.1:1,2=127.0.0.1:1", "node_id": 2}, "peers at 10.0.0.1 are on other machines"),
        ({"peers": PEERS, "peer_listen": "0.0.0.0:1"}, "peers at 0.0.0.0 .*insecure_peers_beyond_loopback"),
        ({"peers": PEERS, "peer_tls_ca": "a"}, "peer_tls_ca set, and peer_tls_certificate, peer_tls_key not"),
        ({"peer_tls_ca": "a"}, "peer_tls_ca is set, and peers is not"),
        ({"advertise": "h:1"}, "advertise is set, and peers is not"),
        ({"peer_queue_bytes": 0}, "peer_queue_bytes=0: it is at least 1"),
        ({"peer_frame_bytes": 1 << 27}, "peer_message_bytes=67108864 is less than peer_frame_bytes"),
        ({"peer_message_bytes": 1 << 31}, "at most 1 GiB"),
        ({"peer_timeout_s": 0.0}, "peer_timeout_s=0.0: it is more than 0"),
        ({"replica_lag_s": 0.0}, "replica_lag_s=0.0: it is more than 0"),
        ({"coordinator_partitions": 0}, "coordinator_partitions=0: it is 1 to 1000"),
        ({"rack": "a\nb"}, "rack='a.*nb': it is a text"),
        ({"rack": "x" * 250}, "at most 249 characters"),
        ({"peers": 7}, "peers=7: it is a text"),
    ],
)
def test_what_cannot_be(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(BrokerConfigError, match=told):
        made(**settings)


def test_blanks_between_entries_are_nothing() -> None:
    assert parse_peers(" 1=localhost:1 , 2=localhost:2") == {1: ("localhost", 1), 2: ("localhost", 2)}
