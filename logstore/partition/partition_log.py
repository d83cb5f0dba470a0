"""The facade over one partition: what ``store.partition(topic, n)`` hands out.

Appending takes the topic's ownership if this process does not have it yet; reading needs none. Truncation is
not here: only recovery and replication cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from logstore.arguments import INT64_MAX, shown, truth, whole
from logstore.errors import (
    CorruptBatchError,
    InvalidArgumentError,
    InvalidRecordError,
    RecordTypeError,
    from_os_error,
)
from logstore.format.batch import decode_batches, decode_each, encode_with_header, first_offset
from logstore.format.compression import MAX_DECOMPRESSED_BYTES
from logstore.format.rows import check_rows, check_sizes, cut, is_plain, row_sizes
from logstore.log.append_validation import (
    CheckedBatch,
    codec_level,
    split_checked,
)
from logstore.log.log_offsets import LogOffsets
from logstore.log.producers.isolation import without_aborted
from logstore.log.producers.producer_state import Marker
from logstore.log.segments.position_check import check_position
from logstore.log.segments.segment import Chunk
from logstore.log.segments.segment_list import SegmentList
from logstore.partition.local_append import append_proved, append_row
from logstore.partition.partition import LogReader, Partition, result_of
from logstore.types import Acks, Buffer, Isolation, PartitionDescription, Record, RecordMetadata, Row

if TYPE_CHECKING:
    import pyarrow

    from logstore.types import SegmentDescription

_ROWS_A_BATCH = 10_000
_SCAN_BYTES = 1 << 20
_SKIP_BYTES = 16 << 20  # of aborted records that one fetch reads over
_BUFFERS = (bytes, bytearray, memoryview)


class Access(Protocol):
    """The store's side: time, and whether the store may be used at all."""

    def check_usable(self) -> None: ...
    def check_writable(self) -> None: ...
    def now_ms(self) -> int: ...


class Fetched(NamedTuple):
    """Whole batches (empty: nothing new), where to read on, and the bounds at that moment."""

    data: Buffer
    next_offset: int
    bounds: LogOffsets


def description_of(reader: LogReader, partition: int) -> PartitionDescription:
    """What a log's reader tells of it at one moment."""
    bounds = reader.bounds()
    reader.refresh()
    segments = reader.segments
    return PartitionDescription(
        partition=partition,
        log_start_offset=bounds.log_start_offset,
        high_watermark=bounds.high_watermark,
        last_stable_offset=bounds.last_stable_offset,
        log_end_offset=bounds.log_end_offset,
        leader_epoch=bounds.leader_epoch,
        segments=len(segments),
        size_bytes=segments.size_bytes,
    )


class PartitionLog:
    """One partition of an open store. Any thread may use it.

    Every method may raise ``StoreClosedError``, ``ForkedStoreError``, ``StorageError``; the writing ones also
    ``ReadOnlyStoreError``, ``TopicLockedError``, ``DiskFullError``, ``PartitionPoisonedError``.
    """

    def __init__(self, access: Access, held: Partition) -> None:
        self._access = access
        self._held = held
        self.topic = held.topic
        self.partition = held.partition
        self.where = held.where

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic!r}, {self.partition})"

    # --- write ---

    def append(
        self, rows: Sequence[Row], *, acks: Acks = "all", expected_offset: int | None = None
    ) -> RecordMetadata:
        """Append ``(key, value[, headers[, timestamp_ms]])`` rows in order; metadata of the first record.

        All rows land with consecutive offsets. ``acks``: "all" returns when they are durable, 1 when they are
        in the log (page cache), 0 as 1 but with offset -1. ``expected_offset``: append only if the log ends
        there now, else ``OffsetMismatchError`` (optimistic concurrency: decide from what you read up to an
        offset, append only if nobody came between); it is raised once readers see what came between, up to its
        ``end_offset``. Errors: ``RecordTypeError``, ``RecordTooLargeError``, ``InvalidTimestampError``; nothing
        is appended then.
        """
        if expected_offset is None and (landed := append_row(self, rows, acks)) is not None:
            return landed
        check_acks(acks)
        if type(rows) is not list and (
            not isinstance(rows, Sequence) or isinstance(rows, str | bytes | bytearray | memoryview)
        ):
            raise RecordTypeError(
                f"append to {self.where}: rows are {type(rows).__name__}",
                hint="pass a list of (key, value) rows",
            )
        if expected_offset is not None:
            expected_offset = whole(expected_offset, "expected_offset")
        now_ms = self._access.now_ms()
        batches = self._encoded(rows, now_ms)
        pending = self._held.append(batches, acks, expected_offset=expected_offset, now_ms=now_ms)
        result_of(pending)
        timestamp_ms = pending.append_time_ms
        if timestamp_ms < 0:
            first: Row = rows[0]
            given = first[3] if len(first) > 3 else None
            timestamp_ms = now_ms if given is None else int(given)
        return RecordMetadata(
            self.topic, self.partition, -1 if acks == 0 else pending.base_offset, timestamp_ms
        )

    def _encoded(self, rows: Sequence[Row], now_ms: int) -> list[CheckedBatch]:
        """Rows as batches; nothing of what was made right here has to be read or proved again."""
        config = self._held.config
        codec, level = config.compression_type, None
        if codec == "producer":
            codec = "none"
        elif codec != "none":
            level = codec_level(config)
        limit, setting = config.largest_batch()
        if len(rows) == 1 and codec == "none" and is_plain(rows[0]):
            data, header = encode_with_header(rows, now_ms)
            if len(data) <= limit:
                return [CheckedBatch(memoryview(data), header)]
        if not rows:
            raise InvalidRecordError(
                f"append to {self.where}: no rows", hint="pass at least one (key, value) row"
            )
        checked = check_rows(self.where, rows)
        sizes = row_sizes(checked, checked.rows)
        check_sizes(self.where, checked, limit, setting, sizes)
        batches = []
        for chunk in cut(checked.rows, sizes, checked.timestamped, limit, limit, _ROWS_A_BATCH):
            data, header = encode_with_header(chunk.rows, now_ms, codec, level)
            batches.append(CheckedBatch(memoryview(data), header))
        return batches

    def append_batch(self, buffer: Buffer, *, acks: Acks = "all") -> RecordMetadata:
        """Append encoded batches (record batch v2) as they are, once every record of them is proved to be what
        the headers say; metadata of the first record. Errors: ``CorruptBatchError`` (with ``position``),
        ``UnsupportedMagicError``, ``UnsupportedCodecError``, ``MissingExtraError`` (a codec without its library
        cannot be proved), ``DecompressionBombError``, ``InvalidRecordError``, ``RecordTooLargeError``,
        ``InvalidTimestampError``; nothing is appended then.
        """
        if (landed := append_proved(self, buffer, acks)) is not None:
            return landed
        check_acks(acks)
        if not isinstance(buffer, _BUFFERS):
            raise RecordTypeError(
                f"append to {self.where}: the batches are {type(buffer).__name__}", hint="pass encoded bytes"
            )
        batches = split_checked(buffer, self.where)
        pending = result_of(self._held.append(batches, acks))
        stamped_ms = pending.append_time_ms
        timestamp_ms = stamped_ms if stamped_ms >= 0 else batches[0].header.base_timestamp
        return RecordMetadata(
            self.topic, self.partition, -1 if acks == 0 else pending.base_offset, timestamp_ms
        )

    def end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> RecordMetadata:
        """Write the marker that ends a producer's transaction on this partition, durably; the marker's
        metadata. For coordinators: nothing here knows whether other partitions agree.

        Errors: ``ProducerFencedError`` (its epoch is over), ``CoordinatorFencedError``.
        """
        self._access.check_writable()
        if not isinstance(commit, bool):
            raise InvalidArgumentError(f"commit={shown(commit)}", hint="it is True, or False to abort")
        marker = Marker(
            whole(producer_id, "producer_id", 0),
            whole(producer_epoch, "producer_epoch", 0, 2**15 - 1),
            whole(coordinator_epoch, "coordinator_epoch", 0, 2**31 - 1),
            commit,
            self._access.now_ms(),
        )
        pending = result_of(self._held.append_marker(marker))
        return RecordMetadata(self.topic, self.partition, pending.base_offset, marker.timestamp_ms)

    def flush(self) -> None:
        """Make everything this process has appended durable (and visible)."""
        self._access.check_usable()
        self._held.flush()

    # --- offsets ---

    def bounds(self) -> LogOffsets:
        """All offsets at one moment."""
        self._access.check_usable()
        return self._held.reader().bounds()

    @property
    def log_start_offset(self) -> int:
        """First offset that may be read."""
        return self.bounds().log_start_offset

    @property
    def high_watermark(self) -> int:
        """First offset that no reader may see yet."""
        return self.bounds().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """First offset that a ``read_committed`` reader may not see yet."""
        return self.bounds().last_stable_offset

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets."""
        return self.bounds().log_end_offset

    @property
    def leader_epoch(self) -> int:
        """Goes up at every unclean open; -1 before the first record."""
        return self.bounds().leader_epoch

    def describe(self) -> PartitionDescription:
        """Offsets, segments and size at one moment."""
        self._access.check_usable()
        return description_of(self._held.reader(), self.partition)

    def segments(self) -> list[SegmentDescription]:
        """In order, with their newest timestamps (from the indexes): what a filter on time can skip."""
        self._access.check_usable()
        reader = self._held.reader()
        limit = reader.bounds().high_watermark
        reader.refresh()
        try:
            return reader.look(lambda segments: segments.descriptions(limit))
        except OSError as error:
            raise from_os_error(error, "read", self.where) from error

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """The first offset whose record is at least that new (times may be out of order); None: there is none."""
        found = self.record_at_or_after(timestamp_ms)
        return None if found is None else found.offset

    def record_at_or_after(self, timestamp_ms: int) -> Record | None:
        self._access.check_usable()
        timestamp_ms = whole(timestamp_ms, "timestamp_ms", -INT64_MAX)
        try:
            return self._first_at_or_after(timestamp_ms)
        except OSError as error:
            raise from_os_error(error, "read", self.where) from error

    def _first_at_or_after(self, timestamp_ms: int) -> Record | None:
        reader = self._held.reader()
        bounds = reader.bounds()
        reader.refresh()
        return reader.look(lambda segments: self._first_in(reader, segments, timestamp_ms, bounds))

    def _first_in(
        self, reader: LogReader, segments: SegmentList, timestamp_ms: int, bounds: LogOffsets
    ) -> Record | None:
        for floor in segments.first_at_or_after(timestamp_ms, bounds.last_stable_offset):
            base = floor.base_offset
            for record in decode_batches(
                without_aborted(floor.batch, reader.aborted(base, base + 1, floor.batch)),
                self.topic,
                self.partition,
                start_offset=bounds.log_start_offset,
                end_offset=bounds.last_stable_offset,
            ):
                if record.timestamp_ms >= timestamp_ms:
                    return record
        return None

    def record_of_max_timestamp(self) -> Record | None:
        """The first of the newest records by timestamp; None in an empty log."""
        self._access.check_usable()
        reader = self._held.reader()
        limit = reader.bounds().last_stable_offset
        try:
            newest = reader.look(lambda segments: segments.max_timestamp(limit))
            found = self.record_at_or_after(newest) if newest >= 0 else None
            if found is None and newest >= 0:
                newest = reader.look(lambda segments: segments.max_record_timestamp(limit))
                found = self.record_at_or_after(newest) if newest >= 0 else None
        except OSError as error:
            raise from_os_error(error, "read", self.where) from error
        if found is not None:
            return found
        # The newest time is that of aborted records, or lies before 1970: every record has to be looked at.
        records = self.records(self.log_start_offset)
        return max(records, key=lambda record: record.timestamp_ms, default=None)

    # --- read ---

    def fetch(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        leader_epoch: int = -1,
        end: int | None = None,
    ) -> Fetched:
        """Whole batches from the one that holds ``offset`` (or the next survivor) on, at least one if there
        is any; none that starts at ``end`` or later. ``leader_epoch``: under which the position was reached,
        -1 unknown. Under ``read_committed`` batches of aborted transactions are left out: what comes may be
        empty although there is more, and ``next_offset`` is past what was left out.

        Errors: ``OffsetOutOfRangeError``; ``DataLossError`` when the position lies past the end of its epoch;
        ``SegmentVanishedError``; ``CorruptBatchError`` when the files are damaged there.
        """
        self._access.check_usable()
        if type(offset) is not int or type(max_bytes) is not int:
            offset, max_bytes = whole(offset, "offset", -INT64_MAX), whole(max_bytes, "max_bytes")
        if type(leader_epoch) is not int:
            leader_epoch = whole(leader_epoch, "leader_epoch", -1)
        reader = self._held.reader()
        bounds = reader.bounds()
        check_position(self.where, reader.epoch_table, bounds, offset, leader_epoch)
        limit = limit_of(bounds, isolation)
        if end is not None:
            limit = min(limit, end if type(end) is int else whole(end, "end", -INT64_MAX))
        skipped = 0
        while offset < limit:
            try:
                chunk = self._chunk(reader, offset, max_bytes, limit)
                if chunk is None:
                    offset = limit
                    break
                if isolation != "read_committed":
                    return Fetched(chunk.data, chunk.next_offset, bounds)
                data = without_aborted(chunk.data, reader.aborted(offset, chunk.next_offset, chunk.data))
            except OSError as error:
                raise from_os_error(error, "read", self.where) from error
            offset = chunk.next_offset
            skipped += len(chunk.data)
            if data or skipped >= _SKIP_BYTES:
                return Fetched(data, offset, bounds)
        return Fetched(b"", offset, bounds)

    def _chunk(self, reader: LogReader, offset: int, max_bytes: int, limit: int) -> Chunk | None:
        """None: a broker's compaction has left nothing of [offset, limit)."""
        chunk = reader.read(offset, max_bytes, limit)
        if not reader.gapless:
            return chunk
        if chunk is None or not (base := first_offset(chunk.data)) <= offset < chunk.next_offset:
            found = "nothing" if chunk is None else f"offsets {base} to {chunk.next_offset - 1}"
            raise self._hole(found, offset, limit)
        return chunk

    def _hole(self, found: str, due: int, end: int) -> CorruptBatchError:
        return CorruptBatchError(
            f"{self.where}: the files hold {found} where offset {due} is due; the log goes on to {end}",
            hint="run `logstore log verify`; `logstore log salvage` copies what is readable",
        )

    def read(self, offset: int, max_bytes: int = 1 << 20, isolation: Isolation = "read_committed") -> bytes:
        """``fetch`` as bytes: whole batches; records below ``offset`` in the first one are the caller's to
        drop. Empty at the end."""
        return bytes(self.fetch(offset, max_bytes, isolation).data)

    def records(
        self,
        start: int,
        end_exclusive: int | None = None,
        *,
        isolation: Isolation = "read_committed",
        reverse: bool = False,
    ) -> Iterator[Record]:
        """Records with ``start <= offset < end_exclusive`` (None: what is visible now); with ``reverse`` the
        newest first, read from the end. Errors as ``fetch``; those of ``start`` are raised at once."""
        truth(reverse, "reverse")
        start, end = self._range(start, end_exclusive, isolation)
        return self._records_back(start, end, isolation) if reverse else self._records(start, end, isolation)

    def fetch_back(
        self, end: int, isolation: Isolation = "read_committed", start: int | None = None
    ) -> Fetched:
        """``fetch`` backwards: whole batches, in the log's order, that hold the records before ``end`` (those at or
        behind it are the caller's to drop). ``next_offset``: the first offset they may hold, the next ``end``.
        Empty at the log's start. ``OffsetOutOfRangeError``: retention has passed ``start``."""
        self._access.check_usable()
        reader = self._held.reader()
        bounds = reader.bounds()
        end = min(whole(end, "end"), limit_of(bounds, isolation))
        first = bounds.log_start_offset if start is None else max(start, bounds.log_start_offset)
        if end <= first:
            if start is not None:  # retention came this far meanwhile
                check_position(self.where, reader.epoch_table, bounds, start, -1)
            return Fetched(b"", first, bounds)
        try:
            back = reader.read_back(end)
            if reader.gapless and (back is None or back.next_offset < end):
                # retention may have come between
                check_position(self.where, reader.epoch_table, reader.bounds(), first, -1)
                found = "nothing" if back is None else f"offsets up to {back.next_offset - 1}"
                raise self._hole(found, end - 1, end)
            if back is None:
                return Fetched(b"", first, bounds)
            data = back.data
            if isolation == "read_committed":
                data = without_aborted(data, reader.aborted(back.first_offset, end, data))
        except OSError as error:
            raise from_os_error(error, "read", self.where) from error
        return Fetched(data, back.first_offset, bounds)

    def _records_back(self, start: int, end: int, isolation: Isolation) -> Iterator[Record]:
        while end > start:
            fetched = self.fetch_back(end, isolation, start)
            first = max(start, fetched.bounds.log_start_offset)
            records = self._decoded(fetched.data, first, end)
            records.reverse()
            yield from records
            end = fetched.next_offset

    def _range(self, start: int, end_exclusive: int | None, isolation: Isolation) -> tuple[int, int]:
        self._access.check_usable()
        start = whole(start, "start", -INT64_MAX)
        reader = self._held.reader()
        bounds = reader.bounds()
        check_position(self.where, reader.epoch_table, bounds, start, -1)
        limit = limit_of(bounds, isolation)
        return start, limit if end_exclusive is None else min(
            whole(end_exclusive, "end_exclusive", -INT64_MAX), limit
        )

    def _records(self, start: int, end: int, isolation: Isolation) -> Iterator[Record]:
        place = self.topic, self.partition
        for offset, data in self._chunks(start, end, isolation):
            try:
                for found in decode_each(data, *place, start_offset=offset, end_offset=end):
                    yield from found
            except CorruptBatchError as error:
                raise error.found_in(self.where) from error

    def _decoded(self, data: Buffer, start: int, end: int) -> list[Record]:
        try:
            return decode_batches(data, self.topic, self.partition, start_offset=start, end_offset=end)
        except CorruptBatchError as error:
            raise error.found_in(self.where) from error

    def _chunks(
        self, start: int, end: int, isolation: Isolation, max_bytes: int = _SCAN_BYTES
    ) -> Iterator[tuple[int, Buffer]]:
        offset = start
        while offset < end:
            fetched = self.fetch(offset, max_bytes, isolation, end=end)
            if fetched.next_offset == offset:
                return
            data, following = fetched.data, fetched.next_offset
            del fetched  # the next fetch finds the memory free, and still in the processor's cache
            if data:
                yield offset, data
            del data
            offset = following

    def to_arrow(
        self, start: int, end_exclusive: int | None = None, *, isolation: Isolation = "read_committed"
    ) -> pyarrow.Table:
        """The same records as a ``pyarrow.Table`` (columns: see ``format.arrow``), decoded without a Python
        loop over fields. ``MissingExtraError`` without pyarrow."""
        from logstore.format.arrow import TABLE_BYTES, TableBuilder, schema

        start, end = self._range(start, end_exclusive, isolation)
        builder = TableBuilder(
            schema(), self.topic, self.partition, True, MAX_DECOMPRESSED_BYTES, TABLE_BYTES, end
        )
        for offset, data in self._chunks(start, end, isolation, builder.READ_BYTES):
            builder.add(data, offset, end)
            del data  # before the next fetch
        return builder.table()


def limit_of(bounds: LogOffsets, isolation: Isolation) -> int:
    if isolation == "read_committed":
        return bounds.last_stable_offset
    if isolation == "read_uncommitted":
        return bounds.high_watermark
    raise InvalidArgumentError(
        f"isolation={isolation!r} is not known", hint="use 'read_committed' or 'read_uncommitted'"
    )


def check_acks(acks: object) -> None:
    if type(acks) is str and acks == "all":
        return
    if isinstance(acks, bool) or not isinstance(acks, int) or acks not in (0, 1):
        raise InvalidArgumentError(f"acks={acks!r} is not known", hint="use 0, 1 or 'all'")
