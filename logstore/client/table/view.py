"""``TableView``: a table at one moment, which changes no more."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any

from logstore.client.table.partition_map import PartitionMap
from logstore.client.table.values import Keys, ValueReader
from logstore.errors import CompactedAwayError
from logstore.types import V

_MISSING: Any = object()


class TableView(Mapping[bytes, V]):
    """A read-only mapping of keys to values as they were. Thread-safe.

    ``positions``: by partition the offset up to which it tells. Where the table keeps its values on disk
    (``max_memory_bytes``) so does this: ``CompactedAwayError`` for a value that compaction has removed since.
    """

    def __init__(
        self,
        maps: dict[int, PartitionMap],
        keys: Keys,
        reader: ValueReader,
        newest: Mapping[bytes, V] | None = None,
    ) -> None:
        """``newest``: asked for a value that is gone, since it was replaced meanwhile."""
        self._maps = maps
        self._keys = keys
        self._reader = reader
        self._newest = newest
        self._hidden = keys.shadowed(maps)
        self.positions = {partition: held.position for partition, held in maps.items()}

    def __getitem__(self, key: bytes) -> V:
        found = self._keys.find(self._maps, key)
        if found is None:
            raise KeyError(key)
        value = found.value
        if value is None:
            value = self._reader.stored(found.partition, found.offset)
        if value is None:
            if self._newest is not None:
                return self._newest[key]
            raise _gone(key, found.partition, found.offset)
        made: V = self._reader.made(found.partition, found.offset, value)
        return made

    def __contains__(self, key: object) -> bool:
        return self._keys.find(self._maps, key) is not None  # type: ignore[arg-type]

    def __len__(self) -> int:
        every = sum(len(held.entries) for held in self._maps.values())
        return every - sum(map(len, self._hidden.values()))

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self._shown(partition) for partition in self._maps)

    def _shown(self, partition: int) -> Iterator[bytes]:
        entries = self._maps[partition].entries
        hidden = self._hidden.get(partition)
        return iter(entries) if not hidden else (key for key in entries if key not in hidden)

    def place(self, key: bytes) -> tuple[int, int]:
        """(partition, offset) of the key's newest record. ``KeyError``."""
        found = self._keys.find(self._maps, key)
        if found is None:
            raise KeyError(key)
        return found.partition, found.offset

    def items(self) -> ItemsView[bytes, V]:
        return _Items(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def pairs(self) -> Iterator[tuple[bytes, V]]:
        """Keys and values; what is on disk is read in the order of the log."""
        made = self._reader.made
        for partition, held in self._maps.items():
            entries = held.entries
            if held.with_values:
                for key in self._shown(partition):
                    offset, value = entries[key]
                    yield key, made(partition, offset, value)
                continue
            places = sorted((entries[key], key) for key in self._shown(partition))
            for key, value in self._reader.stored_run(partition, places):
                if value is not None:
                    yield key, made(partition, entries[key], value)
                elif self._newest is None:
                    raise _gone(key, partition, entries[key])
                elif (newer := self._newest.get(key, _MISSING)) is not _MISSING:  # else it was deleted since
                    yield key, newer

    def __repr__(self) -> str:
        return f"TableView({len(self)} keys, positions={self.positions})"


def _gone(key: bytes, partition: int, offset: int) -> CompactedAwayError:
    return CompactedAwayError(
        f"the value of key {key!r} as it was at partition {partition} offset {offset} has been removed since",
        hint="a table without max_memory_bytes keeps values in memory, also those of its former states",
        partition=partition,
        offset=offset,
    )


class _Items(ItemsView[bytes, V]):
    def __init__(self, view: TableView[V]) -> None:
        super().__init__(view)
        self._view = view

    def __iter__(self) -> Iterator[tuple[bytes, V]]:
        return self._view.pairs()


class _Values(ValuesView[V]):
    def __init__(self, view: TableView[V]) -> None:
        super().__init__(view)
        self._view = view

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._view.pairs())

    def __contains__(self, value: Any) -> bool:
        return any(found == value for found in self)
