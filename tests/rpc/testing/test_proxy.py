"""The proxy in front of a broker goes on accepting, whatever becomes of single connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from rpc.testing.proxy import Proxy
from tests.beside import Beside


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that answers each byte with itself."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(one: socket.socket) -> None:
        with one:
            try:
                while data := one.recv(100):
                    one.sendall(data)
            except OSError:
                return  # cut

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=answer, args=(one,), daemon=True).start()

    def close() -> None:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()

    with Beside(serve, stop=close):
        yield listener.getsockname()[1]


def echoes(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
        one.sendall(b"x")
        return one.recv(1) == b"x"


def test_connections_are_cut_while_others_are_made(echo: int) -> None:
    """A connection may be cut at any moment after it was accepted."""
    proxy = Proxy(echo)
    stop = threading.Event()

    def cut() -> None:
        while not stop.is_set():
            proxy.drop()

    with Beside(cut, stop=stop.set):
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as one:
                try:
                    one.sendall(b"x")
                except OSError:
                    continue  # cut already
    assert echoes(proxy.port)
    proxy.close()


def test_a_target_that_is_away_is_refused_and_comes_back(echo: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = unused.getsockname()[1]
    proxy = Proxy(closed)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as one:
        assert one.recv(1) == b""
    proxy.target = echo
    assert echoes(proxy.port)
    proxy.close()
