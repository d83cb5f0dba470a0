"""Addresses as texts: HOST:PORT, with IPv6 in brackets."""

from __future__ import annotations

from rpc.errors import BrokerConfigError


def host_and_port(text: str, name: str) -> tuple[str, int]:
    """Of the setting ``name``. BrokerConfigError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise BrokerConfigError(f"{name}={text!r} is not HOST:PORT")
    if int(port) > 65535:
        raise BrokerConfigError(f"{name}={text!r}: a port is 0 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
