"""A broker's ``/metrics``: its store's collector, its own, and that of its process, behind one server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpc.addresses import host_and_port
from rpc.settings import BrokerSettings

if TYPE_CHECKING:
    from logstore.metrics import MetricsServer
    from logstore.metrics.store_collector import Measured
    from rpc.broker import Broker
    from rpc.handlers.cluster import ClusterPlace


def serve_metrics(
    settings: BrokerSettings, store: Measured, broker: Broker, place: ClusterPlace | None = None
) -> MetricsServer | None:
    """``place``: in a cluster. None without ``metrics_listen``. MissingExtraError names the extra; StorageError: the
    address cannot be listened on."""
    if not settings.metrics_listen:
        return None
    from logstore.metrics import MetricsServer, StoreCollector
    from logstore.metrics.prometheus import CollectorRegistry, ProcessCollector
    from rpc.observability.broker_collector import BrokerCollector
    from rpc.observability.cluster_collector import ClusterCollector

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    most = settings.metrics_partitions
    node_id = None if place is None else settings.node_id
    registry.register(StoreCollector(store, max_partitions=most, node_id=node_id))
    registry.register(BrokerCollector(broker.meter, broker.held_bytes, broker.refusals, alone=place is None))
    if place is not None:

        def name_of(topic_id: str) -> str | None:
            topics = store.backend.topics().values()
            return next((topic.name for topic in topics if topic.topic_id == topic_id), None)

        registry.register(ClusterCollector(place.view, place.led, name_of, most))
    return MetricsServer(registry, *host_and_port(settings.metrics_listen, "metrics_listen"))
