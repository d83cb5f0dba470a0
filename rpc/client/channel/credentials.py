"""``ClientCredentials``: what a client shows with each call: nothing, a token, or the session of a log-in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from logstore.errors import InvalidArgumentError
from rpc.client.channel.settings import ConnectionSettings
from rpc.errors import AuthenticationError, BrokerTimeoutError
from rpc.framing import parse
from rpc.pb import security_pb2 as pb
from rpc.security import sessions, tokens
from rpc.security.authentication import AUTHORIZATION
from rpc.security.scram import ScramClient, prepared
from rpc.security.secret_files import read_secret_line
from rpc.security.settings import is_loopback

Metadata = tuple[tuple[str, str], ...]
_RENEW: Final = 0.8
"""After this part of its time a session is renewed."""

Send = Callable[[str, bytes, float], bytes]
"""A call without credentials: path, message, seconds."""


class ClientCredentials(Protocol):
    """Thread-safe."""

    def metadata(self, send: Send, timeout_s: float) -> Metadata:
        """For the next call. Errors of the log-in, if it takes one."""
        ...

    def expired(self, shown: Metadata) -> bool:
        """The broker says that these are over: whether others can be had."""
        ...


class FixedCredentials:
    """The same for every call: a token, or nothing."""

    def __init__(self, token: str | None) -> None:
        self._metadata: Metadata = () if token is None else ((AUTHORIZATION, f"{tokens.SCHEME} {token}"),)

    def metadata(self, send: Send, timeout_s: float) -> Metadata:
        del send, timeout_s
        return self._metadata

    def expired(self, shown: Metadata) -> bool:
        del shown
        return False


class PasswordCredentials:
    """A session, begun at the first call, and anew when the connection or the session is another one."""

    def __init__(self, name: str, password: str, mechanism: str) -> None:
        self._name = name
        self._password = password
        self._mechanism = mechanism
        self._lock = threading.Lock()
        self._metadata: Metadata = ()
        self._renew_s = 0.0

    def metadata(self, send: Send, timeout_s: float) -> Metadata:
        known = self._metadata
        if known and time.monotonic() < self._renew_s:
            return known
        until_s = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            raise BrokerTimeoutError(
                f"the log-in of {self._name!r} by another thread has not come to its end"
            )
        try:
            if not self._metadata or time.monotonic() >= self._renew_s:
                self._metadata = ()
                self._metadata = self._log_in(send, max(until_s - time.monotonic(), 0.001))
            return self._metadata
        finally:
            self._lock.release()

    def expired(self, shown: Metadata) -> bool:
        if (
            shown == self._metadata
        ):  # a session that another thread begins just now may be lost, and begun again
            self._metadata = ()
        return True

    def _log_in(self, send: Send, timeout_s: float) -> Metadata:
        until_s = time.monotonic() + timeout_s
        scram = ScramClient(self._name, self._password, self._mechanism)
        start = pb.StartLoginRequest(mechanism=self._mechanism, client_first=scram.first())
        begun = parse(
            send("LoginService/StartLogin", start.SerializeToString(), timeout_s), pb.StartLoginResponse
        )
        finish = pb.FinishLoginRequest(login_id=begun.login_id, client_final=scram.final(begun.server_first))
        left_s = max(until_s - time.monotonic(), 0.001)
        answer = parse(
            send("LoginService/FinishLogin", finish.SerializeToString(), left_s), pb.FinishLoginResponse
        )
        scram.verify(answer.server_final)
        if not answer.session.isascii() or not answer.session.isprintable():
            raise AuthenticationError("the broker's session is none")
        self._renew_s = time.monotonic() + answer.lifetime_ms / 1000 * _RENEW
        return ((AUTHORIZATION, f"{sessions.SCHEME} {answer.session}"),)


def credentials_of(settings: ConnectionSettings, addresses: list[str]) -> ClientCredentials:
    """As the settings say. InvalidArgumentError, SecretFileError."""
    if settings.user is None:
        token = settings.token
        if settings.token_file is not None:
            token = read_secret_line(settings.token_file, "token_file")
        return FixedCredentials(token)
    if not settings.speaks_tls and not all(is_loopback(_host(one)) for one in addresses):
        raise InvalidArgumentError(
            "a password is not proved over the network without TLS", hint="set tls=True or tls_ca"
        )
    password = settings.password
    if settings.password_file is not None:
        password = read_secret_line(settings.password_file, "password_file")
    try:
        prepared(password or "")
    except ValueError as error:
        raise InvalidArgumentError(f"the password of {settings.user!r} cannot be: {error}") from None
    return PasswordCredentials(settings.user, password or "", settings.mechanism)


def _host(address: str) -> str:
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")
