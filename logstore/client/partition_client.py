"""``PartitionClient``: one partition as a log, over any ``Backend``: what ``client.partition(topic, n)`` hands out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from logstore.api.backend import Backend
from logstore.api.records import FetchRequest, FetchResult, ProduceItem
from logstore.arguments import INT64_MAX, shown, truth, whole
from logstore.errors import InvalidArgumentError, OffsetOutOfRangeError, RecordTooLargeError, RecordTypeError
from logstore.format.batch import decode_batches, decode_each, encode_with_header, read_header
from logstore.format.compression import MAX_DECOMPRESSED_BYTES
from logstore.format.rows import check_all_keyed, check_rows, check_sizes, cut, row_sizes
from logstore.seams.clock import Clock
from logstore.types import (
    Acks,
    Buffer,
    Isolation,
    PartitionDescription,
    Record,
    RecordMetadata,
    Row,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow

_SCAN_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 120.0


class PartitionClient:
    """The verbs of ``logstore.PartitionLog`` at brokers. Any thread may use it.

    ``append`` is one batch here, whole or not at all; larger calls are for a producer. Errors as those of
    ``PartitionLog``, and those of a connection: after OutcomeUnknownError the rows are in or not.
    """

    def __init__(self, backend: Backend, clock: Clock, topic: str, partition: int) -> None:
        self._backend = backend
        self._clock = clock
        self.topic = topic
        self.partition = whole(partition, "partition", 0, 2**31 - 1)
        self._place = TopicPartition(topic, self.partition)
        self.where = f"{topic}-{partition}"
        self.describe()  # the topic and the partition are there

    def __repr__(self) -> str:
        return f"PartitionClient({self.topic!r}, {self.partition})"

    # --- write ---

    def append(
        self, rows: Sequence[Row], *, acks: Acks = "all", expected_offset: int | None = None
    ) -> RecordMetadata:
        """Append ``(key, value[, headers[, timestamp_ms]])`` rows with consecutive offsets; metadata of the first.
        ``expected_offset``: append only if the log ends there, else OffsetMismatchError. RecordTooLargeError where the
        rows are more than one batch holds."""
        if not isinstance(rows, Sequence) or isinstance(rows, str | bytes | bytearray | memoryview):
            raise RecordTypeError(
                f"append to {self.where}: rows are {type(rows).__name__}",
                hint="pass a list of (key, value) rows",
            )
        if expected_offset is not None:
            expected_offset = whole(expected_offset, "expected_offset")
        now_ms = self._clock.wall_ms()
        topic = self._backend.topic(self.topic)
        checked = check_rows(self.where, rows)
        if not checked.rows:
            raise InvalidArgumentError(f"append to {self.where}: no rows", hint="pass at least one row")
        if topic.compacts:
            check_all_keyed(self.where, checked)
        limit, sizes = topic.max_message_bytes, row_sizes(checked, checked.rows)
        check_sizes(self.where, checked, limit, topic.size_setting, sizes)
        chunks = list(cut(checked.rows, sizes, checked.timestamped, limit, limit))
        if len(chunks) > 1:
            raise RecordTooLargeError(
                f"append to {self.where}: {len(checked.rows)} rows are {len(chunks)} batches of at most {limit} bytes",
                hint="append fewer at once, or send them with a producer",
            )
        codec = "none" if topic.compression == "producer" else topic.compression
        data, header = encode_with_header(checked.rows, now_ms, codec)
        given = rows[0][3] if len(rows[0]) > 3 else None
        item = ProduceItem(*self._place, data, header, expected_offset)
        return self._produce(item, acks, now_ms if given is None else int(given))

    def append_batch(self, buffer: Buffer, *, acks: Acks = "all") -> RecordMetadata:
        """Append one encoded batch (record batch v2) as it is; the broker proves every record of it."""
        if not isinstance(buffer, bytes | bytearray | memoryview):
            raise RecordTypeError(
                f"append to {self.where}: the batch is {type(buffer).__name__}", hint="pass encoded bytes"
            )
        header = read_header(buffer)
        return self._produce(ProduceItem(*self._place, buffer), acks, header.base_timestamp)

    def _produce(self, item: ProduceItem, acks: Acks, timestamp_ms: int) -> RecordMetadata:
        if isinstance(acks, bool) or acks not in (0, 1, "all"):
            raise InvalidArgumentError(f"acks={shown(acks)} is not known", hint="use 0, 1 or 'all'")
        (result,) = self._backend.produce([item], acks, _TIMEOUT_S)
        if result.error is not None:
            raise result.error
        if result.append_time_ms >= 0:
            timestamp_ms = result.append_time_ms
        return RecordMetadata(*self._place, -1 if acks == 0 else result.base_offset, timestamp_ms)

    # --- offsets ---

    def describe(self) -> PartitionDescription:
        """Offsets, segments and size at one moment."""
        return self._backend.describe_partitions([self._place])[self._place]

    @property
    def log_start_offset(self) -> int:
        """First offset that may be read."""
        return self.describe().log_start_offset

    @property
    def high_watermark(self) -> int:
        """First offset that no reader may see yet."""
        return self.describe().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """First offset that a ``read_committed`` reader may not see yet."""
        return self.describe().last_stable_offset

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets."""
        return self.describe().log_end_offset

    @property
    def leader_epoch(self) -> int:
        """-1 before the first record."""
        return self.describe().leader_epoch

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """The first offset whose record is at least that new; None: there is none."""
        spec = whole(timestamp_ms, "timestamp_ms", -INT64_MAX)
        return self._backend.list_offsets([self._place], spec, "read_committed")[self._place].offset

    # --- read ---

    def read(
        self, offset: int, max_bytes: int = _SCAN_BYTES, isolation: Isolation = "read_committed"
    ) -> bytes:
        """Whole batches from the one that holds ``offset`` on; records below it are the caller's to drop. Empty at the
        end."""
        offset, max_bytes = whole(offset, "offset", -INT64_MAX), whole(max_bytes, "max_bytes")
        while True:
            found = self._fetch(offset, max_bytes, isolation)
            if found.batches or found.next_offset <= offset:
                return bytes(found.batches)
            offset = found.next_offset  # what lies between was left out

    def records(
        self,
        start: int,
        end_exclusive: int | None = None,
        *,
        isolation: Isolation = "read_committed",
        reverse: bool = False,
    ) -> Iterator[Record]:
        """Records with ``start <= offset < end_exclusive`` (None: what is visible now); with ``reverse`` the newest
        first. OffsetOutOfRangeError of ``start`` is raised at once."""
        truth(reverse, "reverse")
        start, end = self._range(start, end_exclusive, isolation)
        return self._back(start, end, isolation) if reverse else self._forward(start, end, isolation)

    def to_arrow(
        self, start: int, end_exclusive: int | None = None, *, isolation: Isolation = "read_committed"
    ) -> pyarrow.Table:
        """The same records as a ``pyarrow.Table``. ``MissingExtraError`` without pyarrow."""
        from logstore.format.arrow import TABLE_BYTES, TableBuilder, schema

        columns = schema()
        start, end = self._range(start, end_exclusive, isolation)
        builder = TableBuilder(columns, *self._place, True, MAX_DECOMPRESSED_BYTES, TABLE_BYTES, end)
        for offset, found in self._chunks(start, end, isolation):
            builder.add(found.batches, offset, end)
        return builder.table()

    def _range(self, start: int, end_exclusive: int | None, isolation: Isolation) -> tuple[int, int]:
        if isolation not in ("read_committed", "read_uncommitted"):
            raise InvalidArgumentError(
                f"isolation={shown(isolation)} is not known",
                hint="use 'read_committed' or 'read_uncommitted'",
            )
        start, bounds = whole(start, "start", -INT64_MAX), self.describe()
        if not bounds.log_start_offset <= start <= bounds.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.where}: offset {start} is not in [{bounds.log_start_offset}, {bounds.high_watermark}]",
                log_start_offset=bounds.log_start_offset,
                end_offset=bounds.high_watermark,
            )
        limit = bounds.last_stable_offset if isolation == "read_committed" else bounds.high_watermark
        if end_exclusive is None:
            return start, limit
        return start, min(whole(end_exclusive, "end_exclusive", -INT64_MAX), limit)

    def _fetch(
        self, offset: int, max_bytes: int, isolation: Isolation, *, reverse: bool = False
    ) -> FetchResult:
        (found,) = self._backend.fetch(
            [FetchRequest(*self._place, offset, -1, max_bytes, reverse)],
            isolation=isolation,
            min_bytes=1,
            max_bytes=max_bytes,
            max_wait_s=0,
        )
        if found.error is not None:
            raise found.error
        return found

    def _chunks(self, start: int, end: int, isolation: Isolation) -> Iterator[tuple[int, FetchResult]]:
        while start < end:
            found = self._fetch(start, _SCAN_BYTES, isolation)
            if found.next_offset <= start:
                return
            if found.batches:
                yield start, found
            start = found.next_offset

    def _forward(self, start: int, end: int, isolation: Isolation) -> Iterator[Record]:
        for offset, found in self._chunks(start, end, isolation):
            for records in decode_each(found.batches, *self._place, start_offset=offset, end_offset=end):
                yield from records

    def _back(self, start: int, end: int, isolation: Isolation) -> Iterator[Record]:
        while end > start:
            found = self._fetch(end, _SCAN_BYTES, isolation, reverse=True)
            records = decode_batches(found.batches, *self._place, start_offset=start, end_offset=end)
            yield from reversed(records)
            if found.next_offset >= end:
                return
            end = found.next_offset
