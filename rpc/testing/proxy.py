"""``Proxy``: a port in front of a broker, whose connections a test cuts or lets hang."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Forwards connections of a loopback port to ``target``. ``frozen``: nothing is forwarded either way, and nobody
    is told: connections are half open."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._closed = False
        threading.Thread(target=self._accept, name="logstore-proxy", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
                for one in (near, far):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                near.close()  # the broker is away: the client is refused
                continue
            with self._lock:
                self._sockets |= {near, far}  # from here on ``drop`` may close them at any time
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):  # either end is gone: so is the connection
            while data := source.recv(1 << 16):
                self._flowing.wait()
                target.sendall(data)
        with self._lock:
            self._sockets -= {source, target}
        for one in (source, target):
            _cut(one)

    def drop(self) -> int:
        """Cut every connection; how many."""
        with self._lock:
            found = list(self._sockets)
        for one in found:
            _cut(one)
        return len(found) // 2

    def freeze(self) -> None:
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.thaw()
        self.drop()


def _cut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
