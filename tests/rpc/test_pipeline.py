"""``RemotePipeline`` over a transport that loses answers, mixes them up, breaks, and is there again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, cast

import grpc
import pytest

from logstore.api.records import ProduceItem, ProduceResult
from logstore.errors import ClientClosedError, LogStoreError, OutcomeUnknownError, UnknownTopicError
from logstore.format.batch import encode_batch
from rpc.client.channel.connection import Connection
from rpc.client.channel.settings import ConnectionSettings
from rpc.client.routing import pipeline as module
from rpc.client.routing.pipeline import RemotePipeline
from rpc.errors import (
    AuthenticationError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ContractMismatchError,
)
from rpc.wire.errors import TRAILER, to_wire
from rpc.wire.records import produce_response, read_produce_request

PLAIN = ProduceItem("t", 0, encode_batch([(None, b"v")], now_ms=0))
NUMBERED = ProduceItem(
    "t", 0, encode_batch([(None, b"v")], now_ms=0, producer_id=7, producer_epoch=0, base_sequence=0)
)


class Ended(grpc.RpcError):
    """How a stream ends: ``named``: with an error of the broker's."""

    def __init__(self, named: LogStoreError | None = None, details: str = "Socket closed") -> None:
        self._named = named
        self._details = details

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return () if self._named is None else ((TRAILER, to_wire(self._named).SerializeToString()),)


class FakeCall:
    """``answers``: what comes, in order: correlation ids, or the end. Then nothing, until it is cancelled."""

    def __init__(self, requests: Iterator[bytes], answers: deque[Any]) -> None:
        self.requests = requests
        self.answers = answers
        self.cancelled = False

    def __next__(self) -> bytes:
        if not self.answers:
            while not self.cancelled:
                module.time.sleep(0)  # type: ignore[attr-defined]
            raise Ended(details="cancelled")
        answer = self.answers.popleft()
        if isinstance(answer, BaseException):
            raise answer
        return produce_response([ProduceResult(answer * 10)], answer)

    def cancel(self) -> None:
        self.cancelled = True


class FakeConnection(Connection):
    """``scripts``: the answers of each stream that is opened, or why it cannot be."""

    def __init__(self, *scripts: list[Any] | LogStoreError) -> None:
        super().__init__("localhost:1", ConnectionSettings())
        self.scripts = deque(scripts)
        self.calls: list[FakeCall] = []

    def open_stream(self, path: str, requests: Iterator[bytes]) -> tuple[str, Any]:
        script = self.scripts.popleft()
        if isinstance(script, LogStoreError):
            raise script
        self.calls.append(FakeCall(requests, deque(script)))
        return "id", self.calls[-1]


def begun(
    pipeline: RemotePipeline, count: int, item: ProduceItem = NUMBERED, timeout_s: float = 60
) -> list[Any]:
    return [pipeline.begin([item], "all", timeout_s) for _ in range(count)]


def error_of(pending: Any) -> LogStoreError:
    with pytest.raises(LogStoreError) as raised:
        pending.results()
    return cast(LogStoreError, raised.value)


def heads(call: FakeCall, count: int) -> list[tuple[int, int]]:
    """Correlation id and last answer seen, of the requests of a stream."""
    found = []
    for _ in range(count):
        head, _ = read_produce_request(next(call.requests))
        found.append((head.correlation_id, head.seen_correlation_id))
    return found


def test_requests_say_which_answer_was_seen_last() -> None:
    connection = FakeConnection([1, 2, 3])
    pipeline = RemotePipeline(connection)
    first, second = begun(pipeline, 2)
    assert first.results() == [ProduceResult(10)]
    (third,) = begun(pipeline, 1)
    assert [one.results() for one in (second, third)] == [[ProduceResult(20)], [ProduceResult(30)]]
    assert heads(connection.calls[0], 3) == [(1, 0), (2, 0), (3, 1)]
    pipeline.rest()
    assert next(connection.calls[0].requests, None) is None, "an idle stream is ended"


@pytest.mark.parametrize("answers", [[2, 1], [1, 1], [1, 3]])
def test_an_answer_out_of_turn_ends_the_stream(answers: list[int]) -> None:
    pipeline = RemotePipeline(FakeConnection(answers, [5]))
    errors = []
    for pending in begun(pipeline, 3):
        try:
            pending.results()
        except LogStoreError as error:
            errors.append(error)
    assert len(errors) == (3 if answers[0] == 2 else 2)
    assert all(isinstance(error, ContractMismatchError) for error in errors)


@pytest.mark.parametrize(("item", "kind"), [(NUMBERED, BrokerUnavailableError), (PLAIN, OutcomeUnknownError)])
def test_a_broken_connection_leaves_open_what_was_tried(item: ProduceItem, kind: type[LogStoreError]) -> None:
    connection = FakeConnection([1, Ended()], [5])
    pipeline = RemotePipeline(connection)
    first, *others = begun(pipeline, 3, item)
    assert first.results() == [ProduceResult(10)]
    broken = error_of(others[0])
    assert type(broken) is kind
    (late,) = begun(pipeline, 1, item)  # before the third has been asked: it must not pass that one
    assert type(error_of(others[1])) is kind
    refused = error_of(late)
    assert isinstance(refused, BrokerUnavailableError)
    assert refused.unreached, "it was not sent"
    assert len(connection.calls) == 1
    (again,) = begun(pipeline, 1, item)
    assert again.results() == [ProduceResult(50)]


def test_an_error_of_the_brokers_is_the_first_requests_and_the_others_were_not_tried() -> None:
    pipeline = RemotePipeline(FakeConnection([Ended(UnknownTopicError("gone"))]))
    first, second = begun(pipeline, 2, PLAIN)
    assert isinstance(error_of(first), UnknownTopicError)
    untried = error_of(second)
    assert isinstance(untried, BrokerUnavailableError)
    assert untried.unreached
    assert untried.retriable


def test_a_broker_that_stops_has_answered_all_that_it_tried() -> None:
    pipeline = RemotePipeline(FakeConnection([Ended(BrokerUnavailableError("the broker stops"))]))
    for pending in begun(pipeline, 2, PLAIN):
        error = error_of(pending)
        assert isinstance(error, BrokerUnavailableError)
        assert error.unreached


def test_a_caller_who_is_refused_amid_a_stream_knows_nothing_of_what_was_tried() -> None:
    pipeline = RemotePipeline(FakeConnection([Ended(AuthenticationError("removed"))]))
    assert all(isinstance(error_of(pending), AuthenticationError) for pending in begun(pipeline, 2, PLAIN))


def test_a_lost_answer_is_waited_for_no_longer_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.0)
    monkeypatch.setattr(module, "_WATCH_S", 0.001)
    pipeline = RemotePipeline(FakeConnection([1]))
    first, lost = begun(pipeline, 2, timeout_s=0.01)
    assert first.results() == [ProduceResult(10)]
    assert isinstance(error_of(lost), BrokerTimeoutError)


def test_a_stream_that_cannot_be_opened_is_the_requests_error() -> None:
    pipeline = RemotePipeline(FakeConnection(ClientClosedError("closed"), [3]))
    first, second = begun(pipeline, 2)
    assert isinstance(error_of(first), ClientClosedError)
    assert isinstance(error_of(second), BrokerUnavailableError)
    (third,) = begun(pipeline, 1)
    assert third.results() == [ProduceResult(30)]
