"""A broker's ``/metrics``: its store's collector, its own, and that of its process, behind one server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpc.addresses import host_and_port
from rpc.settings import BrokerSettings

if TYPE_CHECKING:
    from logstore.metrics import MetricsServer
    from logstore.metrics.store_collector import Measured
    from rpc.broker import Broker


def serve_metrics(settings: BrokerSettings, store: Measured, broker: Broker) -> MetricsServer | None:
    """None without ``metrics_listen``. MissingExtraError names the extra; StorageError: the address cannot be
    listened on."""
    if not settings.metrics_listen:
        return None
    from logstore.metrics import MetricsServer, StoreCollector
    from logstore.metrics.prometheus import CollectorRegistry, ProcessCollector
    from rpc.observability.broker_collector import BrokerCollector

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(StoreCollector(store, max_partitions=settings.metrics_partitions))
    registry.register(BrokerCollector(broker.meter, broker.held_bytes, broker.refusals))
    return MetricsServer(registry, *host_and_port(settings.metrics_listen, "metrics_listen"))
