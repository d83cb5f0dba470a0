"""``Connection``: calls to brokers: one channel a process, deadlines on everything, and errors by their names.

A channel is made when it is first needed and belongs to the process that made it: after ``os.fork()`` the child makes
its own. gRPC connects again by itself, with a growing pause that is spread by chance.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from logstore.api.cancellation import CancelHandle
from logstore.errors import ClientClosedError, LogStoreError
from rpc.client.channel.credentials import FixedCredentials, Metadata, credentials_of
from rpc.client.channel.settings import ConnectionSettings, targets
from rpc.client.channel.tls import ClientTls
from rpc.errors import (
    AccessDeniedError,
    AuthenticationError,
    BrokerBusyError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ContractMismatchError,
    MessageTooLargeError,
    SessionExpiredError,
    TlsHandshakeError,
    UnsupportedFeatureError,
)
from rpc.framing import parse
from rpc.pb import common_pb2
from rpc.servicers.service import CALL_ID, CLIENT_ID, REQUEST_ID
from rpc.wire.errors import TRAILER, from_wire

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
_KEEPALIVE_S: Final = 20.0
_LOG_INS: Final = 4
"""Tries of a call whose session the broker does not know: the connection may be another one at each."""
Answer = TypeVar("Answer", bound=Message)
Sent = TypeVar("Sent", bytes, bytes | None)


class CallLimits:
    """How long the calls of each thread may take, all in all."""

    def __init__(self) -> None:
        self._limits = threading.local()

    def until_s(self, timeout_s: float) -> float:
        """When a call of the calling thread that may take ``timeout_s`` has to end, of ``time.monotonic``."""
        until_s: float = getattr(self._limits, "until_s", math.inf)
        return min(time.monotonic() + timeout_s, until_s)

    @contextmanager
    def limit(self, timeout_s: float) -> Iterator[None]:
        """In the block the calling thread's calls of small messages take no longer than this."""
        before_s: float = getattr(self._limits, "until_s", math.inf)
        self._limits.until_s = min(before_s, time.monotonic() + timeout_s)
        try:
            yield
        finally:
            self._limits.until_s = before_s


class StartedCall:
    """A call under way, whose answer is waited for later."""

    def __init__(
        self, connection: Connection, path: str, request_id: str, call: Any, shown: Metadata
    ) -> None:
        self._connection = connection
        self._path = path
        self._request_id = request_id
        self._call = call
        self._shown = shown

    def result(self, timeout_s: float | None = None) -> bytes:
        """The answer. Errors as of ``Connection.send``; grpc.FutureTimeoutError: it is still under way;
        grpc.FutureCancelledError."""
        try:
            answer: bytes = self._call.result(timeout_s)
        except grpc.RpcError as error:
            named = self._connection.error_of(error, self._path, self._request_id)
            if isinstance(named, SessionExpiredError):
                self._connection.note_expired(self._shown)
            raise named from error
        return answer

    def done(self) -> bool:
        return bool(self._call.done())

    def cancel(self) -> None:
        self._call.cancel()

    def add_done_callback(self, tell: Callable[[Any], object]) -> None:
        """``tell`` is called, from any thread, once the call is over."""
        self._call.add_done_callback(tell)


class Connection:
    """Thread-safe. ``target``: ``"host:port[,host:port...]"``; ``keepalive_s``: how often an idle connection is looked
    at. InvalidArgumentError."""

    def __init__(
        self,
        target: str,
        settings: ConnectionSettings,
        limits: CallLimits | None = None,
        *,
        keepalive_s: float = _KEEPALIVE_S,
    ) -> None:
        self.targets = targets(target)
        self.target = ",".join(self.targets)
        self.settings = settings
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._pid = 0
        self._calls: dict[str, Any] = {}
        self._closing = threading.Event()
        self._limits = limits or CallLimits()
        self._keepalive_ms = int(keepalive_s * 1000)
        self._tls = _tls_of(settings)
        self._metadata = ((CLIENT_ID, settings.client_id),)
        self._credentials = credentials_of(settings, self.targets)
        self.closed = False

    # --- the channel ---

    def method(self, path: str, *, stream: bool = False) -> Any:
        """The callable of a unary method, or of one with streams both ways, which takes and gives bytes."""
        with self._lock:
            if self.closed:
                raise ClientClosedError(f"the connection to {self.target} is closed")
            channel = self._channel
            if channel is None or self._pid != os.getpid():
                # The channel of a parent process is not touched: its threads do not exist here.
                channel = self._channel = self._connect()
                self._pid, self._calls = os.getpid(), {}
            found = self._calls.get(path)
            if found is None:
                make = channel.stream_stream if stream else channel.unary_unary
                found = self._calls[path] = make(f"/logstore.v1.{path}")
            return found

    def _connect(self) -> grpc.Channel:
        limit = self.settings.max_message_bytes
        addresses = self.targets
        name = addresses[0] if len(addresses) == 1 else f"ipv4:{self.target}"
        options: list[tuple[str, str | int]] = [
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.keepalive_time_ms", self._keepalive_ms),
            ("grpc.keepalive_timeout_ms", self._keepalive_ms // 2),
            # The one that counts: without it a connection that hangs is found out after a minute.
            ("grpc.http2.ping_timeout_ms", self._keepalive_ms // 2),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if self._tls is None:
            return grpc.insecure_channel(name, options)
        return self._tls.channel(name, options)

    def close(self) -> None:
        """End the calls under way, and the pauses between their tries. Safe to call again."""
        self._closing.set()
        with self._lock:
            self.closed = True
            channel, self._channel = self._channel, None
            mine = self._pid == os.getpid()
        if channel is not None and mine:
            channel.close()

    # --- calls ---

    def limit(self, timeout_s: float) -> AbstractContextManager[None]:
        """See ``CallLimits.limit``."""
        return self._limits.limit(timeout_s)

    def send(self, path: str, data: bytes, timeout_s: float, metadata: Metadata = ()) -> bytes:
        """One try. Errors of the broker by their names; ``BrokerUnavailableError`` and ``BrokerTimeoutError`` leave
        open whether the broker has acted."""
        return self._with_credentials(
            timeout_s, lambda shown, left_s: self._send(path, data, left_s, (*metadata, *shown))
        )

    def send_unless_cancelled(
        self, path: str, data: bytes, timeout_s: float, cancel: CancelHandle
    ) -> bytes | None:
        """As ``send``; None: the wait for the answer was cancelled."""

        def try_once(shown: Metadata, left_s: float) -> bytes | None:
            request_id, call = self._begin(path, data, left_s, shown)
            cancel.on_cancel(call.cancel)
            try:
                answer: bytes = call.result()
                return answer
            except grpc.FutureCancelledError:
                return None
            except grpc.RpcError as error:
                if cancel.cancelled and error.code() is grpc.StatusCode.CANCELLED:
                    return None
                raise self.error_of(error, path, request_id) from error
            finally:
                cancel.on_cancel(None)

        return self._with_credentials(timeout_s, try_once)

    def _with_credentials(self, timeout_s: float, try_once: Callable[[Metadata, float], Sent]) -> Sent:
        """A try of a call; more of them where the broker does not know the session: it has not acted then."""
        until_s, tries = time.monotonic() + timeout_s, _LOG_INS
        while True:
            shown: Metadata = ()
            try:
                shown = self._credentials.metadata(self._send_bare, max(until_s - time.monotonic(), 0.001))
                return try_once(shown, max(until_s - time.monotonic(), 0.001))
            except SessionExpiredError:
                tries -= 1
                if not tries or not self._credentials.expired(shown):
                    raise

    def _send_bare(self, path: str, data: bytes, timeout_s: float) -> bytes:
        return self._send(path, data, timeout_s, ())

    def _send(self, path: str, data: bytes, timeout_s: float, shown: Metadata) -> bytes:
        request_id, metadata = self._stamped(shown)
        try:
            answer: bytes = self.method(path)(data, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            raise self.error_of(error, path, request_id) from error
        except ValueError as error:  # gRPC's word for a channel that another thread has closed
            raise ClientClosedError(f"the connection to {self.target} is closed") from error
        return answer

    def _stamped(self, shown: Metadata) -> tuple[str, Metadata]:
        """A request id, and the metadata of a call with it."""
        request_id = secrets.token_hex(8)
        return request_id, (*self._metadata, (REQUEST_ID, request_id), *shown)

    def _begin(self, path: str, data: bytes, timeout_s: float, shown: Metadata) -> tuple[str, Any]:
        """The call's request id, and the call as a ``grpc.Future``."""
        request_id, metadata = self._stamped(shown)
        try:
            return request_id, self.method(path).future(data, timeout=timeout_s, metadata=metadata)
        except ValueError as error:
            raise ClientClosedError(f"the connection to {self.target} is closed") from error

    def begin(self, path: str, data: bytes, timeout_s: float) -> Any:
        """One try whose answer is waited for later: a ``grpc.Future``."""
        return self._begin(path, data, timeout_s, self._credentials.metadata(self._send_bare, timeout_s))[1]

    def start(self, path: str, data: bytes, timeout_s: float, metadata: Metadata = ()) -> StartedCall:
        """As ``begin``, with errors by their names."""
        shown = self._credentials.metadata(self._send_bare, timeout_s)
        request_id, call = self._begin(path, data, timeout_s, (*metadata, *shown))
        return StartedCall(self, path, request_id, call, shown)

    def note_expired(self, shown: Metadata) -> None:
        """The broker says that these credentials are over: the next call shows others, if there are any."""
        self._credentials.expired(shown)

    @property
    def shows_fixed_credentials(self) -> bool:
        """Whether they are the same for every call, and no session, which ends."""
        return isinstance(self._credentials, FixedCredentials)

    def open_stream(self, path: str, requests: Iterator[bytes]) -> tuple[str, Any]:
        """A call with streams both ways: its request id, and the call, which gives the answers. Without a deadline: the
        caller watches over it."""
        shown = self._credentials.metadata(self._send_bare, self.settings.request_timeout_s)
        request_id, metadata = self._stamped(shown)
        try:
            return request_id, self.method(path, stream=True)(requests, metadata=metadata)
        except ValueError as error:
            raise ClientClosedError(f"the connection to {self.target} is closed") from error

    def call(
        self,
        path: str,
        request: Message,
        kind: type[Answer],
        *,
        timeout_s: float | None = None,
        again: bool = True,
    ) -> Answer:
        """The answer to a call of small messages. ``again``: it may be tried again where it is not known whether
        the broker has acted; else only where the broker was never reached, or said that it is busy."""
        left_s = self.settings.request_timeout_s if timeout_s is None else timeout_s
        until_s = self._limits.until_s(left_s)
        data, pause_s = request.SerializeToString(), _FIRST_PAUSE_S
        call_id = ((CALL_ID, secrets.token_hex(8)),)  # of all tries: only one of them takes effect
        while True:
            try:
                left_s = max(until_s - time.monotonic(), 0.001)
                return parse(self.send(path, data, left_s, call_id), kind)
            except BrokerBusyError as error:
                pause_s = max(pause_s, error.retry_after_ms / 1000)
                self._pause(until_s, pause_s, error)
            except BrokerUnavailableError as error:
                if not again and not error.unreached:
                    raise
                self._pause(until_s, pause_s, error)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def wait_out(self, error: BrokerBusyError, until_s: float) -> None:
        """Wait as the broker said, for a second at most: what the wait is for may be cancelled meanwhile. Raises the
        error when the time (of ``time.monotonic``) is over."""
        self._pause(until_s, min(max(error.retry_after_ms / 1000, _FIRST_PAUSE_S), _LONGEST_PAUSE_S), error)

    def _pause(self, until_s: float, pause_s: float, error: LogStoreError) -> None:
        """Wait a little, spread by chance; raises the error when the time is over."""
        pause_s *= random.uniform(0.5, 1.0)
        if self.closed or time.monotonic() + pause_s >= until_s:
            raise error
        self._closing.wait(pause_s)

    def error_of(self, error: grpc.RpcError, path: str, request_id: str) -> LogStoreError:
        """The named error of a failed call, with the id that the broker's logs have for it."""
        named = self._named(error, path)
        named.request_id = request_id
        named.add_note(f"request id: {request_id}")
        return named

    def is_named(self, error: grpc.RpcError) -> bool:
        """Whether the error is one that the broker has answered, and none of the connection."""
        return any(key == TRAILER for key, _ in _trailers(error))

    def _named(self, error: grpc.RpcError, path: str) -> LogStoreError:
        for key, value in _trailers(error):
            if key == TRAILER:
                return from_wire(parse(value, common_pb2.Error))
        code, details = error.code(), (error.details() or "")[:500]
        where = f"{path} at {self.target}: {details}"
        if self.closed:
            return ClientClosedError(f"the connection to {self.target} is closed")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return BrokerTimeoutError(where)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            if "message" in details.lower():
                return MessageTooLargeError(where)
            return BrokerBusyError(where, retry_after_ms=100)
        if code is grpc.StatusCode.UNAVAILABLE and any(word in details.lower() for word in _HANDSHAKE):
            return TlsHandshakeError(where)
        made = _BY_CODE.get(code)
        if made is not None:
            return made(where)
        return BrokerUnavailableError(where, unreached="failed to connect" in details.lower())


_HANDSHAKE: Final = ("handshake failed", "verification check failed", "security handshaker")
"""Words of gRPC's about a connection that was reached and is not secure; one that breaks has others."""

_BY_CODE: Final[dict[grpc.StatusCode, Callable[[str], LogStoreError]]] = {
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedFeatureError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: AccessDeniedError,
    grpc.StatusCode.INTERNAL: ContractMismatchError,
}


def _tls_of(settings: ConnectionSettings) -> ClientTls | None:
    if not settings.speaks_tls:
        return None
    return ClientTls(
        ca=settings.tls_ca,
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        server_name=settings.tls_server_name,
    )


def _trailers(error: grpc.RpcError) -> list[tuple[str, bytes]]:
    found: Any = error.trailing_metadata() or ()
    return [(key, value) for key, value in found if isinstance(value, bytes)]
