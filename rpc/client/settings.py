"""``ConnectionSettings``: how a client reaches brokers."""

from __future__ import annotations

from dataclasses import dataclass

from logstore.errors import InvalidArgumentError


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionSettings:
    """Times in seconds, sizes in bytes."""

    client_id: str = "logstore-python"
    """What the client calls itself: for quotas and for the broker's logs."""
    request_timeout_s: float = 30.0
    """How long a call may take, beside what it is asked to wait for; retries are within."""
    max_message_bytes: int = 17 << 20
    """Largest message in either direction."""

    def __post_init__(self) -> None:
        """InvalidArgumentError names the setting."""
        if not self.request_timeout_s > 0:
            raise InvalidArgumentError(
                f"request_timeout_s={self.request_timeout_s!r}", hint="it is more than 0"
            )
        if self.max_message_bytes < 1 << 16:
            raise InvalidArgumentError(
                f"max_message_bytes={self.max_message_bytes!r}", hint="it is at least 65536"
            )
        if not self.client_id.isprintable() or not self.client_id.isascii() or len(self.client_id) > 200:
            raise InvalidArgumentError(
                f"client_id={self.client_id[:40]!r}", hint="up to 200 printable ASCII characters"
            )


def targets(text: str) -> list[str]:
    """The addresses of ``"host:port[,host:port...]"``. InvalidArgumentError."""
    found = [part.strip() for part in text.split(",") if part.strip()] if isinstance(text, str) else []
    for one in found:
        host, colon, port = one.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
            raise InvalidArgumentError(f"{one!r} is not HOST:PORT", hint='e.g. "localhost:9095"')
    if not found:
        raise InvalidArgumentError(f"{text!r} names no broker", hint='e.g. "localhost:9095"')
    return found
