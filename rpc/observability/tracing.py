"""``Tracing``: a server span of OpenTelemetry for each call, below the span that the caller's metadata name.

Needs opentelemetry-api; spans are made once the process has set a tracer provider up, e.g. by
``opentelemetry-instrument logstore broker start``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, StatusCode

from rpc.handlers.call import Call
from rpc.servicers.service import Metadata
from rpc.wire.errors import status_of

_NAME: Final = "logstore.broker"


class Tracing:
    """An ``Observer``."""

    def __init__(self, provider: Callable[[], trace.TracerProvider] = trace.get_tracer_provider) -> None:
        self._provider = provider
        self._spans: dict[Call, Span] = {}

    def began(self, call: Call, metadata: Metadata) -> None:
        provider = self._provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return  # nothing would come of it
        carrier = {key: value for key, value in metadata if isinstance(value, str)}
        service, _, method = call.method.partition("/")
        self._spans[call] = provider.get_tracer(_NAME).start_span(
            call.method,
            propagate.extract(carrier),
            SpanKind.SERVER,
            {
                "rpc.system": "grpc",
                "rpc.service": service,
                "rpc.method": method,
                "logstore.principal": call.caller.principal,
                "logstore.client_id": call.caller.client_id,
                "logstore.request_id": call.caller.request_id,
            },
        )

    def received(self, call: Call, size: int) -> None:
        del call, size

    def sent(self, call: Call, size: int) -> None:
        del call, size

    def ended(self, call: Call) -> None:
        span = self._spans.pop(call, None)
        if span is None:
            return
        error = call.error
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_attribute("rpc.grpc.status_code", status_of(error).value[0])
            span.set_status(StatusCode.ERROR, error.message)
        elif call.cancelled:
            span.set_attribute("rpc.grpc.status_code", 1)
        else:
            span.set_attribute("rpc.grpc.status_code", 0)
        span.set_attribute("logstore.waited_s", call.waited_s)
        span.end()
