"""Which process of this machine listens on a port: Linux's ``/proc`` knows."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

from logstore.errors import StorageError
from rpc.security.settings import is_loopback

_LISTEN = "0A"  # a socket's state in /proc/net/tcp


def listener_of(host: str, port: int) -> int:
    """The process id. StorageError: the address is another machine's, nothing of this user's listens there, or the
    system has no ``/proc``."""
    if not is_loopback(host) and host not in _own_addresses():
        raise StorageError(f"{host}:{port} is on another machine")
    try:
        inodes = {inode for listening, inode in _listeners() if listening == port}
        for process in filter(str.isdigit, os.listdir("/proc")):
            if inodes & set(_sockets_of(process)):
                return int(process)
    except FileNotFoundError as error:
        raise StorageError(f"this system does not tell which process listens on port {port}") from error
    raise StorageError(f"no process of this user listens on port {port}")


def _own_addresses() -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return set()


def _listeners() -> Iterator[tuple[int, str]]:
    """(port, inode) of the sockets that listen."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if table.endswith("6") and not os.path.exists(table):
            continue
        with open(table, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN:
                    yield int(fields[1].rpartition(":")[2], 16), fields[9]


def _sockets_of(process: str) -> Iterator[str]:
    """Inodes of its sockets; nothing of a process that has ended, or is another user's."""
    folder = f"/proc/{process}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # it was closed meanwhile
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]
