"""Peers over real sockets: order, loss, bounds, connections that are lost and made anew, and who is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from logstore.errors import FatalError, InvariantError, LogStoreError, UnknownTopicError
from logstore.format.batch import encode_batch
from replication.errors import (
    ClusterMismatchError,
    DuplicateBrokerError,
    NotLeaderError,
    PeerUnavailableError,
    StaleBrokerError,
    UnknownPeerError,
)
from replication.raft.messages import AppendRequest
from replication.replicas.entries import entry_of
from replication.transport import METADATA_GROUP, GroupMessage, Presence
from rpc.errors import (
    BrokerBusyError,
    BrokerConfigError,
    SecretFileError,
    UnknownOperationError,
)
from rpc.framing import join
from rpc.pb import peers_pb2 as pb
from rpc.peers.handshake import Hello, refusal_of
from rpc.peers.link import DELIVER
from rpc.peers.network import GrpcPeerNetwork
from tests.beside import Beside
from tests.rpc.peers.world import PATIENCE_S, PeerWorld, note, until
from tests.rpc.security.authority import Authority

Worlds = Callable[..., PeerWorld]


def large(number: int, size: int = 100_000) -> GroupMessage:
    entry = entry_of(encode_batch([(None, bytes(size))], now_ms=1, base_offset=number, leader_epoch=1))
    return GroupMessage(METADATA_GROUP, AppendRequest(1, 1, number, 1, (entry,), 0))


def test_messages_arrive_in_order_both_ways_and_wait_together(world_of: Worlds) -> None:
    world = world_of(3)
    for node in (1, 2, 3):
        world.start(node)
    world.connected()
    world.received[2].blocked.clear()
    for number in range(500):
        for node in (1, 2, 3):
            for to in {1, 2, 3} - {node}:
                world.networks[node].send(to, note(node, number))
    until(lambda: world.received[3].numbers(1) == list(range(500)), "node 3 has all of node 1")
    assert world.received[2].frames == [], "one that is slow holds up no other"
    world.received[2].blocked.set()
    for to in (1, 2, 3):
        for node in {1, 2, 3} - {to}:
            received = world.received[to]
            until(lambda node=node, received=received: len(received.numbers(node)) == 500, "all is there")
            assert received.numbers(node) == list(range(500))
            assert received.groups() == {METADATA_GROUP}
    assert len(world.received[2].frames) < 500, "what waits goes as one frame"


def test_nothing_is_sent_to_who_is_unknown_unreachable_or_oneself(world_of: Worlds) -> None:
    world = world_of(2)
    network = world.start(1)
    for to in (1, 2, 77):
        network.send(to, note(1, 0))
    with pytest.raises(PeerUnavailableError, match="node 77 is no peer of node 1"):
        network.call(77, "ask", b"", 1.0)
    with pytest.raises(PeerUnavailableError, match="node 2 at localhost"):
        network.call(2, "ask", b"", 1.0)
    world.start(2)
    world.connected()
    network.send(2, note(1, 1))
    until(lambda: world.received[2].numbers(1) == [1], "what is sent from now on arrives")


def arrives(world: PeerWorld, number: int) -> None:
    """Send from node 1 to node 2 until it arrives: connections that are being lost lose messages."""

    def arrived() -> bool:
        world.networks[1].send(2, note(1, number))
        return number in world.received[2].numbers(1)

    until(arrived, "messages pass again")


def test_connections_that_are_cut_and_nodes_that_start_anew_are_found_again(
    world_of: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(2)
    network = world.start(1)
    world.start(2)
    world.connected()
    caplog.clear()
    assert world.proxies[2].drop()
    until(lambda: "node 2 at localhost" in caplog.text and "is not connected" in caplog.text, "it is told")
    arrives(world, 1)
    world.stop(2)
    until(lambda: not network.is_connected(2), "the end is noticed")
    network.send(2, note(1, 2))
    world.start(2)
    arrives(world, 3)
    assert 2 not in world.received[2].numbers(1), "what was sent to nobody is lost"
    network.close()
    network.close()
    network.send(2, note(1, 4))


def test_a_connection_that_is_silent_is_given_up(world_of: Worlds) -> None:
    world = world_of(2, peer_timeout_s=0.4)
    network = world.start(1)
    world.start(2)
    world.connected()
    world.proxies[2].freeze()
    until(lambda: not network.is_connected(2), "pings that are not answered end the connection")
    world.proxies[2].thaw()
    world.connected()


def test_a_peer_that_does_not_read_costs_bounded_memory_and_gets_the_oldest(world_of: Worlds) -> None:
    bound = 1 << 20
    world = world_of(2, peer_queue_bytes=bound, peer_frame_bytes=1 << 18, peer_message_bytes=1 << 20)
    network = world.start(1)
    world.start(2)
    world.connected()
    world.received[2].blocked.clear()
    link = network._links[2]
    outbox = link._outbox
    assert outbox is not None
    number = 0
    while outbox.dropped < 100:
        network.send(2, large(number))
        number += 1
        assert outbox.bytes <= bound
        assert number < 10_000
    world.received[2].blocked.set()

    def starts() -> list[int]:
        frames = list(world.received[2].frames)
        return [message.message.prev_end for _, frame in frames for message in frame]  # type: ignore[union-attr]

    until(lambda: outbox.bytes == 0 and len(starts()) == number - outbox.dropped, "what waited arrives")
    assert starts()[:10] == list(range(10))


def test_a_message_larger_than_the_limit_is_told_once_and_leaves_the_stream(
    world_of: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(2, peer_frame_bytes=1000, peer_message_bytes=200_000)
    network = world.start(1)
    world.start(2)
    world.connected()
    for _ in range(3):
        network.send(2, large(0, 300_000))
    network.send(2, large(1, 199_000))
    network.send(2, note(1, 5))
    until(lambda: world.received[2].numbers(1) == [5], "the stream goes on")
    assert caplog.text.count("is larger than peer_message_bytes") == 1
    assert sum(len(frame) for _, frame in world.received[2].frames) == 2, "one larger than a frame went alone"


def test_a_message_that_no_frame_can_hold_is_told_and_leaves_the_stream(
    world_of: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(2)
    network = world.start(1)
    world.start(2)
    world.connected()
    network.send(2, note(1, 1 << 70))
    until(lambda: "are not sent: no frame can hold" in caplog.text, "it is told")
    network.send(2, note(1, 5))
    until(lambda: world.received[2].numbers(1) == [5], "the stream goes on")


# --- calls ---


def test_calls_are_answered_or_fail_by_name(world_of: Worlds, caplog: pytest.LogCaptureFixture) -> None:
    def ask(node: int, request: bytes) -> bytes:
        if request == b"leader":
            raise NotLeaderError("not here", leader_id=3)
        if request == b"topic":
            raise UnknownTopicError("no such topic")
        if request == b"fault":
            raise RuntimeError("a programmer's mistake")
        return b"%d asked " % node + request

    world = world_of(2)
    network = world.start(1, handlers={"ask": ask})
    world.start(2, handlers={"ask": ask})
    world.connected()
    for to in (1, 2):
        assert network.call(to, "ask", b"this", 5.0) == b"1 asked this"
        with pytest.raises(NotLeaderError, match="not here") as refused:
            network.call(to, "ask", b"leader", 5.0)
        assert refused.value.leader_id == 3
        with pytest.raises(UnknownTopicError, match="no such topic"):
            network.call(to, "ask", b"topic", 5.0)
        with pytest.raises(InvariantError, match="ask failed"):
            network.call(to, "ask", b"fault", 5.0)
    assert "a programmer's mistake" in caplog.text
    assert network.call(2, "ask", bytes(1 << 20), 5.0) == b"1 asked " + bytes(1 << 20)
    with pytest.raises(UnknownOperationError, match="node 2 serves no operation 'beg'"):
        network.call(2, "beg", b"", 5.0)


def test_calls_are_bounded_in_time_and_number_and_do_not_hold_up_messages(world_of: Worlds) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def wait(node: int, request: bytes) -> bytes:
        del node
        begun.release()
        go_on.wait(PATIENCE_S)
        return request

    world = world_of(2, peer_threads=2)
    network = world.start(1)
    world.start(2, handlers={"wait": wait})
    world.connected()
    answers: list[bytes] = []
    callers = [lambda: answers.append(network.call(2, "wait", b"x", PATIENCE_S))] * 2
    with Beside(*callers, stop=go_on.set):
        for _ in callers:
            assert begun.acquire(timeout=PATIENCE_S)
        with pytest.raises(BrokerBusyError, match="node 2 answers 2 calls"):
            network.call(2, "wait", b"", 5.0)
        network.send(2, note(1, 7))
        until(lambda: world.received[2].numbers(1) == [7], "messages pass beside calls that wait")
    assert answers == [b"x", b"x"]
    go_on.clear()
    with pytest.raises(PeerUnavailableError, match="did not answer wait: DEADLINE_EXCEEDED"):
        network.call(2, "wait", b"", 0.05)
    go_on.set()


def test_a_call_under_way_fails_by_name_when_its_network_closes(world_of: Worlds) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def wait(node: int, request: bytes) -> bytes:
        del node
        begun.set()
        go_on.wait(PATIENCE_S)
        return request

    world = world_of(2)
    network = world.start(1)
    world.start(2, handlers={"wait": wait})
    world.connected()
    closer = Beside(lambda: (begun.wait(PATIENCE_S), network.close()), stop=go_on.set)
    with closer, pytest.raises(PeerUnavailableError):
        network.call(2, "wait", b"", PATIENCE_S)


# --- who is refused ---


def test_another_clusters_broker_is_refused_and_told_once(
    world_of: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(2)
    network = world.start(1, cluster_id="ours")
    world.start(2, cluster_id="theirs")
    until(lambda: caplog.text.count("node 1 belongs to cluster ours, node 2 to theirs") >= 1, "it is told")
    until(lambda: network._links[2].fault != "", "the other side learns of it")
    until(lambda: world.proxies[2].drop() >= 0, "the proxy lives")
    assert not network.is_connected(2)
    assert caplog.text.count("a peer is refused") <= 2, "once on each side"
    with pytest.raises((PeerUnavailableError, ClusterMismatchError)):
        network.call(2, "ask", b"", 5.0)


def test_a_cluster_id_that_comes_late_ends_the_streams_of_another_cluster(world_of: Worlds) -> None:
    world = world_of(3)
    for node, cluster in ((1, ""), (2, "ours"), (3, "")):
        world.start(node, cluster_id=cluster)
    world.connected()
    world.networks[3].take_cluster_id("theirs")
    until(lambda: not world.networks[3].is_connected(2), "2 and 3 belong to different clusters")
    assert world.networks[1].is_connected(2)
    world.networks[1].take_cluster_id("ours")
    until(lambda: not world.networks[3].is_connected(1), "1 has joined the cluster of 2")
    world.networks[1].take_cluster_id("ours")
    with pytest.raises(ClusterMismatchError, match="node 1 belongs to cluster ours, not to theirs"):
        world.networks[1].take_cluster_id("theirs")


def test_numbers_that_do_not_fit_are_refused(world_of: Worlds, caplog: pytest.LogCaptureFixture) -> None:
    world = world_of(2)
    port = world.start(1).port
    for hello, kind in (
        (Hello(1, 9, 1, ""), UnknownPeerError),
        (Hello(1, 2, 2, ""), UnknownPeerError),
        (Hello(1, 1, 1, ""), UnknownPeerError),
        (Hello(2, 2, 1, ""), FatalError),
    ):
        assert type(refusal(port, hello.metadata())) in (kind, *kind.__subclasses__())
    assert refusal(port, ()) is not None
    assert "node 9 is no peer of node 1" in caplog.text


class Gate:
    """A ``PeerGate`` that refuses incarnations by name. ``told``: by which errors peers refused this process."""

    def __init__(self, refused: dict[int, LogStoreError]) -> None:
        self.by_incarnation = refused
        self.told: list[str] = []
        self.ended: list[Presence] = []

    def admit_messages(self, presence: Presence) -> None:
        if presence.incarnation in self.by_incarnation:
            raise self.by_incarnation[presence.incarnation]

    def admit_call(self, presence: Presence) -> None:
        found = self.by_incarnation.get(presence.incarnation)
        if isinstance(found, StaleBrokerError):
            raise found

    def left(self, presence: Presence) -> None:
        self.ended.append(presence)

    def refused(self, error: LogStoreError) -> None:
        self.told.append(type(error).__name__)


def guarded(world: PeerWorld, node: int, incarnation: int, gate: Gate) -> None:
    """The node, as that process."""

    def prepare(network: GrpcPeerNetwork) -> None:
        network.guard(gate)
        network.present(Presence(node, incarnation, 7))

    world.start(node, handlers={"ask": lambda node, request: request}, prepare=prepare)


def test_a_process_that_its_peers_know_as_stale_is_told_so(world_of: Worlds) -> None:
    world = world_of(2)
    gates = {node: Gate({}) for node in (1, 2)}
    for node, gate in gates.items():
        guarded(world, node, 10 * node, gate)
    world.connected()
    gates[1].by_incarnation[20] = StaleBrokerError("another process is broker 2")
    world.networks[1].recheck()
    until(lambda: "StaleBrokerError" in gates[2].told, "2 is told")
    until(lambda: not world.networks[2].is_connected(1), "2 is cut off")
    until(lambda: Presence(2, 20, 7) in gates[1].ended, "1 knows that its stream is over")
    assert gates[1].told == []

    def told_by_a_call() -> bool:
        with pytest.raises(PeerUnavailableError) as refused:
            world.networks[2].call(1, "ask", b"", 5.0)
        return "does not listen to this process" in str(refused.value)

    until(told_by_a_call, "a call is refused as well")


def test_a_process_whose_messages_are_refused_may_call(world_of: Worlds) -> None:
    world = world_of(2)
    gates = {node: Gate({}) for node in (1, 2)}
    gates[1].by_incarnation[20] = DuplicateBrokerError("another process is broker 2, and it lives")
    for node, gate in gates.items():
        guarded(world, node, 10 * node, gate)
    until(lambda: "DuplicateBrokerError" in gates[2].told, "2 is told")
    answers: list[bytes] = []

    def ask() -> bool:
        with suppress(PeerUnavailableError):
            answers.append(world.networks[2].call(1, "ask", b"which", 5.0))
        return bool(answers)

    until(ask, "2 is answered")
    assert answers == [b"which"]
    assert not world.networks[2].is_connected(1)


def refusal(port: int, metadata: tuple[tuple[str, str], ...], *frames: bytes) -> object:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.stream_unary(DELIVER)(iter(frames), metadata=metadata, timeout=PATIENCE_S)
        return refused.value.code() if refusal_of(refused.value) is None else refusal_of(refused.value)


def test_a_frame_that_is_none_ends_its_stream_by_name(
    world_of: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(2)
    port = world.start(1).port
    frame = join(pb.PeerFrame(), (b"nonsense",), 8)
    found = refusal(port, Hello(1, 2, 1, "").metadata(), frame)
    assert type(found).__name__ == "MalformedRequestError"
    assert "the stream of node 2 is ended" in caplog.text
    found = refusal(
        port, Hello(1, 2, 1, "").metadata(), bytes(world.networks[1]._settings.peer_message_bytes * 2)
    )
    assert found == grpc.StatusCode.RESOURCE_EXHAUSTED, "what is larger than the limit is not read"


def test_peers_come_and_go(world_of: Worlds) -> None:
    world = world_of(3)
    for node in (1, 2, 3):
        world.start(node)
    world.connected()
    addresses = {node: ("localhost", proxy.port) for node, proxy in world.proxies.items()}
    first = world.networks[1]
    first.know_peers({node: addresses[node] for node in (1, 2)})
    until(lambda: not world.networks[3].is_connected(1), "node 3 is cut off")
    assert not first.is_connected(3)
    assert first.is_connected(2)
    first.know_peers(addresses)
    world.connected()


def test_an_address_in_use_is_told(world_of: Worlds) -> None:
    world = world_of(2)
    port = world.start(1).port
    with pytest.raises(BrokerConfigError, match="cannot listen for peers on"):
        world.start(2, peer_listen=f"127.0.0.1:{port}")


# --- TLS ---


def tls_settings(authority: Authority, name: str, *, ca: str = "") -> dict[str, str]:
    pair = authority.issue(name, "localhost", "127.0.0.1")
    return {
        "peer_tls_certificate": pair.certificate,
        "peer_tls_key": pair.key,
        "peer_tls_ca": ca or authority.file,
    }


def test_peers_with_certificates_of_their_authority_speak(world_of: Worlds, authority: Authority) -> None:
    world = world_of(2)
    for node in (1, 2):
        world.start(node, handlers={"ask": lambda _, request: request}, **tls_settings(authority, f"b{node}"))
    world.connected()
    world.networks[1].send(2, note(1, 1))
    until(lambda: world.received[2].numbers(1) == [1], "messages pass")
    assert world.networks[2].call(1, "ask", b"x", 5.0) == b"x"


def test_a_stranger_and_one_without_tls_are_refused(
    world_of: Worlds, authority: Authority, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of(4)
    network = world.start(1, **tls_settings(authority, "b1"))
    world.start(2, **tls_settings(stranger, "b2"))
    world.start(3)
    # A stranger that trusts the cluster's authority: only the listener can refuse it.
    world.start(4, **tls_settings(stranger, "b4", ca=authority.file))
    for node in (2, 3, 4):
        until(lambda node=node: network._links[node].fault != "", "node 1 is told")
        until(lambda node=node: world.networks[node]._links[1].fault != "", "the other is told")
        assert not network.is_connected(node)
        assert not world.networks[node].is_connected(1)
    assert "is not connected: UNAVAILABLE" in caplog.text


def test_files_that_cannot_be_used_are_told_at_the_start(
    world_of: Worlds, authority: Authority, tmp_path: Path
) -> None:
    world = world_of(2)
    given = {**tls_settings(authority, "b1"), "peer_tls_key": str(tmp_path / "none.key")}
    with pytest.raises(SecretFileError, match="peer_tls_key"):
        world.start(1, **given)


# --- nodes that end ---


def test_a_node_that_takes_no_connections_any_more_is_told_of_and_a_silent_one_is_not(
    world_of: Worlds,
) -> None:
    world = world_of(2, peer_timeout_s=0.4)
    network = world.start(1)
    gone: list[int] = []
    network.on_gone = gone.append
    world.start(2)
    world.connected()
    world.proxies[2].freeze()
    until(lambda: not network.is_connected(2), "silence is noticed")
    world.proxies[2].thaw()
    world.connected()
    assert gone == []
    world.stop(2)
    until(lambda: gone == [2], "the end is told of")
    world.start(2)
    world.connected()
    assert gone == [2]
