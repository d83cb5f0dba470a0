"""``Service``: what the gRPC services share: who calls, how a method is registered, how an error is answered.

Methods take and give bytes (identity serializers), so that those which carry records splice them (``rpc/framing.py``).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from logstore.errors import InvariantError, LogStoreError
from rpc.errors import AuthenticationError, MalformedRequestError
from rpc.framing import parse
from rpc.handlers.call import Call, begin
from rpc.handlers.caller import Caller
from rpc.handlers.waits import Waits
from rpc.servicers.repetitions import CallKey, Repetitions
from rpc.wire.errors import TRAILER, status_of, to_wire

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "logstore-client-id"
REQUEST_ID: Final = "logstore-request-id"
CALL_ID: Final = "logstore-call-id"
"""The same in every repetition of a call, and in no other call; see ``Repetitions``."""
_MAX_ID: Final = 200

Request = TypeVar("Request", bound=Message)
Metadata = Sequence[tuple[str, str | bytes]]


class Identify(Protocol):
    """The principal of a call, by the channel's credentials alone. AuthenticationError, SessionExpiredError."""

    def __call__(self, context: Any, metadata: Metadata) -> str: ...


class Observer(Protocol):
    """Told of calls, in the event loop, by whose task works for them: for metrics, logs and traces."""

    def began(self, call: Call, metadata: Metadata) -> None:
        """The caller is known, or the error by which it was refused."""
        ...

    def received(self, call: Call, size: int) -> None: ...
    def sent(self, call: Call, size: int) -> None: ...
    def ended(self, call: Call) -> None: ...


class Service:
    """``name``: the service's, with its package; ``methods``: filled by subclasses."""

    def __init__(self, name: str, identify: Identify, observe: Observer) -> None:
        self.name = f"logstore.v1.{name}"
        self._identify = identify
        self._observe = observe
        self._methods: dict[str, Any] = {}
        self.repetitions = Repetitions()

    def handler(self) -> Any:
        """For ``add_generic_rpc_handlers``."""
        return grpc.method_handlers_generic_handler(self.name, self._methods)

    def unary(
        self, method: str, kind: type[Request], serve: Callable[[Caller, Request], Awaitable[Message]]
    ) -> None:
        """A method of small messages, which may be made again with the same effect."""

        async def answer(caller: Caller, data: bytes, context: Any) -> bytes:
            del context
            return (await serve(caller, parse(data, kind))).SerializeToString()

        self.raw(method, answer)

    def once(
        self, method: str, kind: type[Request], serve: Callable[[Caller, Request], Awaitable[Message]]
    ) -> None:
        """A method of small messages that changes something: a repetition of a call has no effect of its own, and what
        has begun comes to its end without its caller."""

        async def answer(caller: Caller, data: bytes, context: Any) -> bytes:
            async def make() -> bytes:
                return (await serve(caller, parse(data, kind))).SerializeToString()

            call_id = _text(context.invocation_metadata() or (), CALL_ID)
            return await self.repetitions.once(CallKey(caller.principal, method, call_id), make)

        self.raw(method, answer)

    def raw(self, method: str, serve: Callable[[Caller, bytes, Any], Awaitable[bytes]]) -> None:
        """A method that parses and serializes for itself."""

        async def call(requests: AsyncIterator[bytes], context: Any) -> bytes:
            del requests  # the one request is read below
            under_way = self._call_begins(method, context, stream=False)
            try:
                self._refuse_unknown(under_way)
                data = await self.read_request(context)
                self._observe.received(under_way, len(data))
                answer = await serve(under_way.caller, data, context)
                self._observe.sent(under_way, len(answer))
                return answer
            except BaseException as error:  # noqa: BLE001 - it is raised again, or answered by its name
                under_way.error = self._named(under_way, error)
            finally:
                self._call_ends(under_way)
            await refuse(context, under_way)
            raise AssertionError("unreachable: the call was aborted")

        # On the wire the same as a method with one request. gRPC would read that one before it asks who calls.
        self._methods[method] = grpc.stream_unary_rpc_method_handler(call)

    def stream(
        self,
        method: str,
        waits: Waits,
        serve: Callable[[Caller, AsyncIterator[bytes]], AsyncGenerator[bytes]],
    ) -> None:
        """A method with streams both ways. Its requests end with BrokerUnavailableError once the broker stops."""

        async def call(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            under_way = self._call_begins(method, context, stream=True)
            try:
                self._refuse_unknown(under_way)
                caller = under_way.caller
                wanted = self._checked(under_way, waits.until_end(aiter(requests)), context)
                async with aclosing(serve(caller, wanted)) as answers:
                    async for answer in answers:
                        self.check_still(caller, context)
                        self._observe.sent(under_way, len(answer))
                        yield answer
                return
            except BaseException as error:  # noqa: BLE001 - it is raised again, or answered by its name
                under_way.error = self._named(under_way, error)
            finally:
                self._call_ends(under_way)
            await refuse(context, under_way)

        self._methods[method] = grpc.stream_stream_rpc_method_handler(call)

    async def read_request(self, context: Any) -> bytes:
        """The request of a call whose caller is known: what a stranger sends is not taken into memory.
        MalformedRequestError."""
        found: Any = await context.read()
        if found is grpc.aio.EOF:
            raise MalformedRequestError("the call has no request")
        data: bytes = found
        return data

    def _call_begins(self, method: str, context: Any, *, stream: bool) -> Call:
        metadata: Metadata = context.invocation_metadata() or ()
        caller = _unknown_caller(context, metadata)
        under_way = Call(f"{self.name}/{method}", time.perf_counter(), stream, caller)
        begin(under_way)
        context.set_trailing_metadata(((REQUEST_ID, caller.request_id),))
        try:
            under_way.caller = replace(caller, principal=self._identify(context, metadata))
        except Exception as error:  # noqa: BLE001 - it is answered by its name
            under_way.error = self._named(under_way, error)
        self._observe.began(under_way, metadata)
        return under_way

    def _refuse_unknown(self, call: Call) -> None:
        if call.error is not None:
            raise call.error

    def _call_ends(self, call: Call) -> None:
        call.took_s = time.perf_counter() - call.began_s
        self._observe.ended(call)
        call.ended = True

    def _named(self, call: Call, error: BaseException) -> LogStoreError:
        """The error that is answered. What ends the task (a cancellation) is raised again."""
        if isinstance(error, LogStoreError):
            return error
        if not isinstance(error, Exception):
            call.cancelled = True
            raise error
        logger.error("%s failed with an error that is not the store's", call.method, exc_info=error)
        return InvariantError(f"{call.method} failed; the broker's log says how")

    async def _checked(
        self, call: Call, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """The requests of a stream, as long as its caller is known."""
        async for request in requests:
            self.check_still(call.caller, context)
            self._observe.received(call, len(request))
            yield request

    def check_still(self, caller: Caller, context: Any) -> None:
        """A stream outlives what it began with: users are removed, sessions end. AuthenticationError,
        SessionExpiredError."""
        if self._identify(context, context.invocation_metadata() or ()) != caller.principal:
            raise AuthenticationError("the stream's caller is another one than at its beginning")


def _unknown_caller(context: Any, metadata: Metadata) -> Caller:
    """What the caller says of itself; the principal is still to be found. A call without a request id is given one."""
    given = {key: value for key, value in metadata if isinstance(value, str)}
    return Caller(
        principal="",
        client_id=given.get(CLIENT_ID, "")[:_MAX_ID],
        connection=context.peer(),
        request_id=given.get(REQUEST_ID, "")[:_MAX_ID] or secrets.token_hex(8),
    )


def _text(metadata: Metadata, name: str) -> str:
    for key, value in metadata:
        if key == name and isinstance(value, str):
            return value[:_MAX_ID]
    return ""


async def refuse(context: Any, call: Call) -> None:
    """End the call with its error."""
    error = call.error
    if error is None:
        return
    trailer = ((TRAILER, to_wire(error).SerializeToString()), (REQUEST_ID, call.caller.request_id))
    await context.abort(status_of(error), error.message[:1000], trailer)
