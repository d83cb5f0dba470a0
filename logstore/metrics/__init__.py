"""Metrics for Prometheus: of a store, and the HTTP server that gives them out. Needs the extra ``metrics``.

from prometheus_client import REGISTRY
from logstore.metrics import StoreCollector

REGISTRY.register(StoreCollector(store))
"""

from logstore.metrics.server import MetricsServer
from logstore.metrics.store_collector import StoreCollector

__all__ = ["MetricsServer", "StoreCollector"]
