"""``PeerSettings``: the cluster's part of a broker's settings, and which combinations are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rpc.addresses import host_and_port
from rpc.errors import BrokerConfigError
from rpc.security.settings import SecuritySettings, is_loopback

_MIB: Final = 1 << 20
_MAX_NODE: Final = (1 << 31) - 1
_MAX_RACK: Final = 249
_MOST_COORDINATORS: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerSettings(SecuritySettings):
    """Of one broker of a cluster, beside its security. Sizes are bytes, times seconds."""

    node_id: int = 1
    """The broker's number, its own in the cluster for ever."""
    peers: str = ""
    """All brokers that a cluster starts with, this one among them, and where each listens for the others:
    1=HOST:PORT,2=HOST:PORT,3=HOST:PORT, the same on all. "": one broker without a cluster."""
    peer_listen: str = ""
    """HOST:PORT that this broker listens on for its peers; "": its own entry in `peers`."""
    advertise: str = ""
    """HOST:PORT that clients are told to connect to; "": `listen`."""
    rack: str = ""
    """The broker's rack or zone: replicas of a partition are spread over racks."""
    replica_lag_s: float = 10.0
    """A replica that has not kept up with its leader for so long is not in sync; Kafka's replica.lag.time.max.ms."""
    coordinator_partitions: int = 12
    """Partitions of the topics by which groups, and transactions, are spread over brokers. What the first commit in the
    cluster finds counts, for ever: the same on all brokers."""
    recovery_bytes_s: int = 0
    """Records a second that this broker sends to replicas that are not in sync, of all partitions that it leads; 0: no
    limit. Replicas that are in sync are not held up, nor those without which nothing can be committed."""
    peer_queue_bytes: int = 64 * _MIB
    """Messages that wait for one peer; what comes beyond is dropped, and sent again later."""
    peer_frame_bytes: int = 4 * _MIB
    """Messages that go to a peer at once; a larger one goes alone."""
    peer_message_bytes: int = 64 * _MIB
    """Largest message, and largest call and answer between peers: snapshots of the cluster's metadata among them."""
    peer_timeout_s: float = 5.0
    """A connection to a peer that is silent for so long is made anew."""
    peer_threads: int = 16
    """Calls of peers that are answered at once."""
    peer_tls_certificate: str = ""
    """File of the certificate that this broker shows its peers, as server and as client; "": no TLS between peers."""
    peer_tls_key: str = ""
    """File of its private key; only its owner may read it."""
    peer_tls_ca: str = ""
    """File of the authorities whose certificates make a peer: whoever has one of them is a broker of the cluster."""
    insecure_peers_beyond_loopback: bool = False
    """Let peers on other machines speak without TLS. Anybody between them can then read and change everything."""

    @property
    def in_cluster(self) -> bool:
        return bool(self.peers)

    @property
    def peer_addresses(self) -> dict[int, tuple[str, int]]:
        """(host, port) by node. BrokerConfigError."""
        return parse_peers(self.peers)

    @property
    def peer_address(self) -> tuple[str, int]:
        """Where this broker listens for its peers. BrokerConfigError."""
        if self.peer_listen:
            return host_and_port(self.peer_listen, "peer_listen")
        return self.peer_addresses[self.node_id]


def parse_peers(text: str) -> dict[int, tuple[str, int]]:
    """``1=HOST:PORT,2=HOST:PORT`` as (host, port) by node. BrokerConfigError."""
    found: dict[int, tuple[str, int]] = {}
    for part in text.split(","):
        number, equals, address = part.strip().partition("=")
        if not equals or not number.isascii() or not number.isdigit():
            raise BrokerConfigError(
                f"peers has {part.strip()!r}", hint="e.g. 1=10.0.0.1:9195,2=10.0.0.2:9195"
            )
        node = int(number)
        if node > _MAX_NODE:
            raise BrokerConfigError(f"peers has node {number}: a node's number is at most {_MAX_NODE}")
        if node in found:
            raise BrokerConfigError(f"peers has node {node} twice")
        found[node] = host_and_port(address.strip(), "peers")
        if found[node][1] == 0:
            raise BrokerConfigError(f"peers={text!r}: node {node} has port 0, which no peer can connect to")
    double = len(found) - len(set(found.values()))
    if double:
        raise BrokerConfigError(f"peers={text!r}: two nodes have the same address")
    return found


def check_peers(settings: PeerSettings, listen: str) -> None:
    """BrokerConfigError names the setting that cannot be, or the one that is lacking. ``listen``: for clients."""
    _check_values(settings)
    if not settings.peers:
        for name in ("peer_listen", "advertise", "peer_tls_certificate", "peer_tls_key", "peer_tls_ca"):
            if getattr(settings, name):
                raise BrokerConfigError(
                    f"{name} is set, and peers is not", hint="it is for brokers of a cluster: set peers"
                )
        return
    addresses = settings.peer_addresses
    if settings.node_id not in addresses:
        raise BrokerConfigError(
            f"node_id={settings.node_id} is not in peers={settings.peers!r}",
            hint="set node_id to this broker's number in peers",
        )
    if host_and_port(settings.advertise or listen, "advertise" if settings.advertise else "listen")[1] == 0:
        raise BrokerConfigError(
            f"{'advertise' if settings.advertise else 'listen'} has port 0, and the cluster tells clients the address",
            hint="choose a port, or set advertise",
        )
    _check_tls(settings, addresses)


def _check_values(settings: PeerSettings) -> None:
    if not 0 <= settings.node_id <= _MAX_NODE:
        raise BrokerConfigError(f"node_id={settings.node_id}: it is 0 to {_MAX_NODE}")
    if len(settings.rack) > _MAX_RACK or not settings.rack.isprintable():
        raise BrokerConfigError(
            f"rack={settings.rack[:60]!r}: it is a text of at most {_MAX_RACK} characters"
        )
    for name in ("peer_queue_bytes", "peer_frame_bytes", "peer_message_bytes", "peer_threads"):
        if getattr(settings, name) < 1:
            raise BrokerConfigError(f"{name}={getattr(settings, name)}: it is at least 1")
    if settings.recovery_bytes_s < 0:
        raise BrokerConfigError(f"recovery_bytes_s={settings.recovery_bytes_s}: it is at least 0")
    if not 1 <= settings.coordinator_partitions <= _MOST_COORDINATORS:
        raise BrokerConfigError(
            f"coordinator_partitions={settings.coordinator_partitions}: it is 1 to {_MOST_COORDINATORS}"
        )
    if settings.peer_message_bytes < settings.peer_frame_bytes:
        raise BrokerConfigError(
            f"peer_message_bytes={settings.peer_message_bytes} is less than peer_frame_bytes="
            f"{settings.peer_frame_bytes}",
            hint="frames have to pass: raise the one or lower the other, alike on all brokers",
        )
    if settings.peer_message_bytes > 1 << 30:
        raise BrokerConfigError(f"peer_message_bytes={settings.peer_message_bytes}: it is at most 1 GiB")
    for name in ("peer_timeout_s", "replica_lag_s"):
        if not 0 < getattr(settings, name) < 3600:
            raise BrokerConfigError(f"{name}={getattr(settings, name)}: it is more than 0, at most an hour")


def _check_tls(settings: PeerSettings, addresses: dict[int, tuple[str, int]]) -> None:
    names = ("peer_tls_certificate", "peer_tls_key", "peer_tls_ca")
    given = [name for name in names if getattr(settings, name)]
    if given and len(given) < len(names):
        lacking = ", ".join(name for name in names if name not in given)
        raise BrokerConfigError(
            f"{' and '.join(given)} set, and {lacking} not",
            hint="peers show each other certificates: all three are needed",
        )
    hosts = {host for host, _ in (*addresses.values(), settings.peer_address)}
    beyond = sorted(host for host in hosts if not is_loopback(host))
    if beyond and not given and not settings.insecure_peers_beyond_loopback:
        raise BrokerConfigError(
            f"peers at {', '.join(beyond)[:200]} are on other machines, and there is no TLS between peers",
            hint="set peer_tls_certificate, peer_tls_key and peer_tls_ca, or insecure_peers_beyond_loopback",
        )
