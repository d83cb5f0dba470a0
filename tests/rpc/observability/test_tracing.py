"""Spans: one for each call, below the caller's, with its outcome; none where nothing would come of them."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.trace import (
    NonRecordingSpan,
    NoOpTracerProvider,
    ProxyTracerProvider,
    SpanKind,
    StatusCode,
)

from logstore.errors import UnknownTopicError
from rpc.handlers.call import Call
from rpc.handlers.caller import Caller
from rpc.observability import tracing
from rpc.observability.tracing import Tracing
from rpc.pb import topics_pb2
from tests.rpc.served import Served

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Span(NonRecordingSpan):
    def __init__(
        self, name: str, parent: trace.SpanContext, kind: SpanKind, attributes: dict[str, Any]
    ) -> None:
        super().__init__(parent)
        self.name, self.parent, self.kind, self.attributes = name, parent, kind, attributes
        self.status: StatusCode | None = None
        self.ended = False

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = status

    def end(self, end_time: int | None = None) -> None:
        self.ended = True


class Provider(trace.TracerProvider):
    """Keeps the spans that were begun."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        provider = self

        class Tracer(trace.NoOpTracer):
            def start_span(
                self, name: str, context: Any = None, kind: Any = None, attributes: Any = None, **_: Any
            ) -> Span:  # type: ignore[override]
                parent = trace.get_current_span(context).get_span_context()
                provider.spans.append(Span(name, parent, kind, dict(attributes)))
                return provider.spans[-1]

        return Tracer()


def test_a_call_is_a_span_below_the_caller_span_with_its_outcome() -> None:
    provider = Provider()
    traced = Tracing(lambda: provider)
    calls = [Call("logstore.v1.S/M", 0.0, caller=Caller("User:a", "app", "", "id")) for _ in range(3)]
    for call in calls:
        traced.began(call, [("traceparent", PARENT), ("x-bin", b"\0")])
    calls[0].error = UnknownTopicError("none")
    calls[1].cancelled = True
    for call in calls:
        traced.ended(call)
    failed, cancelled, good = provider.spans
    assert all(span.ended and span.kind is SpanKind.SERVER for span in provider.spans)
    assert f"{good.parent.trace_id:032x}" in PARENT
    assert f"{good.parent.span_id:016x}" in PARENT
    assert (good.name, good.attributes["rpc.service"], good.attributes["rpc.method"]) == (
        "logstore.v1.S/M", "logstore.v1.S", "M",
    )  # fmt: skip
    assert (failed.status, failed.attributes["error.type"]) == (StatusCode.ERROR, "UnknownTopicError")
    codes = [span.attributes["rpc.grpc.status_code"] for span in provider.spans]
    assert codes == [grpc.StatusCode.NOT_FOUND.value[0], 1, 0]
    assert (cancelled.status, good.status) == (None, None)


@pytest.mark.parametrize("provider", [ProxyTracerProvider(), NoOpTracerProvider()])
def test_without_a_provider_there_are_none(provider: trace.TracerProvider) -> None:
    traced = Tracing(lambda: provider)
    call = Call("m", 0.0)
    traced.began(call, ())
    assert traced._spans == {}
    traced.ended(call)


def test_a_broker_makes_spans(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider()
    monkeypatch.setattr(tracing.trace, "_TRACER_PROVIDER", provider)
    with grpc.insecure_channel(served.address) as channel:
        channel.unary_unary("/logstore.v1.TopicService/GetMetadata")(
            topics_pb2.GetMetadataRequest().SerializeToString(),
            timeout=30,
            metadata=(("traceparent", PARENT), ("logstore-request-id", "mine")),
        )
    (span,) = provider.spans
    assert (span.name, span.attributes["logstore.request_id"], span.ended) == (
        "logstore.v1.TopicService/GetMetadata", "mine", True,
    )  # fmt: skip
    assert f"{span.parent.trace_id:032x}" in PARENT
