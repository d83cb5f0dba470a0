"""``OffsetHandler``: offsets of partitions, and those that groups have committed, for a caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from logstore.api.groups import MemberIdentity
from logstore.api.records import ListedOffset, OffsetSpec
from logstore.types import Isolation, OffsetAndMetadata, PartitionDescription, TopicPartition
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import Authorizer, Caller, Operation, Resource, topics_in
from rpc.handlers.engine import Engine


class OffsetHandler:
    """Of the event loop alone."""

    def __init__(self, engine: Engine, blocking: Blocking, authorizer: Authorizer) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer

    def _check_topics(self, caller: Caller, places: Collection[TopicPartition]) -> None:
        for topic in {place.topic for place in places}:
            self._authorizer.check(caller, Operation.DESCRIBE, Resource.TOPIC, topic)

    async def list_offsets(
        self, caller: Caller, places: Collection[TopicPartition], spec: OffsetSpec, isolation: Isolation
    ) -> dict[TopicPartition, ListedOffset]:
        self._check_topics(caller, places)
        return await self._blocking.run(self._engine.list_offsets, places, spec, isolation)

    async def describe(
        self, caller: Caller, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, PartitionDescription]:
        self._check_topics(caller, places)
        return await self._blocking.run(self._engine.describe_partitions, places)

    async def commit(
        self,
        caller: Caller,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: MemberIdentity | None,
    ) -> None:
        self._authorizer.check(caller, Operation.READ, Resource.GROUP, group)
        for topic in topics_in(offsets):
            self._authorizer.check(caller, Operation.READ, Resource.TOPIC, topic)
        await self._blocking.run(self._engine.commit_offsets, group, offsets, member=member)

    async def committed(
        self, caller: Caller, group: str
    ) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], Collection[TopicPartition]]:
        """The group's offsets, and the partitions where one is in an open transaction: of topics that the caller may
        describe."""
        self._authorizer.check(caller, Operation.DESCRIBE, Resource.GROUP, group)
        committed = await self._blocking.run(self._engine.committed_offsets, group)
        unstable = await self._blocking.run(self._engine.unstable_offsets, group)
        return {place: one for place, one in committed.items() if self._sees(caller, place)}, [
            place for place in unstable if self._sees(caller, place)
        ]

    def _sees(self, caller: Caller, place: TopicPartition) -> bool:
        return all(
            self._authorizer.allows(caller, Operation.DESCRIBE, Resource.TOPIC, topic)
            for topic in topics_in([place])
        )
