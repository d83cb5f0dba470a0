"""``TopicHandler``: metadata and administration of topics for a caller; a caller sees topics that may be described."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from logstore.api.topics import TopicMetadata
from logstore.errors import UnknownTopicError
from logstore.types import TopicDescription
from rpc.handlers.blocking import Blocking
from rpc.handlers.caller import Authorizer, Caller, Operation, Resource
from rpc.handlers.engine import Engine
from rpc.handlers.waits import Waits


class TopicHandler:
    """Of the event loop alone. The metadata's version is looked at every ``look_s`` while a caller waits for a newer
    one: one timer for all of them."""

    def __init__(
        self,
        engine: Engine,
        blocking: Blocking,
        authorizer: Authorizer,
        waits: Waits,
        *,
        look_s: float = 0.5,
    ) -> None:
        self._engine = engine
        self._blocking = blocking
        self._authorizer = authorizer
        self._waits = waits
        self._look_s = look_s
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._waiting = 0
        self._version = -1

    async def metadata(self, caller: Caller, names: Collection[str]) -> tuple[int, list[TopicMetadata]]:
        """The version, and the topics named, or all that the caller may see. UnknownTopicError."""
        version, topics = await self._blocking.run(self._look)
        if not names:
            return version, [topic for topic in topics.values() if self._may_see(caller, topic.name)]
        found = []
        for name in names:
            if name not in topics or not self._may_see(caller, name):
                raise UnknownTopicError(f"there is no topic {name!r}")
            found.append(topics[name])
        return version, found

    def _look(self) -> tuple[int, Mapping[str, TopicMetadata]]:
        """The version first: what changes between the two is then looked for again."""
        return self._engine.metadata_version(), self._engine.topics()

    def _may_see(self, caller: Caller, name: str) -> bool:
        return self._authorizer.allows(caller, Operation.DESCRIBE, Resource.TOPIC, name)

    async def wait_for_metadata(
        self, caller: Caller, known_version: int, max_wait_s: float
    ) -> tuple[int, list[TopicMetadata]]:
        """As ``metadata``, once there is a newer version, or the time is over."""
        self._waiting += 1
        try:
            async with self._waits.limit(max_wait_s):
                while await self._blocking.run(self._engine.metadata_version) == known_version:
                    if self._watching is None:
                        self._version = known_version
                        self._watching = asyncio.create_task(self._watch())
                    await self._changed.wait()
        except TimeoutError:
            pass  # nothing is newer: the caller gets what there is
        finally:
            self._waiting -= 1
        return await self.metadata(caller, ())

    async def _watch(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._look_s)
            version = await self._blocking.run(self._engine.metadata_version)
            if version != self._version:
                self.note_change()
                self._version = version
        self._watching = None

    def close(self) -> None:
        """End the look at the version."""
        if self._watching is not None:
            self._watching.cancel()

    def note_change(self) -> None:
        """The metadata has changed: those that wait for it look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def create(
        self,
        caller: Caller,
        name: str,
        partitions: int,
        config: Mapping[str, str],
        replication_factor: int | None = None,
    ) -> TopicMetadata:
        self._authorizer.check(caller, Operation.CREATE, Resource.TOPIC, name)
        made = await self._blocking.run(
            self._engine.create_topic, name, partitions, config, replication_factor
        )
        self.note_change()
        return made

    async def add_partitions(self, caller: Caller, name: str, total: int, *, allow_keyed: bool) -> None:
        self._authorizer.check(caller, Operation.ALTER, Resource.TOPIC, name)
        await self._blocking.run(self._engine.add_partitions, name, total, allow_keyed=allow_keyed)
        self.note_change()

    async def alter(self, caller: Caller, name: str, config: Mapping[str, str | None]) -> None:
        self._authorizer.check(caller, Operation.ALTER, Resource.TOPIC, name)
        await self._blocking.run(self._engine.alter_topic, name, config)
        self.note_change()

    async def delete(self, caller: Caller, name: str) -> None:
        self._authorizer.check(caller, Operation.DELETE, Resource.TOPIC, name)
        await self._blocking.run(self._engine.delete_topic, name)
        self.note_change()

    async def describe(self, caller: Caller, name: str) -> TopicDescription:
        self._authorizer.check(caller, Operation.DESCRIBE, Resource.TOPIC, name)
        return await self._blocking.run(self._engine.describe_topic, name)
