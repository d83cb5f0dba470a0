"""What is used of prometheus-client. MissingExtraError where it is not installed."""

from logstore.errors import MissingExtraError

try:
    from prometheus_client import ProcessCollector
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector, CollectorRegistry
except ImportError as error:
    raise MissingExtraError(
        "metrics need prometheus-client, which is not installed",
        hint="pip install 'logstore-engine[metrics]'",
    ) from error

__all__ = [
    "Collector",
    "CollectorRegistry",
    "CounterMetricFamily",
    "GaugeMetricFamily",
    "HistogramMetricFamily",
    "Metric",
    "ProcessCollector",
    "choose_encoder",
]
