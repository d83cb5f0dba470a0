"""``RemotePipeline``: produce requests of one producer under way at once, through a ``ProduceStream``.

The broker appends them in the order in which they are sent, and answers in that order. When it ends the stream with an
error of its own, what it has not answered was not tried; when the connection breaks, nobody knows.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

import grpc

from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import LogStoreError, OutcomeUnknownError
from logstore.format.batch import NO_PRODUCER_ID, read_header
from logstore.types import Acks
from rpc.client.channel.connection import Connection
from rpc.errors import (
    AuthenticationError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ContractMismatchError,
    SessionExpiredError,
)
from rpc.framing import parse
from rpc.pb import produce_pb2
from rpc.wire.records import produce_request, read_produce_response

GRACE_S: Final = 5.0
"""How much longer than it was asked to wait a call may take."""
_WINDOW: Final = 5
"""Requests of one stream that wait for their answers; Kafka's bound for idempotent producers."""
_WATCH_S: Final = 0.5
"""How often the time of the oldest request is looked at."""


class _Pending:
    """A request that waits for its answer."""

    def __init__(self, pipeline: RemotePipeline, number: int, due_s: float, *, known: bool) -> None:
        self._pipeline = pipeline
        self.number = number
        self.due_s = due_s
        self.known = known
        self.error: LogStoreError | None = None

    def results(self) -> list[ProduceResult]:
        """See ``PendingProduce``."""
        return self._pipeline.answer(self)


class _Stream:
    """One stream. ``timed_out``: it was ended because its oldest request got no answer in time, or would get none."""

    def __init__(
        self, connection: Connection, waiting: deque[_Pending], given_up: Callable[[int], bool]
    ) -> None:
        self._given_up = given_up
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting = waiting
        self._over = threading.Event()
        self.timed_out = False
        self.request_id, self.call = connection.open_stream(
            "ProduceService/ProduceStream", iter(self._requests.get, None)
        )
        self._watch = threading.Thread(target=self._watch_time, name="logstore-produce-watch", daemon=True)
        self._watch.start()

    def give(self, data: bytes) -> None:
        self._requests.put(data)

    def end(self) -> None:
        """No request comes any more."""
        self._over.set()
        self._requests.put(None)

    def _watch_time(self) -> None:
        while not self._over.wait(_WATCH_S):
            try:
                oldest = self._waiting[0]
            except IndexError:
                continue  # nothing waits just now
            if time.monotonic() >= oldest.due_s or self._given_up(oldest.number):
                self.timed_out = True
                self.call.cancel()
                return


class RemotePipeline:
    """A ``ProducePipeline``. Of one thread. ``given_up``: asked now and then while answers are waited for, from another
    thread, with the number of the request that waits longest: whether none is to be waited for any more."""

    window = _WINDOW

    def __init__(self, connection: Connection, given_up: Callable[[int], bool] = lambda _: False) -> None:
        self._connection = connection
        self._given_up = given_up
        self._stream: _Stream | None = None
        self._waiting: deque[_Pending] = deque()
        self._number = 0
        self._seen = 0

    def begin(self, items: Sequence[ProduceItem], acks: Acks, timeout_s: float) -> _Pending:
        """See ``ProducePipeline``."""
        self._number += 1
        due_s = time.monotonic() + timeout_s + GRACE_S
        pending = _Pending(self, self._number, due_s, known=all(map(is_known, items)))
        stream = self._stream
        if stream is None and not self._waiting:
            try:
                stream = self._stream = _Stream(self._connection, self._waiting, self._given_up)
            except LogStoreError as error:
                pending.error = error
        elif stream is None:
            pending.error = BrokerUnavailableError("a request before this one has failed", unreached=True)
        self._waiting.append(pending)
        if stream is not None:
            stream.give(produce_request(items, acks, int(timeout_s * 1000), self._number, self._seen))
        return pending

    def answer(self, pending: _Pending) -> list[ProduceResult]:
        """The results of the oldest request, once they are there."""
        try:
            if pending.error is not None:
                raise pending.error
            stream = self._stream
            if stream is None:
                raise BrokerUnavailableError("the stream of the request has ended")
            try:
                response = parse(next(stream.call), produce_pb2.ProduceResponse)
            except (StopIteration, grpc.RpcError, LogStoreError) as error:
                self._break(stream, error)
                raise pending.error or BrokerUnavailableError("the stream has ended") from error
            if response.correlation_id != pending.number:
                self._break(
                    stream, ContractMismatchError(f"an answer to {response.correlation_id} came out of turn")
                )
                raise pending.error or BrokerUnavailableError("the stream has ended")
            self._seen = pending.number
            return read_produce_response(response)
        finally:
            self._waiting.popleft()

    def _break(self, stream: _Stream, error: Exception) -> None:
        """The stream is over: every request that waits has failed, and says whether it may have been tried."""
        self._stream = None
        stream.end()
        stream.call.cancel()
        named, untried = self._named(stream, error)
        for number, pending in enumerate(self._waiting):
            if number == 0 and untried and not isinstance(named, BrokerUnavailableError):
                pending.error = named
            elif untried:
                pending.error = BrokerUnavailableError(
                    f"the broker ended the stream before it came to the request: {named.message}",
                    unreached=True,
                )
            else:
                pending.error = outcome_of(named, known=pending.known)

    def _named(self, stream: _Stream, error: Exception) -> tuple[LogStoreError, bool]:
        """The error by its name, and whether nothing of what waits was tried."""
        if stream.timed_out:
            return BrokerTimeoutError("the broker has not answered a produce request in time"), False
        if isinstance(error, LogStoreError):
            return error, False
        if not isinstance(error, grpc.RpcError):
            return BrokerUnavailableError("the broker ended the stream of produce requests"), False
        named = self._connection.error_of(error, "ProduceService/ProduceStream", stream.request_id)
        if isinstance(named, BrokerUnavailableError) and named.unreached:
            return named, True
        said = self._connection.is_named(error)
        # The caller is looked at again before each answer, too: an append may have gone before that.
        return named, said and not isinstance(named, AuthenticationError | SessionExpiredError)

    def rest(self) -> None:
        """See ``ProducePipeline``."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()


def outcome_of(error: LogStoreError, *, known: bool) -> LogStoreError:
    """The error of a request that got no answer. ``known``: the broker would know a repetition of it."""
    lost = isinstance(error, BrokerUnavailableError | BrokerTimeoutError)
    if not lost or known or (isinstance(error, BrokerUnavailableError) and error.unreached):
        return error
    return OutcomeUnknownError(
        f"the connection broke before the broker said whether the records are in: {error.message}",
        hint="read the end of the log, or use an idempotent producer, which may send again",
    )


def is_known(item: ProduceItem) -> bool:
    """Whether the broker would know a repetition of the batch."""
    header = item.header
    if header is None:
        try:
            header = read_header(item.batch)
        except LogStoreError:
            return False
    return header.producer_id != NO_PRODUCER_ID
