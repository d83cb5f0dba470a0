"""What a broker's process serves: a store that is alone, or a node of a cluster; opened, given up and closed alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import logstore
from replication.cluster.view import BrokerInfo
from rpc.handlers.cluster import ClusterPlace
from rpc.handlers.engine import Engine
from rpc.servicers.cluster import no_brokers
from rpc.settings import BrokerSettings


def _nothing() -> None:
    """What a store that is alone gives up before it stops."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """``hand_over``: blocks until other brokers lead what this one led, as far as that can be had; calls are answered
    meanwhile."""

    store: logstore.LogStore
    engine: Engine
    cluster_id: str
    brokers: Callable[[], Sequence[BrokerInfo]] = no_brokers
    place: ClusterPlace | None = None
    hand_over: Callable[[], None] = _nothing


@contextmanager
def serving(settings: BrokerSettings, store_settings: dict[str, Any]) -> Iterator[Serving]:
    """Errors: those of ``logstore.open``; TopicLockedError: other processes write."""
    given = {"prepared_max_age_s": settings.prepared_max_age_s, **store_settings}
    with logstore.open(settings.data, **given) as store:
        store.pin_all()
        yield Serving(store=store, engine=store.backend, cluster_id=store.store_id)
