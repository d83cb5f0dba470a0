"""``TableView``: a table at one moment, which changes no more."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from logstore.client.arrow import DecodeTexts
from logstore.client.table.arrow import KeyColumns, keys_to_arrow
from logstore.client.table.partition_map import PartitionMap
from logstore.client.table.values import Keys, ValueReader
from logstore.errors import CompactedAwayError
from logstore.types import V

if TYPE_CHECKING:
    import pyarrow as pa


class StoredRow(NamedTuple):
    """A key's newest record: where it is, and its value as stored."""

    partition: int
    offset: int
    key: bytes
    value: bytes


class Newest(Protocol):
    """The table that a view was taken of."""

    def stored_row(self, key: bytes) -> StoredRow | None:
        """None: there is no such key."""
        ...


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
        newest: Newest | None = None,
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
        partition, offset, value = found
        if value is None:
            value = self._reader.stored(partition, offset)
        if value is None:
            if self._newest is None:
                raise _gone(key, partition, offset)
            newer = self._newest.stored_row(key)
            if newer is None:
                raise KeyError(key)
            partition, offset, _, value = newer
        made: V = self._reader.made(partition, offset, value)
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
            if held.with_values:
                entries = held.entries
                for key in self._shown(partition):
                    offset, value = entries[key]
                    yield key, made(partition, offset, value)
            else:
                for row in self._stored(partition, held):
                    yield row.key, made(row.partition, row.offset, row.value)

    def _stored(self, partition: int, held: PartitionMap) -> Iterator[StoredRow]:
        entries = held.entries
        places = sorted((entries[key], key) for key in self._shown(partition))
        for key, value in self._reader.stored_run(partition, places):
            if value is not None:
                yield StoredRow(partition, entries[key], key, value)
            elif self._newest is None:
                raise _gone(key, partition, entries[key])
            elif (newer := self._newest.stored_row(key)) is not None:  # else it was deleted since
                yield newer

    def columns(self) -> Iterator[KeyColumns]:
        """Keys with their stored values, by partition."""
        for partition, held in self._maps.items():
            if held.with_values:
                keys = list(self._shown(partition))
                found: list[tuple[int, bytes]] = list(map(held.entries.__getitem__, keys))
                yield KeyColumns(partition, keys, [at for at, _ in found], [value for _, value in found])
            else:
                rows = list(self._stored(partition, held))
                for number in sorted({row.partition for row in rows}):
                    some = [row for row in rows if row.partition == number]
                    yield KeyColumns(
                        number,
                        [row.key for row in some],
                        [row.offset for row in some],
                        [row.value for row in some],
                    )

    def to_arrow(self, *, decode: DecodeTexts | None = None) -> pa.Table:
        """Columns ``key``, ``value``, ``partition``, ``offset``; the stored bytes, whatever the deserializer, or
        text: ``decode={"key": "utf8", "value": "utf8"}``. ``MissingExtraError`` without pyarrow,
        ``PoisonRecordError`` for bytes that are not UTF-8."""
        return keys_to_arrow(self._reader.topic, self.columns(), decode)

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
