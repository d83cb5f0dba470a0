"""A connection closed amid its tries, and a client whose thread that waits for news is gone, as after a fork."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from logstore.errors import LogStoreError
from rpc.client.channel.connection import Connection
from rpc.client.channel.settings import ConnectionSettings
from rpc.client.store import RemoteStore
from rpc.errors import BrokerUnavailableError
from rpc.pb import cluster_pb2
from rpc.testing.proxy import Proxy
from tests.beside import Beside
from tests.rpc.served import Served


def test_a_close_ends_the_tries_of_other_threads() -> None:
    with socket.socket() as unused:  # bound without a listener: each try is refused
        unused.bind(("127.0.0.1", 0))
        connection = Connection(
            f"127.0.0.1:{unused.getsockname()[1]}", ConnectionSettings(request_timeout_s=120)
        )
        ended: list[LogStoreError] = []

        def ask() -> None:
            try:
                connection.call(
                    "ClusterService/GetCluster",
                    cluster_pb2.GetClusterRequest(),
                    cluster_pb2.GetClusterResponse,
                )
            except LogStoreError as error:
                ended.append(error)

        with Beside(ask, stop=connection.close):
            deadline = time.monotonic() + 30
            while not connection._calls and time.monotonic() < deadline:
                time.sleep(0.01)
    assert len(ended) == 1


def test_a_client_without_its_watching_thread_asks_again(served: Served, client: RemoteStore) -> None:
    client.create_topic("t")
    metadata = client.backend._metadata
    before = metadata.revision()
    gone = threading.Thread(target=int)
    gone.start()
    gone.join()
    metadata._watch = gone
    served.store.create_topic("later")
    assert metadata.revision() > before
    assert "later" in client.list_topics()


def test_a_connection_that_hangs_is_found_out_long_before_the_calls_deadline(served: Served) -> None:
    """The setting that says so was not the one that counts: it took a minute."""
    proxy = Proxy(served.port)
    connection = Connection(f"127.0.0.1:{proxy.port}", ConnectionSettings(), keepalive_s=2.0)
    try:
        connection.send("TopicService/GetMetadata", b"", 30)
        proxy.freeze()
        with pytest.raises(BrokerUnavailableError):
            connection.send("TopicService/GetMetadata", b"", 300)
    finally:
        proxy.close()
        connection.close()


def test_pings_that_come_close_to_each_other_end_no_connection() -> None:
    """A busy machine holds some of a client's up, and hands them on together; three of those ended the connection."""
    ping, answer = b"\0\0\x08\6\0\0\0\0\0%08d", b"\0\0\x08\6\1\0\0\0\0%08d"
    with Served(":memory:") as served, socket.create_connection(("127.0.0.1", served.port), 60) as link:
        link.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")  # and no settings
        got = b""
        for number in range(10):
            link.sendall(ping % number)
            while answer % number not in got:
                assert b"too_many_pings" not in got
                data = link.recv(4096)
                assert data, f"the broker has ended the connection: {got[-100:]!r}"
                got += data
