"""``BrokerHealth`` and ``BrokerReflection``: gRPC's own services, whose streams end when the broker stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from rpc.errors import BrokerUnavailableError
from rpc.handlers.waits import Waits


class BrokerHealth(health.aio.HealthServicer):
    """``grpc.health.v1``. Of the event loop alone."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self._waits = waits
        self._statuses: dict[str, int] = {}
        self._changed = asyncio.Event()

    async def set(self, service: str, status: int) -> None:
        await super().set(service, status)
        self._statuses[service] = status
        self._changed.set()
        self._changed = asyncio.Event()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802 - gRPC's name
        """gRPC's own has no end. This one's last word is NOT_SERVING, when the broker stops."""
        told: int | None = None
        while not self._waits.over:
            status = self._statuses.get(request.service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            if status != told:
                await context.write(health_pb2.HealthCheckResponse(status=status))
                told = status
                continue  # it may have changed meanwhile
            await self._waits.wait(self._changed.wait(), None)
        await context.write(health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING))


class BrokerReflection(reflection_pb2_grpc.ServerReflectionServicer):
    """``grpc.reflection.v1alpha``. ``names``: of the services that are told of."""

    def __init__(self, names: Iterable[str], waits: Waits) -> None:
        # gRPC's annotations call its generator a coroutine.
        self._reflection: Any = reflection.aio.ReflectionServicer(names)
        self._waits = waits

    async def ServerReflectionInfo(  # noqa: N802 - gRPC's name
        self, requests: AsyncIterator[reflection_pb2.ServerReflectionRequest], context: Any
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        try:
            wanted = self._waits.until_end(aiter(requests))
            async for answer in self._reflection.ServerReflectionInfo(wanted, context):
                yield answer
        except BrokerUnavailableError:
            return  # the broker stops: all that was asked is answered
