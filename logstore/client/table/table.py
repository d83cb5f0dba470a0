"""``KeyTable``: the latest value of each key of a compacted topic, as a mapping that keeps itself current."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypedDict

from logstore.api.backend import Backend
from logstore.api.cancellation import CancelHandle
from logstore.api.records import FetchRequest
from logstore.api.topics import TopicMetadata
from logstore.arguments import function_or_none, seconds, shown, truth, whole
from logstore.client.arrow import DecodeTexts
from logstore.client.consumer.settings import timestamp_ms
from logstore.client.serializers import Deserializer
from logstore.client.table.feed import TableFeed, cleaned_to, terms_of
from logstore.client.table.partition_map import PartitionMap
from logstore.client.table.snapshot import SnapshotOf, load_snapshot, save_snapshot
from logstore.client.table.values import Found, Keys, ValueReader
from logstore.client.table.view import StoredRow, TableView
from logstore.errors import (
    ClientClosedError,
    CompactedAwayError,
    DeliveryTimeoutError,
    ForkedStoreError,
    InvalidArgumentError,
    NotCompactedError,
    OffsetOutOfRangeError,
    UnknownPartitionError,
)
from logstore.seams.clock import Clock, SystemClock
from logstore.seams.fs import FileSystem, OsFileSystem
from logstore.types import Isolation, TopicDescription, TopicPartition, V

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S = 1.0
_TRIES = 5


class TableOptions(TypedDict, total=False):
    """The keywords of ``store.table``, beside the deserializer; ``KeyTable`` says what they mean."""

    isolation: Isolation
    any_policy: bool
    max_memory_bytes: int | None
    max_age_ms: float
    snapshot: str | os.PathLike[str] | None
    fs: FileSystem | None
    clock: Clock | None


class KeyTable(Mapping[bytes, V], Generic[V]):
    """A read-only mapping of keys (bytes) to their latest values, over all partitions of a topic. Any thread may
    use it. Close it, or use ``with``.

    Every access first reads on to the end that readers may see now, so that it shows what was written before it;
    with nothing new that costs one look at each partition. ``max_age_ms``: look only if the last look is older.
    A tombstone removes its key. Iteration, ``items()`` and ``values()`` are over one moment's state.

    ``value_deserializer``: applied to a value each time it is read; ``PoisonRecordError`` names the record it
    refused. ``isolation``: "read_committed" shows nothing of open and aborted transactions. ``any_policy``: also
    take a topic that does not compact (else ``NotCompactedError``); it shows the last record of each key that is
    still there, and records without a key are passed over.

    ``max_memory_bytes``: keep values on disk, and in memory keys and offsets alone, about 120 bytes and the key
    each; past the limit ``TableTooLargeError``. Reading a value then reads its batch.

    ``snapshot``: a file (its folder must exist) that ``save`` and ``close`` write and that the next table of the
    topic begins with. One that is damaged, of another topic or of a newer version is left out of account.

    A topic that was deleted gives ``UnknownTopicError``; once it is made anew the table goes on with that one.
    Erased keys leave no tombstone: a table that keeps values shows them until ``rebuild``, and so does a snapshot
    until it is saved again.
    """

    def __init__(
        self,
        backend: Backend,
        topic: str,
        *,
        value_deserializer: Deserializer[V] | None = None,
        isolation: Isolation = "read_committed",
        any_policy: bool = False,
        max_memory_bytes: int | None = None,
        max_age_ms: float = 0,
        snapshot: str | os.PathLike[str] | None = None,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        function_or_none(value_deserializer, "value_deserializer")
        if not isinstance(isolation, str) or isolation not in ("read_committed", "read_uncommitted"):
            raise InvalidArgumentError(
                f"isolation={shown(isolation)}", hint="use read_committed or read_uncommitted"
            )
        if max_memory_bytes is not None:
            max_memory_bytes = whole(max_memory_bytes, "max_memory_bytes", 1)
        self._any_policy = truth(any_policy, "any_policy")
        self._backend = backend
        self._clock = clock or SystemClock()
        self._fs = fs or OsFileSystem()
        self._max_age_s = seconds(max_age_ms, "max_age_ms") / 1000
        self._path = None if snapshot is None else _file_path(snapshot)
        self._reader = ValueReader(backend, topic, isolation, value_deserializer)
        self._feed = TableFeed(backend, topic, isolation, self._clock, max_memory_bytes)
        self._lock = threading.RLock()
        self._waits: set[CancelHandle] = set()
        self._closed = False
        self.closing = _Closing(self)
        self._pid = os.getpid()
        self._read_s: float | None = None
        self._size: tuple[int, int] | None = None  # at a number of changes
        self._version = backend.metadata_version()
        self._metadata = self._checked(backend.topic(topic))
        self._keys = Keys(self._metadata.partitioner, self._metadata.partitions)
        self._maps: dict[int, PartitionMap] = {}
        self._saved: tuple[object, ...] | None = None
        if self._path is not None:
            self._maps = (
                load_snapshot(self._fs, self._path, self._identity(), self._metadata.partitions) or {}
            )
            self._saved = self._state() if self._maps else None
        self._add_partitions()
        self.refresh()

    # --- the mapping ---

    def __getitem__(self, key: bytes) -> V:
        row = self.stored_row(key)
        if row is None:
            raise KeyError(key)
        made: V = self._reader.made(row.partition, row.offset, row.value)
        return made

    def stored_row(self, key: bytes) -> StoredRow | None:
        """The key's newest record as it is stored; None: there is no such key."""
        for _ in range(_TRIES):
            found = self._find(key)
            if found is None:
                break
            value = found.value
            if value is None:
                value = self._reader.stored(found.partition, found.offset)
            if value is not None:
                return StoredRow(found.partition, found.offset, key, value)
            self._settle_gone(key, found)
        return None

    def _find(self, key: bytes) -> Found | None:
        with self._lock:
            self._look()
            return self._keys.find(self._maps, key)

    def _settle_gone(self, key: bytes, found: Found) -> None:
        """The record of an entry is not in the log: a newer one is, or it was erased."""
        with self._lock:
            self.refresh()
            held = self._maps.get(found.partition)
            if held is not None:
                held.forget(key, found.offset)
                self._feed.changes += 1

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None  # type: ignore[arg-type]

    def __len__(self) -> int:
        with self._lock:
            self._look()
            if self._size is None or self._size[0] != self._feed.changes:
                hidden = self._keys.shadowed(self._maps)
                every = sum(len(held.entries) for held in self._maps.values())
                self._size = (self._feed.changes, every - sum(map(len, hidden.values())))
            return self._size[1]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.frozen())

    def items(self) -> ItemsView[bytes, V]:
        return self._view(self).items()

    def values(self) -> ValuesView[V]:
        return self._view(self).values()

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other if isinstance(other, Mapping) else NotImplemented

    def place(self, key: bytes) -> tuple[int, int]:
        """(partition, offset) of the key's newest record. ``KeyError``."""
        found = self._find(key)
        if found is None:
            raise KeyError(key)
        return found.partition, found.offset

    @property
    def topic(self) -> str:
        return self._feed.topic

    @property
    def positions(self) -> dict[int, int]:
        """By partition the next offset to read, as of the last look: everything before it is in the table. It is
        the ``expected_offset`` of an append that was decided from what the table shows."""
        with self._lock:
            return {partition: held.position for partition, held in self._maps.items()}

    @property
    def memory_bytes(self) -> int | None:
        """With ``max_memory_bytes`` what the keys take now, about; else None."""
        with self._lock:
            return (
                None if self._feed.with_values else sum(held.memory_bytes() for held in self._maps.values())
            )

    # --- keeping current ---

    def refresh(self) -> None:
        """Read on now, whatever ``max_age_ms`` says. Errors of a fetch, ``TableTooLargeError``,
        ``UnknownTopicError``."""
        with self._lock:
            self._check_open()
            while True:
                self._follow_topic()
                self._feed.catch_up(self._maps)
                if self._backend.metadata_version() == self._version:
                    break  # else it may have been another topic of this name that was read
            self._read_s = self._clock.monotonic_s()

    def _look(self) -> None:
        self._check_open()
        age_s = self._max_age_s if self._read_s is None else self._clock.monotonic_s() - self._read_s
        if age_s >= self._max_age_s:
            self.refresh()

    def rebuild(self) -> None:
        """Forget everything and read the topic from its beginning."""
        with self._lock:
            self._check_open()
            self._drop()
            self.refresh()

    def wait_for(self, partition: int, offset: int, timeout_s: float = 30.0) -> None:
        """Return once the record at ``offset`` is in the table: a writer's way to read its own write, with what
        its delivery said. ``DeliveryTimeoutError`` if that takes longer (a transaction around it is open, a sync
        is slow)."""
        partition = whole(partition, "partition", 0, 2**31 - 1)
        offset, timeout_s = whole(offset, "offset"), seconds(timeout_s)
        end_s = self._clock.monotonic_s() + timeout_s
        while True:
            with self._lock:
                self.refresh()
                held = self._maps.get(partition)
                if held is None:
                    raise UnknownPartitionError(f"topic {self.topic!r} has no partition {partition}")
                position, epoch = held.position, held.epoch
            if position > offset:
                return
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise DeliveryTimeoutError(
                    f"the table of {self.topic!r} has partition {partition} up to offset {position}: {offset} did "
                    f"not come within {timeout_s:g} s",
                    hint="was it written, and its transaction committed? Or give more time",
                )
            self._wait(FetchRequest(self.topic, partition, position, epoch, 1), min(left_s, _LONGEST_WAIT_S))

    def _wait(self, request: FetchRequest, wait_s: float) -> None:
        """Until there is something new, for a while. What comes is left to ``refresh``, its errors too."""
        cancel = CancelHandle()
        with self._lock:
            self._check_open()
            self._waits.add(cancel)
        try:
            self._backend.fetch(
                [request],
                isolation=self._feed.isolation,
                min_bytes=1,
                max_bytes=1,
                max_wait_s=wait_s,
                cancel=cancel,
            )
        finally:
            with self._lock:
                self._waits.discard(cancel)

    def _follow_topic(self) -> None:
        version = self._backend.metadata_version()
        if version == self._version:
            return
        found = self._checked(self._backend.topic(self.topic))
        if found.topic_id != self._metadata.topic_id:
            logger.info("topic %r was deleted and made anew: its table begins anew", self.topic)
            self._drop()
        if (found.partitions, found.partitioner) != (self._metadata.partitions, self._metadata.partitioner):
            self._keys = Keys(found.partitioner, found.partitions)
        self._metadata, self._version = found, version
        self._maps = {at: held for at, held in self._maps.items() if at < found.partitions}
        self._add_partitions()

    def _add_partitions(self) -> None:
        for partition in range(self._metadata.partitions):
            if partition not in self._maps:
                self._maps[partition] = self._feed.fresh()
        self._maps = dict(sorted(self._maps.items()))

    def _drop(self) -> None:
        self._maps = {partition: self._feed.fresh() for partition in self._maps}
        self._feed.changes += 1
        self._saved = None

    def _checked(self, topic: TopicMetadata) -> TopicMetadata:
        if not (topic.compacts or self._any_policy):
            raise NotCompactedError(f"topic {topic.name!r} does not compact, so a table of it may lack keys")
        return topic

    # --- moments ---

    def to_arrow(self, *, decode: DecodeTexts | None = None) -> pa.Table:
        """The table as it is now, as a ``pyarrow.Table``; see ``TableView.to_arrow``."""
        return self._view(self).to_arrow(decode=decode)

    def frozen(self) -> TableView[V]:
        """The table as it is now; it changes no more. Costs a copy of the maps."""
        return self._view(None)

    def _view(self, newest: KeyTable[V] | None) -> TableView[V]:
        with self._lock:
            self._look()
            maps = {partition: held.copy() for partition, held in self._maps.items()}
            return TableView(maps, self._keys, self._reader, newest)

    def as_of(self, when: Mapping[int, int] | int | datetime) -> TableView[V]:
        """The table as it was: made of the records before an offset (of each partition by number; an int where
        there is one partition), or of those before the first that is newer than a time. The log is read for it,
        from its start.

        ``CompactedAwayError`` where compaction has removed records that may have been the latest then; its
        ``exact_from`` says from which offset on states are exact (the end of what was compacted, and anything
        while a partition has lost nothing). Retention counts as it does today: what it took is in no state.
        ``OffsetOutOfRangeError`` past the end that readers see.
        """
        with self._lock:
            self.refresh()
            partitions = list(self._maps)
            metadata, keys = self._metadata, self._keys
        ends = self._ends(when, partitions)
        maps, described = self._read_up_to(ends, partitions)
        latest = self._listed(partitions, "latest")
        for partition, held in maps.items():
            if held.position < ends[partition] and held.position < latest[partition]:
                raise OffsetOutOfRangeError(f"{self.topic}-{partition} was cut while it was read")
            if held.absent and ends[partition] < latest[partition]:
                self._check_exact(partition, ends[partition], latest[partition], described)
        if self._backend.topic(self.topic).topic_id != metadata.topic_id:
            raise OffsetOutOfRangeError(f"topic {self.topic!r} was made anew while it was read")
        return TableView(maps, keys, self._reader)

    def _read_up_to(
        self, ends: Mapping[int, int], partitions: list[int]
    ) -> tuple[dict[int, PartitionMap], TopicDescription | None]:
        """And what is said of the topic after the reading, so that a cleaning beside it counts, by the leaders that
        were read: each replica is compacted by itself, and one that leads since may say that nothing is gone. None:
        the leaders changed each time."""
        feed = TableFeed(
            self._backend, self.topic, self._feed.isolation, self._clock, self._feed.max_memory_bytes
        )
        before = self._backend.describe_topic(self.topic)
        for _ in range(_TRIES):
            maps = {partition: self._feed.fresh() for partition in partitions}
            feed.catch_up(maps, ends)
            described = self._backend.describe_topic(self.topic)
            if terms_of(before) == terms_of(described) or not any(held.absent for held in maps.values()):
                return maps, described
            before = described
        return maps, None

    def _ends(self, when: Mapping[int, int] | int | datetime, partitions: list[int]) -> dict[int, int]:
        latest = self._listed(partitions, "latest")
        if isinstance(when, datetime):
            newer = self._listed(partitions, timestamp_ms(when) + 1)
            return {partition: newer.get(partition, latest[partition]) for partition in partitions}
        if isinstance(when, int) and not isinstance(when, bool) and len(partitions) == 1:
            when = {partitions[0]: when}
        if not isinstance(when, Mapping) or set(when) != set(partitions):
            raise InvalidArgumentError(
                f"as_of({shown(when)})",
                hint=f"give a datetime, or an offset for each partition, 0 to {len(partitions) - 1}",
            )
        ends = {
            partition: whole(when[partition], f"the offset of partition {partition}")
            for partition in partitions
        }
        first = self._listed(partitions, "earliest")
        for partition, end in ends.items():
            if not first[partition] <= end <= latest[partition]:
                raise OffsetOutOfRangeError(
                    f"{self.topic}-{partition} has states from offset {first[partition]} to {latest[partition]}, "
                    f"not of {end}",
                    hint="give an offset in that range",
                    log_start_offset=first[partition],
                    end_offset=latest[partition],
                )
        return ends

    def _listed(self, partitions: list[int], spec: Any) -> dict[int, int]:
        places = [TopicPartition(self.topic, partition) for partition in partitions]
        found = self._backend.list_offsets(places, spec, self._feed.isolation)
        return {place.partition: row.offset for place, row in found.items() if row.offset is not None}

    def _check_exact(self, partition: int, end: int, latest: int, described: TopicDescription | None) -> None:
        cleaned = None if described is None else cleaned_to(described, partition)
        exact_from = latest if cleaned is None else min(cleaned, latest)
        if end < exact_from:
            raise CompactedAwayError(
                f"{self.topic}-{partition} as of offset {end}: compaction has been through it up to {exact_from}, "
                "and has removed records that may have been the latest of their keys then",
                hint=f"states of this partition are exact from offset {exact_from} on",
                partition=partition,
                offset=end,
                exact_from=exact_from,
            )

    # --- the snapshot, and the end ---

    def save(self) -> None:
        """Write the snapshot now, durably. ``InvalidArgumentError`` without ``snapshot=``; ``StorageError``,
        ``DiskFullError``: the old one stays."""
        with self._lock:
            self._check_open()
            if self._path is None:
                raise InvalidArgumentError("save() needs a file", hint="pass snapshot=PATH to table()")
            self._save(self._path)

    def _save(self, path: str) -> None:
        if any(held.position < 0 for held in self._maps.values()):
            return  # not one read yet
        state = self._state()
        if state != self._saved:
            save_snapshot(self._fs, path, self._identity(), self._maps)
            self._saved = state

    def _identity(self) -> SnapshotOf:
        topic = self._metadata
        return SnapshotOf(topic.name, topic.topic_id, self._feed.isolation, self._feed.with_values)

    def _state(self) -> tuple[object, ...]:
        return (self._feed.changes, *[(held.position, held.start) for held in self._maps.values()])

    def close(self) -> None:
        """Save the snapshot if there is one to keep and it is not current, and let go. Safe to call again."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for cancel in self._waits:
                cancel.cancel()
            if self._path is not None:
                self._save(self._path)

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedStoreError(f"the table of {self.topic!r} was opened before os.fork()")
        if self._closed:
            raise ClientClosedError(f"the table of {self.topic!r} is closed", hint="open another one")

    def __enter__(self) -> KeyTable[V]:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"positions={self.positions}"
        return f"KeyTable({self.topic!r}, {state})"


class _Closing:
    """What a store keeps, weakly, to close a table with itself: a mapping has no hash."""

    def __init__(self, table: KeyTable[Any]) -> None:
        self._table = table

    def close(self) -> None:
        self._table.close()


def _file_path(path: object) -> str:
    """InvalidArgumentError for what is no path."""
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]
    except (TypeError, UnicodeError):
        text = ""
    if not text or "\0" in text:
        raise InvalidArgumentError(f"snapshot={shown(path)}", hint="it is a file's path")
    return os.path.abspath(text)
