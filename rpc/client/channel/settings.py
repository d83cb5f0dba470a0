"""``ConnectionSettings``: how a client reaches brokers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from logstore.errors import InvalidArgumentError
from rpc.security.scram import DEFAULT_MECHANISM, MECHANISMS

MAX_RACK: Final = 249
"""Characters of a rack's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionSettings:
    """Times in seconds, sizes in bytes."""

    client_id: str = "logstore-python"
    """What the client calls itself: for quotas and for the broker's logs."""
    rack: str = ""
    """The rack or zone that the client is in: it reads from an in-sync replica of that rack where there is one, up to
    what that one knows to be committed. "": from leaders."""
    request_timeout_s: float = 30.0
    """How long a call may take, beside what it is asked to wait for; retries are within."""
    connect_timeout_s: float = 30.0
    """How long ``connect`` waits for a first answer of a broker."""
    max_message_bytes: int = 17 << 20
    """Largest message in either direction."""
    tls: bool = False
    """Speak TLS; any of the settings ``tls_...`` implies it."""
    tls_ca: str | None = None
    """PEM file of the authorities that may vouch for brokers; None: those that gRPC brings along."""
    tls_certificate: str | None = None
    """PEM file of the client's own certificate and the chain behind it, for mutual TLS."""
    tls_key: str | None = None
    """PEM file of its private key; only its owner may read it."""
    tls_server_name: str | None = None
    """The name that the broker's certificate must have, where it is not the host that is connected to."""
    token: str | None = field(default=None, repr=False)
    """A token (`logstore user add-token`); over TLS alone."""
    token_file: str | None = None
    """File of one line with the token, instead of ``token``."""
    user: str | None = None
    """Log in by password, which is proved and never sent (SCRAM); over TLS, or to this machine."""
    password: str | None = field(default=None, repr=False)
    """The user's password."""
    password_file: str | None = None
    """File of one line with the password, instead of ``password``."""
    mechanism: str = DEFAULT_MECHANISM
    """SCRAM-SHA-256 or SCRAM-SHA-512."""

    def __post_init__(self) -> None:
        """InvalidArgumentError names the setting."""
        for name in ("request_timeout_s", "connect_timeout_s"):
            if not getattr(self, name) > 0:
                raise InvalidArgumentError(f"{name}={getattr(self, name)!r}", hint="it is more than 0")
        if self.max_message_bytes < 1 << 16:
            raise InvalidArgumentError(
                f"max_message_bytes={self.max_message_bytes!r}", hint="it is at least 65536"
            )
        if not self.client_id.isprintable() or not self.client_id.isascii() or len(self.client_id) > 200:
            raise InvalidArgumentError(
                f"client_id={self.client_id[:40]!r}", hint="up to 200 printable ASCII characters"
            )
        if len(self.rack) > MAX_RACK or not self.rack.isprintable():
            raise InvalidArgumentError(
                f"rack={self.rack[:40]!r}", hint=f"up to {MAX_RACK} printable characters"
            )
        self._check_security()

    def _check_security(self) -> None:
        for name, needs in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
            if getattr(self, name) is not None and getattr(self, needs) is None:
                raise InvalidArgumentError(f"{name} is given, and {needs} is not", hint=f"give {needs}, too")
        if self.token is not None and self.token_file is not None:
            raise InvalidArgumentError("both token and token_file are given", hint="give one of them")
        if (self.user is None) != (self.password is None and self.password_file is None):
            raise InvalidArgumentError("user and password are given together, or not at all")
        if self.password is not None and self.password_file is not None:
            raise InvalidArgumentError("both password and password_file are given", hint="give one of them")
        if self.user is not None and (self.token is not None or self.token_file is not None):
            raise InvalidArgumentError("both a user and a token are given", hint="give one of them")
        if self.mechanism not in MECHANISMS:
            raise InvalidArgumentError(
                f"mechanism={self.mechanism!r}", hint=f"it is {' or '.join(MECHANISMS)}"
            )
        if self.token is not None and not _is_credential(self.token):
            raise InvalidArgumentError("the token is empty, or has characters that no token has")
        if (self.token is not None or self.token_file is not None) and not self.speaks_tls:
            raise InvalidArgumentError(
                "a token would go over the network in the clear",
                hint="set tls=True or tls_ca, or use a password",
            )

    @property
    def speaks_tls(self) -> bool:
        given = (self.tls_ca, self.tls_certificate, self.tls_server_name)
        return self.tls or any(one is not None for one in given)


def _is_credential(text: str) -> bool:
    return 0 < len(text) <= 4000 and text.isascii() and text.isprintable() and " " not in text


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
