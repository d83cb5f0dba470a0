"""What managers of coordination need beside coordinators, in memory: a store's view, ends of partitions, liveness,
locks of transactional ids, topics of markers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from logstore.errors import ProducerBusyError
from logstore.groups.offset_values import SeenEnds
from logstore.groups.views import MemberSession
from logstore.log.producers.producer_state import Marker
from logstore.ownership.wait_limit import WaitLimit
from logstore.seams.clock import ManualClock
from logstore.types import OffsetAndMetadata, TopicPartition


@dataclass
class MemoryStoreView:
    """``StoreView``."""

    clock: ManualClock = field(default_factory=ManualClock)
    read_only: bool = False
    lock_timeout_s: float = 1.0
    threads: bool = False
    offsets_retention_s: float = 3600.0

    def __post_init__(self) -> None:
        self.wait_limit = WaitLimit(self.clock)

    def check_usable(self) -> None:
        """Always."""

    def check_writable(self) -> None:
        """Always."""


class MemoryEnds:
    """``OffsetEnds``: every partition ends at 1000."""

    def of(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> SeenEnds:
        return SeenEnds(dict.fromkeys(offsets, 1000), {place.topic: "id" for place in offsets})

    def still(self, seen: SeenEnds) -> dict[str, bytes]:
        return {name: bytes(16) for name in seen.topic_ids}

    def topic_id(self, name: str) -> bytes | None:
        return bytes(16)


class MemoryLiveness:
    """``MemberLiveness``: ``alive`` is shared by the processes of a world."""

    def __init__(self, alive: set[bytes]) -> None:
        self.alive = alive

    def begin(self, member_id: str) -> bytes:
        liveness = bytes.fromhex(member_id[:8])
        self.alive.add(liveness)
        return liveness

    def beat(self, liveness: bytes, member_id: str) -> None:
        assert liveness in self.alive

    def end(self, liveness: bytes) -> None:
        self.alive.discard(liveness)

    def note_looking(self, regularly: bool) -> None:
        """Nothing depends on it."""

    def dead(self, sessions: Iterable[MemberSession], groups: Collection[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in sessions:
            if one.group in groups and one.liveness not in self.alive:
                found.setdefault(one.group, []).append(one.member_id)
        return found

    def close(self) -> None:
        """Nothing to give back."""


class MemoryIdLock:
    """``IdLock``: ``held`` is shared by the processes of a world."""

    def __init__(self, held: dict[str, MemoryIdLock], transactional_id: str) -> None:
        self._held = held
        self._id = transactional_id

    def try_take(self) -> bool:
        return self._held.setdefault(self._id, self) is self

    def take(self, timeout_s: float) -> None:
        if not self.try_take():
            raise ProducerBusyError(f"{self._id} is open elsewhere")

    def release(self) -> None:
        if self._held.get(self._id) is self:
            del self._held[self._id]


class DecidedAppend:
    """``PendingAppend`` of what is committed at once."""

    base_offset = next_offset = 0
    append_time_ms = -1
    done = True
    error = None


class MarkedPartition:
    """Of ``Partition`` what markers need."""

    def __init__(self) -> None:
        self.markers: list[Marker] = []

    def append_marker(self, marker: Marker, *, once: bool = False, wait: bool = True) -> DecidedAppend:
        assert once
        if all(marker.epoch > known.epoch for known in self.markers):
            self.markers.append(marker)
        return DecidedAppend()


class MemoryTransactionRuntime:
    """``TransactionRuntime``."""

    def __init__(
        self, held: dict[str, MemoryIdLock], partitions: dict[TopicPartition, MarkedPartition]
    ) -> None:
        self._held = held
        self._partitions = partitions
        self._ids: Iterator[int] = iter(range(1_000, 2_000))
        self.opened = 0

    def take_producer_id(self) -> int:
        return next(self._ids)

    def id_lock(self, transactional_id: str) -> MemoryIdLock:
        return MemoryIdLock(self._held, transactional_id)

    def note_opened(self) -> None:
        self.opened += 1

    def partition(self, topic: str, partition: int) -> Any:
        return self._partitions[TopicPartition(topic, partition)]

    def look_for_changes(self) -> None:
        """There are none."""

    def holder_of(self, topic: str) -> str:
        return "nothing"
