"""``AsyncTable``: ``logstore.KeyTable`` for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Generic

from logstore.aio.calls import InThread, Submit, Waits, to_the_end
from logstore.client.table.table import KeyTable
from logstore.client.table.view import TableView
from logstore.types import V


class AsyncTable(Waits, Generic[V]):
    """The latest value of each key of a topic. A mapping cannot be awaited, so ``table[key]`` is ``await
    table.get(key)`` here, and ``keys``, ``values`` and ``items`` give lists, of one moment."""

    def __init__(self, twin: KeyTable[V], submit: Submit) -> None:
        self._twin: KeyTable[V] = twin
        self._submit = submit
        self._closed = False

    @property
    def topic(self) -> str:
        return self._twin.topic

    async def get(self, key: bytes, default: V | None = None) -> V | None:
        """The key's latest value, ``default`` if it has none."""
        return await self._call(partial(self._twin.get, key, default))

    async def keys(self) -> list[bytes]:
        return await self._call(lambda: list(self._twin))

    async def values(self) -> list[V]:
        return await self._call(lambda: list(self._twin.values()))

    async def items(self) -> list[tuple[bytes, V]]:
        return await self._call(lambda: list(self._twin.items()))

    async def count(self) -> int:
        """How many keys it has: ``len`` of a ``KeyTable``."""
        return await self._call(lambda: len(self._twin))

    async def positions(self) -> dict[int, int]:
        """By partition, the offset up to which records are in the table."""
        return await self._call(lambda: self._twin.positions)

    async def memory_bytes(self) -> int | None:
        """With ``max_memory_bytes`` what the keys take now, about; else None."""
        return await self._call(lambda: self._twin.memory_bytes)

    stored_row = InThread(KeyTable.stored_row)
    place = InThread(KeyTable.place)
    refresh = InThread(KeyTable.refresh)
    rebuild = InThread(KeyTable.rebuild)
    wait_for = InThread(KeyTable.wait_for)
    to_arrow = InThread(KeyTable.to_arrow)
    save = InThread(KeyTable.save)

    async def frozen(self) -> TableView[V]:
        """The table as it is now. With ``max_memory_bytes`` the view reads values from disk: in a thread, please."""
        return await self._call(self._twin.frozen)

    async def as_of(self, when: Mapping[int, int] | int | datetime) -> TableView[V]:
        """The table as it was; see ``KeyTable.as_of``."""
        return await self._call(partial(self._twin.as_of, when))

    async def close(self) -> None:
        """Save the snapshot if there is one to keep, also for a task that is cancelled meanwhile."""
        if not self._closed:
            self._closed = True
            await to_the_end(self._submit(self._twin.close))

    async def __aenter__(self) -> AsyncTable[V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
