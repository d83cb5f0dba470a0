"""What a broker's process serves: a store that is alone, or a node of a cluster; opened, given up and closed alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import logstore
from logstore.errors import LogStoreError
from replication.cluster.view import BrokerInfo
from replication.cluster_node import ClusterNode
from replication.cluster_status import led_here
from replication.node_settings import NodeSettings
from rpc.addresses import host_and_port
from rpc.handlers.cluster import ClusterPlace
from rpc.handlers.engine import Engine
from rpc.peers.network import GrpcPeerNetwork
from rpc.security.access import Access
from rpc.security.cluster_access import ClusterAccess, local_pieces
from rpc.servicers.cluster import no_brokers
from rpc.settings import BrokerSettings

logger = logging.getLogger(__name__)

_JOIN_S: Final = 365 * 86_400.0  # brokers of a cluster may be started long after one another


def _nothing() -> None:
    """What a store that is alone gives up before it stops."""


def _never(tell: Callable[[LogStoreError], None]) -> None:
    """Of a store that is alone."""
    del tell


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """``access``: users and rules of the cluster; None: those of the directory count. ``hand_over``: blocks until other
    brokers lead what this one led, as far as that can be had; calls are answered meanwhile. ``when_superseded``: has a
    function called, by any thread, once another process is this broker."""

    store: logstore.LogStore
    engine: Engine
    cluster_id: str
    brokers: Callable[[], Sequence[BrokerInfo]] = no_brokers
    place: ClusterPlace | None = None
    access: Access | None = None
    hand_over: Callable[[], None] = _nothing
    when_superseded: Callable[[Callable[[LogStoreError], None]], None] = _never


def serving(settings: BrokerSettings, store_settings: dict[str, Any]) -> AbstractContextManager[Serving]:
    """Errors: those of ``logstore.open``; TopicLockedError: other processes write; ClusterMismatchError;
    DuplicateBrokerError: another process is this broker; BrokerConfigError: peers cannot be listened for."""
    given = {"prepared_max_age_s": settings.prepared_max_age_s, **store_settings}
    return _node(settings, given) if settings.in_cluster else _alone(settings, given)


@contextmanager
def _alone(settings: BrokerSettings, store_settings: dict[str, Any]) -> Iterator[Serving]:
    with logstore.open(settings.data, **store_settings) as store:
        store.pin_all()
        yield Serving(store=store, engine=store.backend, cluster_id=store.store_id)


@contextmanager
def _node(settings: BrokerSettings, store_settings: dict[str, Any]) -> Iterator[Serving]:
    """Served once the cluster is joined, which takes a majority of its brokers."""
    seams = {name: store_settings.pop(name, None) for name in ("fs", "clock")}
    host, port = host_and_port(settings.advertise or settings.listen, "advertise")
    network = GrpcPeerNetwork(settings)
    node = ClusterNode(
        settings.data,
        NodeSettings(
            node_id=settings.node_id,
            voters=frozenset(settings.peer_addresses),
            peers=settings.peer_addresses,
            host=host,
            port=port,
            rack=settings.rack,
            lag_s=settings.replica_lag_s,
            recovery_bytes_s=settings.recovery_bytes_s,
            coordinators=settings.coordinator_partitions,
            join_timeout_s=_JOIN_S,
        ),
        network,
        store_settings=store_settings,
        local_access=partial(local_pieces, settings.data),
        **seams,
    )
    network.on_gone = node.node.node_is_gone
    logger.info(
        "node %d joins a cluster of %s: a majority of them is waited for", settings.node_id, settings.peers
    )
    node.start()
    try:
        yield Serving(
            store=node.store,
            engine=node.engine,
            cluster_id=node.cluster_id,
            brokers=node.brokers,
            place=ClusterPlace(
                view=node,
                led=lambda: led_here(node.node),
                gather=node.gatherer.gather,
                administration=node.administration,
            ),
            access=ClusterAccess(node),
            hand_over=node.hand_over,
            when_superseded=node.sessions.when_superseded,
        )
    finally:
        node.close()
