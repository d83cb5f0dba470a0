"""``TransactionHandler``: transactional ids for a caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from logstore.api.groups import MemberIdentity
from logstore.api.transactions import HangingTransaction, PreparedTransaction, TransactionSummary
from logstore.machine import TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from rpc.errors import UnknownLeaseError, UnsupportedFeatureError
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import CLUSTER, Authorizer, Caller, Operation, Resource, topics_in
from rpc.handlers.engine import Engine, Resuming, SharedLease
from rpc.handlers.leases import Leases


class OpenedId:
    """A transactional id that a client has open."""

    def __init__(self, transactional_id: str, lease: SharedLease) -> None:
        self.transactional_id = transactional_id
        self.lease = lease

    def release(self) -> None:
        self.lease.release()


class TransactionHandler:
    """Of the event loop alone. Every method but those of administration gives the lease: its producer id and epoch."""

    def __init__(self, engine: Engine, blocking: Blocking, authorizer: Authorizer, leases: Leases) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer
        self._leases = leases

    async def open(
        self,
        caller: Caller,
        transactional_id: str,
        timeout_ms: int,
        *,
        coordinator: str | None = None,
        keep_prepared: bool = False,
    ) -> tuple[str, SharedLease]:
        """The opening's id, and the lease."""
        self._check(caller, transactional_id)
        if coordinator is not None:
            self._check(caller, coordinator)
        lease = await self._blocking.run(
            self._engine.init_transactions,
            transactional_id,
            timeout_ms,
            coordinator=coordinator,
            keep_prepared=keep_prepared,
        )
        return self._add(caller, transactional_id, lease), lease

    def _add(self, caller: Caller, transactional_id: str, lease: SharedLease) -> str:
        opened, moves = OpenedId(transactional_id, lease), isinstance(self._engine, Resuming)
        return self._leases.add(caller, opened, lease.ended_by, of=lease, moves=moves)

    async def resume(
        self,
        caller: Caller,
        transactional_id: str,
        timeout_ms: int,
        writer: TransactionalWriter,
        *,
        coordinator: str | None = None,
    ) -> tuple[str, SharedLease]:
        """As ``open``, of an opening that is taken up as it is. UnsupportedFeatureError where coordinators stay."""
        self._check(caller, transactional_id)
        if coordinator is not None:
            self._check(caller, coordinator)
        engine = self._engine
        if not isinstance(engine, Resuming):
            raise UnsupportedFeatureError(
                f"the opening of transactional id {transactional_id!r} has ended with the broker that had it",
                hint="open the id again: what it had under way is aborted then",
            )
        lease = await self._blocking.run(
            engine.resume_transactions,
            transactional_id,
            timeout_ms,
            writer.producer_id,
            writer.epoch,
            coordinator,
        )
        return self._add(caller, transactional_id, lease), lease

    def _check(self, caller: Caller, transactional_id: str) -> None:
        self._authorizer.check(caller, Operation.WRITE, Resource.TRANSACTION, transactional_id)

    def _find(self, caller: Caller, lease_id: str) -> SharedLease:
        """UnknownLeaseError; AccessDeniedError where the caller may not write under the id any more."""
        opened = self._leases.find(caller, lease_id, OpenedId)
        self._check(caller, opened.transactional_id)
        # Closed by another lease of the same opening: the caller, whose own lease is alive, takes the opening up again.
        if opened.lease.is_closed:
            raise UnknownLeaseError(f"the opening of {opened.transactional_id!r} is not held here any more")
        return opened.lease

    async def begin(self, caller: Caller, lease_id: str, writer: TransactionalWriter | None) -> SharedLease:
        lease = self._find(caller, lease_id)
        await self._blocking.run(lease.begin, writer)
        return lease

    async def add_partitions(
        self,
        caller: Caller,
        lease_id: str,
        places: Collection[TopicPartition],
        writer: TransactionalWriter | None,
        *,
        offsets: bool,
    ) -> SharedLease:
        lease = self._find(caller, lease_id)
        for topic in {place.topic for place in places}:
            self._authorizer.check(caller, Operation.WRITE, Resource.TOPIC, topic)
        await self._blocking.run(lease.add_partitions, places, offsets=offsets, writer=writer)
        return lease

    async def send_offsets(
        self,
        caller: Caller,
        lease_id: str,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None,
        writer: TransactionalWriter | None,
    ) -> SharedLease:
        lease = self._find(caller, lease_id)
        self._authorizer.check(caller, Operation.READ, Resource.GROUP, group)
        for topic in topics_in(offsets):
            self._authorizer.check(caller, Operation.READ, Resource.TOPIC, topic)
        await self._blocking.run(lease.send_offsets, group, offsets, member, writer)
        return lease

    async def prepare(
        self, caller: Caller, lease_id: str, writer: TransactionalWriter | None
    ) -> PreparedTransaction | None:
        return await self._blocking.run(self._find(caller, lease_id).prepare, writer)

    async def end(
        self,
        caller: Caller,
        lease_id: str,
        writer: TransactionalWriter | None,
        *,
        commit: bool,
        prepared: Collection[PreparedTransaction] = (),
    ) -> SharedLease:
        """AccessDeniedError also where the caller may not write under the id of a participant."""
        lease = self._find(caller, lease_id)
        for transactional_id in {one.transactional_id for one in prepared}:
            self._check(caller, transactional_id)
        await self._blocking.run(lease.end, commit=commit, prepared=prepared, writer=writer)
        return lease

    async def release(self, caller: Caller, lease_id: str) -> None:
        await self._leases.release(caller, [lease_id])

    # --- administration ---

    async def abort(self, caller: Caller, transactional_id: str) -> TransactionSummary:
        self._authorizer.check(caller, Operation.ALTER, Resource.TRANSACTION, transactional_id)
        return await self._blocking.run(self._engine.abort_transaction, transactional_id)

    async def find_hanging(self, caller: Caller, topics: Collection[str]) -> list[HangingTransaction]:
        self._authorizer.check(caller, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER)
        return await self._blocking.run(self._engine.find_hanging, topics or None)

    async def end_hanging(self, caller: Caller, hanging: HangingTransaction) -> None:
        self._authorizer.check(caller, Operation.ALTER, Resource.CLUSTER, CLUSTER)
        await self._blocking.run(self._engine.end_hanging, hanging)

    async def list(self, caller: Caller) -> list[TransactionSummary]:
        found = await self._blocking.run(self._engine.list_transactions)
        return [
            one._replace(places=tuple(place for place in one.places if self._sees(caller, place)))
            for one in found
            if self._authorizer.allows(caller, Operation.DESCRIBE, Resource.TRANSACTION, one.transactional_id)
        ]

    def _sees(self, caller: Caller, place: TopicPartition) -> bool:
        return self._authorizer.allows(caller, Operation.DESCRIBE, Resource.TOPIC, place.topic)
