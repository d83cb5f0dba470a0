"""``Sessions``: what a log-in by password leads to: ``authorization: Session SESSION``, for one connection and a time.

A session that is read by others serves them nothing: calls on another connection are refused. It ends with its user,
and with the user's password.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rpc.errors import AuthenticationError, BrokerBusyError, SessionExpiredError
from rpc.security.authentication import CallFacts
from rpc.security.document import Kept
from rpc.security.peers import is_local
from rpc.security.scram import Verifier
from rpc.security.users import Users, digest_of

SCHEME: Final = "Session"
_MOST: Final = 100_000
_MOST_OF_USER: Final = 1_000
_ID_BYTES, _SECRET_BYTES = 8, 32


@dataclass(frozen=True, slots=True)
class Session:
    """``until_s``: of the monotonic clock; ``verifier``: of the password that it was begun with."""

    name: str
    mechanism: str
    verifier: Verifier = field(repr=False)
    connection: str
    until_s: float
    digest: bytes = field(repr=False)


class Sessions:
    """``Credentials``. Of the event loop alone. ``lifetime_s``: of a session."""

    def __init__(
        self,
        users: Kept[Users],
        *,
        secure: bool,
        lifetime_s: float,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._users = users
        self._secure = secure
        self.lifetime_s = lifetime_s
        self._monotonic_s = monotonic_s
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # by age, and so by their ends
        self._by_user: dict[str, OrderedDict[str, None]] = {}

    def begin(self, name: str, mechanism: str, verifier: Verifier, connection: str) -> str:
        """The session. BrokerBusyError where there are too many; a user's oldest makes room for the newest."""
        self._forget_old()
        mine = self._by_user.setdefault(name, OrderedDict())
        if len(mine) >= _MOST_OF_USER:
            self._forget(next(iter(mine)))
        if len(self._sessions) >= _MOST:
            raise BrokerBusyError(f"{_MOST} sessions are open", retry_after_ms=1000)
        session_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        until_s = self._monotonic_s() + self.lifetime_s
        self._sessions[session_id] = Session(
            name, mechanism, verifier, connection, until_s, digest_of(secret)
        )
        self._by_user.setdefault(name, OrderedDict())[session_id] = None
        return f"{session_id}.{secret}"

    def principal(self, secret: str, facts: CallFacts) -> str:
        connection = facts.peer()
        if not self._secure and not is_local(connection):
            raise AuthenticationError("a session was sent over a connection without TLS")
        session_id, _, rest = secret.partition(".")
        found = self._sessions.get(session_id)
        if (
            found is None
            or not hmac.compare_digest(digest_of(rest), found.digest)
            or found.connection != connection
            or self._monotonic_s() >= found.until_s
        ):
            raise SessionExpiredError("the session is over, or belongs to another connection")
        user = self._users.current().by_name.get(found.name)
        if user is None or user.verifiers.get(found.mechanism) != found.verifier:
            self._forget(session_id)
            raise AuthenticationError(f"User:{found.name} was removed, or has another password now")
        return user.principal

    def _forget_old(self) -> None:
        now_s = self._monotonic_s()
        while self._sessions:
            session_id, oldest = next(iter(self._sessions.items()))
            if oldest.until_s > now_s:
                return
            self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        name = self._sessions.pop(session_id).name
        mine = self._by_user[name]
        del mine[session_id]
        if not mine:
            del self._by_user[name]
