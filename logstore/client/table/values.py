"""Values of a table: from a map's entry to what the caller gets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from logstore.api.backend import Backend
from logstore.api.records import FetchRequest, FetchResult
from logstore.client.partitioner import KeyPartitioner, key_partitioner
from logstore.client.serializers import Deserializer
from logstore.client.table.partition_map import PartitionMap
from logstore.errors import OffsetOutOfRangeError, PoisonRecordError, RecordTypeError, SegmentVanishedError
from logstore.format.batch import data_batches, decode_batches, records_section
from logstore.format.record import decode_rows
from logstore.format.record_spans import joined, key_column
from logstore.types import Isolation

_RUN_BYTES = 1 << 20
_TRIES = 5


class Found(NamedTuple):
    partition: int
    offset: int
    value: bytes | None  # None: it is in the log only


class Keys:
    """Which of the maps knows a key. One key has its records in one partition; where several have some (partitions
    were added, or a producer chose them by hand) the partition that the topic's partitioner names counts, then
    the lowest."""

    def __init__(self, partitioner: str, partitions: int) -> None:
        self._home: KeyPartitioner | None = None
        if partitions > 1 and partitioner != "round_robin":
            self._home = key_partitioner(partitioner, partitions)

    def find(self, maps: dict[int, PartitionMap], key: bytes) -> Found | None:
        if not isinstance(key, bytes):
            raise RecordTypeError(f"the key of a table is {type(key).__name__}", hint="keys are bytes")
        if self._home is not None:
            home = self._home(key)
            if home in maps and key in maps[home].entries:
                return _found(home, maps[home], key)
        for partition, held in maps.items():
            if key in held.entries:
                return _found(partition, held, key)
        return None

    def shadowed(self, maps: dict[int, PartitionMap]) -> dict[int, set[bytes]]:
        """By partition the keys that count in another one."""
        if len(maps) < 2:
            return {}
        seen: set[bytes] = set()
        twice: set[bytes] = set()
        for held in maps.values():
            twice |= held.entries.keys() & seen
            seen |= held.entries.keys()
        hidden: dict[int, set[bytes]] = {}
        for key in twice:
            winner = self.find(maps, key)
            for partition, held in maps.items():
                if key in held.entries and winner is not None and partition != winner.partition:
                    hidden.setdefault(partition, set()).add(key)
        return hidden


def _found(partition: int, held: PartitionMap, key: bytes) -> Found:
    entry = held.entries[key]
    return Found(partition, entry[0], entry[1]) if held.with_values else Found(partition, entry, None)


class ValueReader:
    """Thread-safe."""

    def __init__(
        self, backend: Backend, topic: str, isolation: Isolation, deserializer: Deserializer[Any] | None
    ) -> None:
        self._backend = backend
        self.topic = topic
        self._isolation: Isolation = isolation
        self._deserializer = deserializer

    def made(self, partition: int, offset: int, value: bytes) -> Any:
        """``PoisonRecordError`` when the deserializer refuses it."""
        if self._deserializer is None:
            return value
        try:
            return self._deserializer(value)
        except Exception as error:
            raise PoisonRecordError(
                f"the value at {self.topic}-{partition} offset {offset} could not be deserialized: {error!r}",
                hint="fix the deserializer, or write another value for the key",
                topic=self.topic,
                partition=partition,
                offset=offset,
            ) from error

    def stored(self, partition: int, offset: int) -> bytes | None:
        """The value in the log; None: the record is gone."""
        batches = self._fetch(partition, offset, 1).batches
        for position, header in data_batches(batches, offset, offset + 1, check=True):
            section = records_section(batches, position, header)
            column = key_column(section, header.records_count)
            number = bisect_left(column.deltas, offset - header.base_offset)
            if number < len(column.deltas) and column.deltas[number] == offset - header.base_offset:
                alone = joined(section, column.bounds, [number])
                value: bytes | None = decode_rows(alone, 1, header.base_offset, 0, "", 0, 0)[0].value
                return value
        return None

    def stored_run(
        self, partition: int, places: Sequence[tuple[int, bytes]], max_bytes: int = _RUN_BYTES
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys with their values in the log, None for one that is gone. ``places``: offsets that grow, and their
        keys. Each batch is read once."""
        values: dict[int, bytes | None] = {}
        reach = -1
        for offset, key in places:
            if offset >= reach:
                result = self._fetch(partition, offset, max_bytes)
                records = decode_batches(result.batches, self.topic, partition, start_offset=offset)
                values = {record.offset: record.value for record in records}
                reach = max(result.next_offset, offset + 1)
            yield key, values.get(offset)

    def _fetch(self, partition: int, offset: int, max_bytes: int) -> FetchResult:
        request = FetchRequest(self.topic, partition, offset, -1, max_bytes)
        tries = _TRIES
        while True:
            (result,) = self._backend.fetch(
                [request], isolation=self._isolation, min_bytes=0, max_bytes=max_bytes, max_wait_s=0
            )
            if result.error is None:
                return result
            if isinstance(result.error, OffsetOutOfRangeError):
                return result._replace(batches=b"", next_offset=offset + 1, error=None)
            tries -= 1
            if not tries or not isinstance(result.error, SegmentVanishedError):
                raise result.error
