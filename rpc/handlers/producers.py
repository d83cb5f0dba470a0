"""``ProducerHandler``: ids and names of producers for a caller."""

from __future__ import annotations

from logstore.api.producers import ProducerLease, ProducerSummary
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import CLUSTER, Authorizer, Caller, Operation, Resource
from rpc.handlers.engine import Engine
from rpc.handlers.leases import Leases


class OpenedName:
    """A named producer that a client has open."""

    def __init__(self, name: str, lease: ProducerLease) -> None:
        self.name = name
        self.lease = lease

    def release(self) -> None:
        self.lease.release()


class ProducerHandler:
    """Of the event loop alone."""

    def __init__(self, engine: Engine, blocking: Blocking, authorizer: Authorizer, leases: Leases) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer
        self._leases = leases

    async def allocate(self, caller: Caller) -> int:
        """A new producer id, for a caller who may write somewhere."""
        self._authorizer.check_any(caller, Operation.WRITE, Resource.TOPIC)
        lease = await self._blocking.run(self._engine.init_producer, None)
        return lease.producer_id

    async def open(self, caller: Caller, name: str) -> tuple[str, ProducerLease]:
        """The opening's id, and the lease itself."""
        self._authorizer.check(caller, Operation.WRITE, Resource.PRODUCER, name)
        lease = await self._blocking.run(self._engine.init_producer, name)
        return self._leases.add(caller, OpenedName(name, lease)), lease

    def _find(self, caller: Caller, lease_id: str) -> ProducerLease:
        """UnknownLeaseError; AccessDeniedError where the caller may not write under the name any more."""
        opened = self._leases.find(caller, lease_id, OpenedName)
        self._authorizer.check(caller, Operation.WRITE, Resource.PRODUCER, opened.name)
        return opened.lease

    async def producer_id(self, caller: Caller, lease_id: str, era: int) -> int:
        return await self._blocking.run(self._find(caller, lease_id).producer_id_of, era)

    async def last_sequence(self, caller: Caller, lease_id: str, topic: str, partition: int) -> int:
        lease = self._find(caller, lease_id)
        self._authorizer.check(caller, Operation.DESCRIBE, Resource.TOPIC, topic)
        return await self._blocking.run(lease.last_sequence, topic, partition)

    async def spread(self, caller: Caller, lease_id: str, topic: str) -> int:
        lease = self._find(caller, lease_id)
        self._authorizer.check(caller, Operation.DESCRIBE, Resource.TOPIC, topic)
        return await self._blocking.run(lease.spread, topic)

    async def list(self, caller: Caller) -> list[ProducerSummary]:
        self._authorizer.check(caller, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER)
        return await self._blocking.run(self._engine.list_producers)

    async def delete(self, caller: Caller, name: str) -> None:
        self._authorizer.check(caller, Operation.DELETE, Resource.PRODUCER, name)
        await self._blocking.run(self._engine.delete_producer, name)
