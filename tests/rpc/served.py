"""A store served by a broker in this process, for tests: one event loop in a thread for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import logstore
from replication.cluster.view import BrokerInfo
from rpc.broker import Broker
from rpc.client.store import RemoteStore, connect
from rpc.handlers.cluster import ClusterPlace
from rpc.security.security import Security, open_security
from rpc.servicers.cluster import no_brokers
from rpc.settings import BrokerSettings

Answer = TypeVar("Answer")


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The loop of all brokers of this process; its thread ends with the process."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="brokers", daemon=True).start()
    return made


def wait(work: Coroutine[Any, Any, Answer], timeout_s: float = 60.0) -> Answer:
    return asyncio.run_coroutine_threadsafe(work, loop()).result(timeout_s)


class Served:
    """``root``: a directory, or ``":memory:"``. ``store``: what is served, for a look behind the broker's back.
    ``security``: instead of what the settings say; ``engine``: what is served in the place of the store's own;
    ``brokers``, ``place``: of the cluster that it says to be in."""

    def __init__(
        self,
        root: Path | str,
        *,
        security: Security | None = None,
        engine: Callable[[Any], Any] | None = None,
        brokers: Callable[[], Sequence[BrokerInfo]] = no_brokers,
        place: ClusterPlace | None = None,
        **settings: Any,
    ) -> None:
        given = BrokerSettings(data=str(root), listen="127.0.0.1:0", **settings)
        self.security = security or open_security(given, None if str(root) == ":memory:" else str(root))
        self.store = logstore.open(root)
        self.engine = self.store.backend if engine is None else engine(self.store.backend)
        self.broker = Broker(
            self.engine,
            given,
            cluster_id="tests",
            version="0",
            security=self.security,
            brokers=brokers,
            place=place,
        )
        self.port = wait(self.broker.start())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self, **settings: Any) -> RemoteStore:
        return connect(self.address, **settings)

    def close(self) -> None:
        wait(self.broker.stop(0.5))
        self.store.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
