"""``Role``: calls to the broker that has one role in the cluster: it leads the metadata, or coordinates.

Which broker that is, others say (``NotLeaderError``); it is remembered until it says otherwise or is away. Where there
is only one broker, calls go to it as they are.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from logstore.errors import ClientClosedError, LogStoreError
from replication.errors import LeaderNotReadyError, NotLeaderError
from rpc.client.channel.connection import Connection
from rpc.client.channel.credentials import Metadata
from rpc.client.channel.settings import ConnectionSettings
from rpc.client.routing.brokers import NOBODY, Brokers
from rpc.errors import BrokerBusyError, BrokerTimeoutError, BrokerUnavailableError
from rpc.framing import parse
from rpc.servicers.service import CALL_ID

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
_TRY_S: Final = 10.0
"""How long one broker may take to answer where another one may be asked."""
_PATIENCE: Final = 6
"""How often a leader may say that it is not ready; behind that others are asked."""
_HOPS: Final = 2
"""Redirections that are followed at once; behind them there is a pause."""
Answer = TypeVar("Answer", bound=Message)


class Calls(Protocol):
    """What a ``Connection`` and a ``Role`` have in common."""

    @property
    def settings(self) -> ConnectionSettings: ...
    def call(
        self,
        path: str,
        request: Message,
        kind: type[Answer],
        *,
        timeout_s: float | None = None,
        again: bool = True,
    ) -> Answer: ...
    def send(self, path: str, data: bytes, timeout_s: float, metadata: Metadata = ()) -> bytes: ...


class Role:
    """Thread-safe. ``try_s``: how long one broker may take to answer, where another one may be asked; ``closing``: ends
    the pauses between tries, of several roles together."""

    def __init__(
        self, brokers: Brokers, *, try_s: float = _TRY_S, closing: threading.Event | None = None
    ) -> None:
        self._brokers = brokers
        self._try_s = try_s
        self._node = NOBODY
        self._closing = closing or threading.Event()

    @property
    def settings(self) -> ConnectionSettings:
        return self._brokers.settings

    @property
    def target(self) -> str:
        return self._brokers.target

    @property
    def moves(self) -> bool:
        """Whether another broker may get the role."""
        return self._brokers.only is None

    def connection(self) -> Connection:
        """To the broker that has the role, as far as is known; else to any, which will say. BrokerUnavailableError."""
        only = self._brokers.only
        if only is not None:
            return only
        node = self._node
        return self._brokers.home() if node == NOBODY else self._brokers.to(node)

    def send(self, path: str, data: bytes, timeout_s: float, metadata: Metadata = ()) -> bytes:
        """As ``Connection.send``: one try; the next one goes where its error says."""
        connection = self.connection()
        try:
            return connection.send(path, data, timeout_s, metadata)
        except LogStoreError as error:
            self.note(connection, error)
            raise

    def redirect(self, error: NotLeaderError) -> None:
        """A broker has said, beside an answer, who has the role."""
        self._node = error.leader_id

    def note(self, asked: Connection, error: LogStoreError) -> None:
        """What a broker's error says about who has the role."""
        if self._brokers.only is not None:
            return
        if isinstance(error, NotLeaderError):
            self._node = error.leader_id
            if error.leader_id == NOBODY:
                self._brokers.move_home(asked, away=False)
        elif isinstance(error, BrokerUnavailableError | BrokerTimeoutError):
            self._node = NOBODY
            self._brokers.move_home(asked)

    def call(
        self,
        path: str,
        request: Message,
        kind: type[Answer],
        *,
        timeout_s: float | None = None,
        again: bool = True,
    ) -> Answer:
        """As ``Connection.call``. Redirections are followed, with the same call id: who redirects has not acted."""
        only = self._brokers.only
        if only is not None:
            return only.call(path, request, kind, timeout_s=timeout_s, again=again)
        return self._call(path, request, kind, timeout_s, again=again)[0]

    def call_at(
        self, path: str, request: Message, kind: type[Answer], *, again: bool = True
    ) -> tuple[Answer, Connection]:
        """As ``call``; and the connection to the broker that has answered."""
        only = self._brokers.only
        if only is not None:
            return only.call(path, request, kind, again=again), only
        return self._call(path, request, kind, None, again=again)

    def _call(
        self, path: str, request: Message, kind: type[Answer], timeout_s: float | None, *, again: bool
    ) -> tuple[Answer, Connection]:
        until_s = self._brokers.until_s(self.settings.request_timeout_s if timeout_s is None else timeout_s)
        data, pauses = request.SerializeToString(), _Pauses(self._closing, until_s)
        call_id = ((CALL_ID, secrets.token_hex(8)),)
        hops = waits = 0
        while True:
            try:
                answer, connection = self._try(path, data, until_s, call_id, again=again)
                return parse(answer, kind), connection
            except NotLeaderError as error:
                hops += 1
                if error.leader_id == NOBODY or hops > _HOPS:
                    pauses.wait(error)
            except LeaderNotReadyError as error:
                waits += 1
                if waits > _PATIENCE:
                    self._node = NOBODY  # it may be cut off from the others, who have another leader
                pauses.wait(error)
            except BrokerBusyError as error:
                pauses.wait(error, error.retry_after_ms / 1000)
            except BrokerUnavailableError as error:
                if not again and not error.unreached:
                    raise
                pauses.wait(error)
            except BrokerTimeoutError as error:
                if not again:
                    raise
                pauses.wait(error)

    def _try(
        self, path: str, data: bytes, until_s: float, call_id: Metadata, *, again: bool
    ) -> tuple[bytes, Connection]:
        left_s = max(until_s - time.monotonic(), 0.001)
        connection = self.connection()
        try:
            timeout_s = min(left_s, self._try_s) if again else left_s
            return connection.send(path, data, timeout_s, call_id), connection
        except LogStoreError as error:
            self.note(connection, error)
            raise

    def close(self) -> None:
        """End the pauses between tries."""
        self._closing.set()


class _Pauses:
    """Between the tries of one call, longer each time and spread by chance. ``until_s``: of ``time.monotonic``."""

    def __init__(self, closing: threading.Event, until_s: float) -> None:
        self._closing = closing
        self._until_s = until_s
        self._next_s = _FIRST_PAUSE_S

    def wait(self, error: LogStoreError, least_s: float = 0.0) -> None:
        """Raises the error when the time is over."""
        pause_s = max(self._next_s, least_s) * random.uniform(0.5, 1.0)
        if time.monotonic() + pause_s >= self._until_s:
            raise error
        if self._closing.wait(pause_s):
            raise ClientClosedError("the client is closed") from error
        self._next_s = min(self._next_s * 2, _LONGEST_PAUSE_S)
