"""Where a connection comes from, as gRPC names it: ``ipv4:127.0.0.1:50000``, ``ipv6:[::1]:50000``, ``unix:...``."""

from __future__ import annotations

from urllib.parse import unquote

from rpc.security.settings import is_loopback


def is_local(peer: str) -> bool:
    """Whether the connection cannot leave this machine."""
    kind, _, rest = peer.partition(":")
    if kind in ("unix", "unix-abstract"):
        return True
    host = unquote(rest).rpartition(":")[0].removeprefix("[").removesuffix("]")
    return kind in ("ipv4", "ipv6") and is_loopback(host.removeprefix("::ffff:"))
