"""``LoginHandler``: log-ins by password: two calls on one connection, which lead to a session."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

from rpc.errors import AuthenticationError, BrokerBusyError, SessionExpiredError
from rpc.security.audit import AuditLog
from rpc.security.document import Kept
from rpc.security.peers import is_local
from rpc.security.scram import MECHANISMS, FirstMessage, ScramServer, Verifier, decoy_verifier
from rpc.security.sessions import Sessions
from rpc.security.users import Users

_LASTS_S: Final = 10.0
_MOST_OF_CONNECTION: Final = 8
_FAILED_PAUSE_S: Final = 0.1
"""How long a wrong proof waits for its answer: guesses take their time."""


@dataclass(frozen=True, slots=True)
class _Login:
    name: str
    mechanism: str
    verifier: Verifier
    server: ScramServer
    connection: str
    until_s: float


class LoginHandler:
    """Of the event loop alone. ``most``: log-ins under way at once; what is not finished in time makes room."""

    def __init__(
        self, users: Kept[Users], sessions: Sessions, audit: AuditLog, *, secure: bool, most: int
    ) -> None:
        self._users = users
        self._sessions = sessions
        self._audit = audit
        self._secure = secure
        self._most = most
        self._logins: OrderedDict[str, _Login] = OrderedDict()
        self._of_connection: Counter[str] = Counter()

    def start(self, connection: str, mechanism: str, client_first: bytes) -> tuple[str, bytes]:
        """The log-in's id, and the challenge, which tells nothing of whether there is such a user.
        AuthenticationError, BrokerBusyError."""
        if not self._secure and not is_local(connection):
            raise AuthenticationError("a password is not proved over a connection without TLS")
        if mechanism not in MECHANISMS:
            raise AuthenticationError(
                "the mechanism of the log-in is not known", hint=f"it is {' or '.join(MECHANISMS)}"
            )
        self._forget_old()
        if len(self._logins) >= self._most or self._of_connection[connection] >= _MOST_OF_CONNECTION:
            raise BrokerBusyError("too many log-ins are under way", retry_after_ms=500)
        first = FirstMessage.parse(client_first)
        users = self._users.current()
        decoy = decoy_verifier(
            users.decoy_key, first.name, mechanism
        )  # made for known users, too: it takes time
        user = users.by_name.get(first.name)
        verifier = None if user is None else user.verifiers.get(mechanism)
        server = ScramServer(first, verifier or decoy, mechanism)
        login_id = secrets.token_hex(16)
        self._logins[login_id] = _Login(
            first.name,
            mechanism,
            verifier or decoy,
            server,
            connection,
            asyncio.get_running_loop().time() + _LASTS_S,
        )
        self._of_connection[connection] += 1
        return login_id, server.challenge

    async def finish(self, connection: str, login_id: str, client_final: bytes) -> tuple[bytes, str, float]:
        """The broker's proof, the session, and its seconds. AuthenticationError, SessionExpiredError."""
        self._forget_old()
        login = self._logins.get(login_id)
        if login is None or login.connection != connection:
            raise SessionExpiredError(
                "there is no such log-in on this connection: it took too long, or is over"
            )
        self._forget(login_id)
        try:
            answer = login.server.answer(client_final)  # none fits a decoy
        except AuthenticationError as error:
            self._audit.refused(connection, f"log-in as {login.name[:200]!r}: {error.message}")
            await asyncio.sleep(_FAILED_PAUSE_S)
            raise AuthenticationError("the user or the password is wrong") from error
        session = self._sessions.begin(login.name, login.mechanism, login.verifier, connection)
        self._audit.logged_in(f"User:{login.name}", connection)
        return answer, session, self._sessions.lifetime_s

    def _forget_old(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while self._logins:
            login_id, oldest = next(iter(self._logins.items()))
            if oldest.until_s > now_s:
                return
            self._forget(login_id)

    def _forget(self, login_id: str) -> None:
        connection = self._logins.pop(login_id).connection
        self._of_connection[connection] -= 1
        if not self._of_connection[connection]:
            del self._of_connection[connection]
