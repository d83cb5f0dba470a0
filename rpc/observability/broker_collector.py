"""``BrokerCollector``: a broker's calls and bounds as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from logstore.metrics.prometheus import (
    Collector,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from rpc.observability.meter import BOUNDS_S, Meter

_PACKAGE: Final = "logstore.v1."


class BrokerCollector(Collector):
    """``held_bytes``: what is under way, by budget; ``refusals``: calls answered "busy", or
    held back, since the start, by reason; ``alone``: not one of a cluster's."""

    def __init__(
        self,
        meter: Meter,
        held_bytes: Callable[[], Mapping[str, int]],
        refusals: Callable[[], Mapping[str, int]],
        *,
        alone: bool = True,
    ) -> None:
        self._meter = meter
        self._held_bytes = held_bytes
        self._refusals = refusals
        self._alone = alone

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        if self._alone:
            yield GaugeMetricFamily("kafka_brokers", "Brokers: this one.", value=1)
        yield from self._calls()
        held = GaugeMetricFamily(
            "logstore_broker_held_bytes", "Requests and answers under way.", labels=["budget"]
        )
        for name, size in self._held_bytes().items():
            held.add_metric([name], size)
        refused = CounterMetricFamily(
            "logstore_broker_refusals",
            "Calls that were answered as busy, or held back by a quota.",
            labels=["reason"],
        )
        for name, count in self._refusals().items():
            refused.add_metric([name], count)
        yield from (held, refused)

    def _calls(self) -> Iterator[Metric]:
        labels = ["method"]
        calls = CounterMetricFamily("logstore_broker_requests", "Calls that have begun.", labels=labels)
        flying = GaugeMetricFamily("logstore_broker_requests_in_flight", "Calls under way.", labels=labels)
        received = CounterMetricFamily("logstore_broker_received_bytes", "Bytes of requests.", labels=labels)
        sent = CounterMetricFamily("logstore_broker_sent_bytes", "Bytes of answers.", labels=labels)
        errors = CounterMetricFamily(
            "logstore_broker_errors", "Calls that failed, by the error's name.", labels=["method", "error"]
        )
        seconds = HistogramMetricFamily(
            "logstore_broker_request_seconds",
            "Time at work of unary calls: without waits for records, news and quotas.",
            labels=labels,
        )
        for method, numbers in self._meter.methods().items():
            label = [method.removeprefix(_PACKAGE)]
            ended, began = numbers.ended, numbers.began  # in this order: none is ended before it began
            calls.add_metric(label, began)
            flying.add_metric(label, began - ended)
            received.add_metric(label, numbers.received_bytes)
            sent.add_metric(label, numbers.sent_bytes)
            for error, count in list(numbers.errors.items()):
                errors.add_metric([*label, error], count)
            seconds.add_metric(label, _cumulative(list(numbers.buckets)), numbers.worked_s)
        yield from (calls, flying, received, sent, errors, seconds)


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    total, found = 0, []
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), buckets, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
