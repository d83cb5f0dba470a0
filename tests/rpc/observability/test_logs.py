"""Logs of a broker: lines in text and JSON with the call's fields; request ids, there and back; slow calls."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import grpc
import pytest

from logstore.errors import UnknownTopicError
from rpc.errors import BrokerConfigError, BrokerTimeoutError, BrokerUnavailableError
from rpc.handlers.call import Call, begin, current_call
from rpc.handlers.caller import Caller
from rpc.observability.logs import FIELDS, JsonFormatter, RequestLog, TextFormatter
from rpc.pb import cluster_pb2
from rpc.settings import BrokerSettings
from tests.rpc.broker_process import BrokerUnderTest
from tests.rpc.served import Served

FORGED = 'x"] ERROR forged'


def record(**more: Any) -> logging.LogRecord:
    made = logging.LogRecord("rpc.x", logging.WARNING, "file", 1, "of %s", ("this\nthat",), None)
    vars(made).update(more)
    return made


def call(**more: Any) -> Call:
    return Call("logstore.v1.S/M", 0.0, caller=Caller("User:alice", FORGED, "peer", "id-1"), **more)


def test_a_line_of_json_has_the_call_and_is_one_line() -> None:
    under_way = call(error=UnknownTopicError("none"))

    def say() -> str:
        begin(under_way)
        return JsonFormatter().format(record(**{FIELDS: {"worked_s": 1.5}}))

    text = copy_context().run(say)
    found = json.loads(text)
    assert "\n" not in text
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "WARNING", "logger": "rpc.x", "message": "of this\nthat", "worked_s": 1.5, "request_id": "id-1",
        "method": "logstore.v1.S/M", "principal": "User:alice", "client_id": FORGED, "error": "UnknownTopicError",
    }  # fmt: skip


def test_without_a_call_a_line_has_none_and_an_exception_is_named() -> None:
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError as error:
        made = record(exc_info=(type(error), error, error.__traceback__))
    found = json.loads(JsonFormatter().format(made))
    assert "request_id" not in found
    assert (found["error"], "by nothing" in found["exception"]) == ("ZeroDivisionError", True)


def test_what_callers_chose_is_quoted_in_text() -> None:
    def say() -> str:
        begin(call())
        return TextFormatter().format(record())

    assert (
        copy_context()
        .run(say)
        .endswith(
            f'[request_id="id-1" method="logstore.v1.S/M" principal="User:alice" client_id={json.dumps(FORGED)}]'
        )
    )
    assert TextFormatter().format(record()).endswith("WARNING rpc.x: of this\nthat")


def test_a_call_that_has_ended_names_no_lines_of_what_it_began() -> None:
    def look() -> tuple[bool, bool]:
        under_way = call()
        begin(under_way)
        before = current_call() is under_way
        under_way.ended = True
        return before, current_call() is None

    assert copy_context().run(look) == (True, True)


def test_slow_calls_are_told_without_their_waits_and_at_most_so_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = [10.0]
    log = RequestLog(1.0, lambda: now_s[0])
    log.ended(call(took_s=60.0, waited_s=59.5))
    log.ended(call(took_s=60.0, stream=True))
    assert caplog.records == []
    for _ in range(15):
        log.ended(call(took_s=60.0, waited_s=58.0))
    assert [one.getMessage() for one in caplog.records] == [
        "slow: logstore.v1.S/M worked for 2.000 s, and waited for 58.000 s"
    ] * 10
    now_s[0] += 1
    log.ended(call(took_s=2.0))
    assert caplog.records[-1].getMessage().endswith("0.000 s; 5 more were not told")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the broker's code logs, as JSON."""
    told = io.StringIO()
    handler = logging.StreamHandler(told)
    handler.setFormatter(JsonFormatter())
    of_broker = logging.getLogger("rpc")
    of_broker.addHandler(handler)
    yield told
    of_broker.removeHandler(handler)


DESCRIBED = "slow: logstore.v1.TopicService/DescribeTopic worked"


def test_a_slow_call_and_its_error_have_one_request_id(
    tmp_path: Path, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Served(tmp_path / "store", slow_request_s=0.05) as served, served.connect(client_id="me") as client:

        def describe_topic(name: str) -> None:
            call = current_call()
            assert call is not None
            assert call.caller.client_id == "me"  # also in the engine's thread
            threading.Event().wait(0.1)  # a slow engine
            raise UnknownTopicError(name)

        monkeypatch.setattr(served.store.backend, "describe_topic", describe_topic)
        with pytest.raises(UnknownTopicError) as refused:
            client.backend.describe_topic("none")
    found = map(json.loads, lines.getvalue().splitlines())  # a busy machine may have others that were slow
    (line,) = [one for one in found if one["message"].startswith(DESCRIBED)]
    assert line["request_id"] == refused.value.request_id
    assert (line["error"], line["client_id"]) == ("UnknownTopicError", "me")
    assert f"request id: {line['request_id']}" in refused.value.__notes__


def test_a_call_that_waits_is_not_slow(tmp_path: Path, lines: io.StringIO) -> None:
    with Served(tmp_path / "store", slow_request_s=3.0) as served:
        served.store.create_topic("t")
        with served.connect() as client, client.consumer("t", group="g") as consumer:
            consumer.poll(timeout_s=3.5)
    assert lines.getvalue() == ""


def test_request_ids_are_taken_or_made_and_given_back(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        method = channel.unary_unary("/logstore.v1.ClusterService/GetCluster")

        def ask(data: bytes, *metadata: tuple[str, str]) -> tuple[str, ...]:
            """The request ids of the answer."""
            try:
                _, done = method.with_call(data, timeout=30, metadata=metadata)
            except grpc.RpcError as error:
                done = error
            return tuple(value for key, value in done.trailing_metadata() if key == "logstore-request-id")

        good = cluster_pb2.GetClusterRequest().SerializeToString()
        assert ask(good, ("logstore-request-id", "mine")) == ("mine",)
        assert ask(b"\xff", ("logstore-request-id", "mine")) == ("mine",)
        assert ask(good, ("logstore-request-id", "m" * 1000)) == ("m" * 200,)
        (first,), (second,) = ask(good), ask(b"\xff")
        assert len(first) == len(second) == 16
        assert first != second


def test_an_error_without_an_answer_has_the_id_that_was_sent(served: Served) -> None:
    with served.connect(request_timeout_s=0.5) as client:
        served.close()
        with pytest.raises((BrokerUnavailableError, BrokerTimeoutError)) as failed:
            client.backend.list_groups()
    assert len(failed.value.request_id) == 16


def test_a_process_that_logs_json(tmp_path: Path) -> None:
    broker = BrokerUnderTest(
        tmp_path / "store", "--set", "log_format=json", "--set", "metrics_listen=127.0.0.1:0"
    )
    try:
        code, logged = broker.end()
    finally:
        broker.dispose()
    assert code == 0
    found = [json.loads(line)["message"] for line in logged.splitlines()]
    assert any(message.startswith("metrics at http://127.0.0.1:") for message in found)
    assert any(message.startswith("stopping: ") for message in found)
    with pytest.raises(BrokerConfigError, match="log_format='xml': it is text or json"):
        BrokerSettings(data="x", log_format="xml")
