"""``Service``: what the gRPC services share: who calls, how a method is registered, how an error is answered.

Methods take and give bytes (identity serializers), so that those which carry records splice them (``rpc/framing.py``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from logstore.errors import InvariantError, LogStoreError
from rpc.errors import AuthenticationError
from rpc.framing import parse
from rpc.handlers.caller import Caller
from rpc.wire.errors import TRAILER, status_of, to_wire

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "logstore-client-id"
REQUEST_ID: Final = "logstore-request-id"
_MAX_ID: Final = 200

Request = TypeVar("Request", bound=Message)
Unary = Callable[[bytes, Any], Awaitable[bytes]]
Stream = Callable[[AsyncIterator[bytes], Any], AsyncIterator[bytes]]


class Identify(Protocol):
    """The principal of a call, by the channel's credentials alone. AuthenticationError, SessionExpiredError."""

    def __call__(self, context: Any, metadata: Sequence[tuple[str, str | bytes]]) -> str: ...


class Observer(Protocol):
    """Told of every call that has ended: for metrics and the log of slow requests."""

    def __call__(self, method: str, caller: Caller, took_s: float, error: LogStoreError | None) -> None: ...


class Service:
    """``name``: the service's, with its package; ``methods``: filled by subclasses."""

    def __init__(self, name: str, identify: Identify, observe: Observer) -> None:
        self.name = f"logstore.v1.{name}"
        self._identify = identify
        self._observe = observe
        self._methods: dict[str, Any] = {}

    def handler(self) -> Any:
        """For ``add_generic_rpc_handlers``."""
        return grpc.method_handlers_generic_handler(self.name, self._methods)

    def unary(
        self, method: str, kind: type[Request], serve: Callable[[Caller, Request], Awaitable[Message]]
    ) -> None:
        """A method of small messages."""

        async def answer(caller: Caller, data: bytes, context: Any) -> bytes:
            del context
            return (await serve(caller, parse(data, kind))).SerializeToString()

        self.raw(method, answer)

    def raw(self, method: str, serve: Callable[[Caller, bytes, Any], Awaitable[bytes]]) -> None:
        """A method that parses and serializes for itself."""

        async def call(data: bytes, context: Any) -> bytes:
            began_s = time.perf_counter()
            caller, error = Caller(""), None
            try:
                caller = self._caller(context)
                return await serve(caller, data, context)
            except LogStoreError as refusal:
                error = refusal
            except Exception:
                logger.exception("%s/%s failed with an error that is not the store's", self.name, method)
                error = InvariantError(f"{self.name}/{method} failed; the broker's log says how")
            finally:
                self._observe(f"{self.name}/{method}", caller, time.perf_counter() - began_s, error)
            await refuse(context, error)
            raise AssertionError("unreachable: the call was aborted")

        self._methods[method] = grpc.unary_unary_rpc_method_handler(call)

    def stream(
        self, method: str, serve: Callable[[Caller, AsyncIterator[bytes]], AsyncIterator[bytes]]
    ) -> None:
        """A method with streams both ways."""

        async def call(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            try:
                caller = self._caller(context)
                async for answer in serve(caller, self._checked(caller, requests, context)):
                    self._check_still(caller, context)
                    yield answer
                return
            except LogStoreError as refusal:
                error: LogStoreError = refusal
            except Exception:
                logger.exception("%s/%s failed with an error that is not the store's", self.name, method)
                error = InvariantError(f"{self.name}/{method} failed; the broker's log says how")
            await refuse(context, error)

        self._methods[method] = grpc.stream_stream_rpc_method_handler(call)

    async def _checked(
        self, caller: Caller, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """The requests of a stream, as long as its caller is known."""
        async for request in requests:
            self._check_still(caller, context)
            yield request

    def _check_still(self, caller: Caller, context: Any) -> None:
        """A stream outlives what it began with: users are removed, sessions end. AuthenticationError,
        SessionExpiredError."""
        if self._caller(context).principal != caller.principal:
            raise AuthenticationError("the stream's caller is another one than at its beginning")

    def _caller(self, context: Any) -> Caller:
        """AuthenticationError, SessionExpiredError."""
        metadata = context.invocation_metadata() or ()
        given = {key: value for key, value in metadata if isinstance(value, str)}
        return Caller(
            principal=self._identify(context, metadata),
            client_id=given.get(CLIENT_ID, "")[:_MAX_ID],
            connection=context.peer(),
            request_id=given.get(REQUEST_ID, "")[:_MAX_ID],
        )


async def refuse(context: Any, error: LogStoreError) -> None:
    """End the call with the error."""
    trailer = ((TRAILER, to_wire(error).SerializeToString()),)
    await context.abort(status_of(error), error.message[:1000], trailer)
