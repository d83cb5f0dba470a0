"""One partition over the data plane alone: what a client of brokers would give as ``client.partition()``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from logstore.api.data_plane import DataPlane
from logstore.api.records import FetchRequest, FetchResult, ProduceItem
from logstore.format.batch import decode_batches, encode_batch
from logstore.types import Acks, Isolation, PartitionDescription, Record, TopicPartition

NOW_MS = 1_700_000_000_000
CHUNK_BYTES = 4096


class PlanePartition:
    def __init__(self, plane: DataPlane, topic: str, partition: int) -> None:
        self.plane = plane
        self.place = TopicPartition(topic, partition)

    def append(self, rows: Sequence[Any], *, acks: Acks = "all", expected_offset: int | None = None) -> int:
        batch = encode_batch(rows, now_ms=NOW_MS)
        item = ProduceItem(*self.place, batch, expected_offset=expected_offset)
        (result,) = self.plane.produce([item], acks, 30)
        if result.error is not None:
            raise result.error
        return result.base_offset

    def fetch(self, offset: int, isolation: Isolation, *, reverse: bool = False) -> FetchResult:
        (result,) = self.plane.fetch(
            [FetchRequest(*self.place, offset, -1, CHUNK_BYTES, reverse)],
            isolation=isolation,
            min_bytes=1,
            max_bytes=CHUNK_BYTES,
            max_wait_s=0,
        )
        if result.error is not None:
            raise result.error
        return result

    def describe(self) -> PartitionDescription:
        return self.plane.describe_partitions([self.place])[self.place]

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        return self.plane.list_offsets([self.place], timestamp_ms, "read_committed")[self.place].offset

    def records(
        self, start: int, end: int, *, isolation: Isolation = "read_committed", reverse: bool = False
    ) -> Iterator[Record]:
        offset = end if reverse else start
        while start < offset if reverse else offset < end:
            result = self.fetch(offset, isolation, reverse=reverse)
            if result.next_offset == offset:
                return
            low, high = (start, offset) if reverse else (offset, end)
            found = decode_batches(result.batches, *self.place, start_offset=low, end_offset=high)
            yield from reversed(found) if reverse else found
            offset = result.next_offset
            if reverse and offset <= result.log_start_offset:
                return

    def last(self, count: int, *, isolation: Isolation = "read_committed") -> list[Record]:
        """The newest records, oldest first: markers, gaps and aborted ones do not count."""
        spec = "latest"
        end = self.plane.list_offsets([self.place], spec, isolation)[self.place].offset or 0
        start = self.describe().log_start_offset
        newest = self.records(start, end, isolation=isolation, reverse=True)
        return list(islice(newest, count))[::-1]
