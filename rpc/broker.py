"""``Broker``: a store, served. The composition root of the handlers and of their gRPC services.

One event loop serves all connections; engine calls, which may wait for the disk, run in a bounded number of threads,
and waits for records or for a sync take none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from replication.cluster.view import BrokerInfo
from rpc.addresses import address_of
from rpc.errors import BrokerConfigError
from rpc.handlers.blocking import Blocking
from rpc.handlers.budget import ByteBudget
from rpc.handlers.cluster import ClusterHandler, ClusterPlace
from rpc.handlers.engine import Engine
from rpc.handlers.fetch import FetchHandler
from rpc.handlers.groups import GroupHandler
from rpc.handlers.leases import Leases
from rpc.handlers.offsets import OffsetHandler
from rpc.handlers.produce import ProduceHandler
from rpc.handlers.producers import ProducerHandler
from rpc.handlers.quota import Quota
from rpc.handlers.records import RecordHandler
from rpc.handlers.security import SecurityHandler
from rpc.handlers.topics import TopicHandler
from rpc.handlers.transactions import TransactionHandler
from rpc.handlers.waits import Waits
from rpc.observability.logs import RequestLog
from rpc.observability.meter import Meter
from rpc.observability.observers import Observers, is_traced
from rpc.quota_rules import DIRECTIONS, Direction
from rpc.security.security import Security
from rpc.servicers.cluster import BrokerFacts, ClusterService, LeaseService, no_brokers
from rpc.servicers.fetch import FetchService
from rpc.servicers.groups import GroupService
from rpc.servicers.health import BrokerHealth, BrokerReflection
from rpc.servicers.offsets import OffsetService
from rpc.servicers.produce import ProduceService
from rpc.servicers.producers import ProducerService
from rpc.servicers.records import RecordService
from rpc.servicers.security import LoginService, SecurityService
from rpc.servicers.service import Observer, Service
from rpc.servicers.topics import TopicService
from rpc.servicers.transactions import TransactionService
from rpc.settings import BrokerSettings

logger = logging.getLogger(__name__)

_SETTLE_S = 1.0  # for calls at work whose callers are gone
_HEADROOM = 1 << 20  # what a message of the largest records has beside them


class Broker:
    """Of one event loop. ``engine``: what is served; it is the caller's to close, after ``stop``. ``brokers``: those of
    the cluster now; it never waits. ``place``: in the cluster, None: this broker is alone."""

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        *,
        cluster_id: str,
        version: str,
        security: Security | None = None,
        brokers: Callable[[], Sequence[BrokerInfo]] = no_brokers,
        place: ClusterPlace | None = None,
    ) -> None:
        self.settings = settings
        self._engine = engine
        self._security = security or Security()
        self._place = place
        self.meter = Meter()
        self._facts = BrokerFacts(
            version=version,
            cluster_id=cluster_id,
            node_id=settings.node_id,
            max_message_bytes=settings.max_message_bytes,
            longest_wait_s=settings.max_wait_s,
            lease_timeout_s=settings.lease_timeout_s,
            brokers=brokers,
        )
        self._blocking = Blocking("broker", settings.threads)
        self._waits = Waits()
        self._budgets: dict[str, ByteBudget] = {}
        self._quotas: dict[Direction, Quota] = {}
        self._health = BrokerHealth(self._waits)
        self._server: grpc.aio.Server | None = None
        self._serving: list[Service] = []
        self.port = 0

    async def start(self) -> int:
        """Listen and serve; the port. BrokerConfigError where the address cannot be listened on."""
        settings = self.settings
        server = self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", settings.max_message_bytes + _HEADROOM),
                ("grpc.max_send_message_length", settings.max_message_bytes + _HEADROOM),
                ("grpc.max_metadata_size", 16 << 10),
                ("grpc.max_concurrent_streams", settings.max_connection_calls),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", 20_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.http2.ping_timeout_ms", 10_000),
                # A busy machine hands several pings on at once: they cost less than a connection made anew.
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.keepalive_permit_without_calls", 1),
            ],
            maximum_concurrent_rpcs=settings.max_calls,
        )
        services = self._serving = self._services()
        for service in services:
            server.add_generic_rpc_handlers((service.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [service.name for service in services]
        shown = [*names, health.SERVICE_NAME, reflection.SERVICE_NAME]
        mirror = BrokerReflection(shown, self._waits)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(mirror, server)  # type: ignore[no-untyped-call]
        self.port = self._listen(server)
        await server.start()
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return self.port

    def _listen(self, server: grpc.aio.Server) -> int:
        address = address_of(*self.settings.address)
        try:
            if self._security.credentials is None:
                found = server.add_insecure_port(address)
            else:
                found = server.add_secure_port(address, self._security.credentials())
        except RuntimeError as error:
            raise BrokerConfigError(
                f"cannot listen on {address}: {error}",
                hint="another process may use the port; port 0 takes any free one",
            ) from error
        return found

    def _services(self) -> list[Service]:
        engine, blocking, authorizer, settings = (
            self._engine,
            self._blocking,
            self._security.authorizer,
            self.settings,
        )
        identify, observe, longest_s = self._security.identify, self._observer(), settings.max_wait_s
        waits = self._waits
        produced = ByteBudget("produce", settings.produce_bytes, settings.produce_connection_bytes)
        streams_bytes, one_bytes = settings.fetch_bytes // 2, settings.fetch_connection_bytes
        fetched = ByteBudget("fetch", settings.fetch_bytes - streams_bytes, one_bytes)
        streamed = ByteBudget("fetch-stream", streams_bytes, one_bytes)
        self._quotas = {
            name: Quota(
                name,
                settings.quota_rules,
                settings.quota_burst_s,
                settings.quota_callers,
                waits,
                time.monotonic,
            )
            for name in DIRECTIONS
        }
        self._budgets = {"produce": produced, "fetch": fetched, "fetch-stream": streamed}
        self._leases = Leases(blocking, waits, settings.lease_timeout_s)
        self._groups = GroupHandler(engine, blocking, authorizer, waits)
        self._topics = TopicHandler(engine, blocking, authorizer, waits)
        self._records = RecordHandler(engine, blocking, authorizer, waits, longest_s)
        produce = ProduceHandler(engine, blocking, authorizer, produced, self._quotas["produce"], longest_s)
        fetch = FetchHandler(
            engine, blocking, authorizer, waits, self._quotas["fetch"], longest_s, settings.fetch_answer_bytes
        )
        producers = ProducerHandler(engine, blocking, authorizer, self._leases)
        transactions = TransactionHandler(engine, blocking, authorizer, self._leases)
        return [
            ClusterService(self._facts, self._cluster_handler(), identify, observe),
            LeaseService(self._leases, identify, observe),
            ProduceService(produce, produced, waits, identify, observe),
            FetchService(fetch, fetched, streamed, waits, identify, observe),
            TopicService(self._topics, identify, observe, longest_s),
            OffsetService(OffsetHandler(engine, blocking, authorizer), identify, observe),
            RecordService(self._records, identify, observe),
            GroupService(self._groups, identify, observe),
            ProducerService(producers, identify, observe),
            TransactionService(transactions, identify, observe),
            *self._security_services(observe),
        ]

    def _cluster_handler(self) -> ClusterHandler:
        settings, (host, _) = self.settings, self.settings.address
        return ClusterHandler(
            self._engine,
            self._blocking,
            self._security.authorizer,
            self._facts.cluster_id,
            lambda: BrokerInfo(settings.node_id, host, self.port, settings.rack, True),
            self._place,
            settings.max_wait_s,
        )

    def _observer(self) -> Observer:
        observers: list[Observer] = [self.meter, RequestLog(self.settings.slow_request_s)]
        if is_traced():
            from rpc.observability.tracing import Tracing

            observers.append(Tracing())
        return Observers(observers)

    def _security_services(self, observe: Observer) -> list[Service]:
        security = self._security
        handler = SecurityHandler(security.access, self._blocking, security.authorizer, security.audit)
        services: list[Service] = [SecurityService(handler, security.identify, observe)]
        if security.logins is not None:
            services.append(LoginService(security.logins, observe))
        return services

    def held_bytes(self) -> dict[str, int]:
        """Bytes of requests and answers under way, by budget."""
        return {name: budget.taken_bytes for name, budget in self._budgets.items()}

    def refusals(self) -> dict[str, int]:
        """Calls answered "busy" since the start, or held back by a quota, by reason."""
        return {
            **{f"{name}-budget": budget.refused for name, budget in self._budgets.items()},
            **{f"{name}-quota": quota.held_back for name, quota in self._quotas.items()},
        }

    async def stop(self, drain_s: float | None = None) -> None:
        """Take no new calls, answer those that wait, let those at work end for at most ``drain_s`` (None: the setting),
        then end the rest, and release what clients hold."""
        server = self._server
        if server is None:
            return
        await self._health.enter_graceful_shutdown()
        self._waits.end()
        await server.stop(self.settings.drain_s if drain_s is None else drain_s)
        for service in self._serving:
            await service.repetitions.settle(_SETTLE_S)
        self._topics.close()
        await self._records.close()
        await self._groups.close()
        await self._leases.close()
        await asyncio.to_thread(self._blocking.close)
        self._server = None

    async def serve(self) -> None:
        """Until ``stop``."""
        if self._server is not None:
            await self._server.wait_for_termination()
