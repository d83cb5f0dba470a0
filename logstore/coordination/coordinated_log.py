"""``CoordinatedLog``: the log of one coordinator, as its runtime needs it, whoever else writes it.

``CoordinatorLog`` is an internal topic that processes of one directory write by turns; on a cluster the leader of a
replicated partition is the only one that writes, and the log is ready once all of it is committed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from logstore.errors import LogStoreError
from logstore.format.payloads import Payload
from logstore.log.append_validation import CheckedBatch
from logstore.log.log_offsets import LogOffsets
from logstore.log.producers.producer_state import Marker, ProducerEntry
from logstore.log.segments.segment import Chunk
from logstore.partition.partition import PendingAppend


class HeldLog(Protocol):
    """The log while its holder alone writes. Of one thread, which waits for its appends before it gives it back.

    OffsetMismatchError from an append: the log went on beneath the hold. Nothing is in that a replay does not find."""

    @property
    def log_end_offset(self) -> int: ...

    def append(self, batches: Sequence[CheckedBatch]) -> PendingAppend: ...

    def append_marker(self, marker: Marker, *, once: bool = False, open_since: int = -1) -> PendingAppend: ...

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]: ...


@runtime_checkable
class KeepsState(Protocol):
    """A ``CoordinatedLog`` of whose front snapshots of the state are left."""

    def state_before(self, applied: int) -> tuple[int, Sequence[Payload]] | None:
        """Where ``applied`` is before the log's start: an offset further on, and the records that stand for all before
        it. None: the log has the records from ``applied`` on. Errors as ``read``."""
        ...


class CoordinatedLog(Protocol):
    """Thread-safe. ``where``: for messages; ``directory``: where its files lie."""

    @property
    def where(self) -> str: ...

    @property
    def directory(self) -> str: ...

    @property
    def era(self) -> int:
        """Another number once what was replayed before may not be believed any more."""
        ...

    def await_turn(self, turn: threading.Lock, timeout_s: float) -> None:
        """Take a lock that a thread of this process releases when it is done with the log. TopicLockedError."""
        ...

    def held(self, timeout_s: float) -> AbstractContextManager[HeldLog]:
        """The log, with all that there is in it known to be committed. TopicLockedError: not in time; errors of opening
        a log, and of a node that does not lead it."""
        ...

    def offsets(self) -> LogOffsets:
        """What may be replayed ends at its high watermark. Errors as ``held``."""
        ...

    def confirm(self) -> None:
        """Block until all that was acknowledged by now is among ``offsets``. Errors as ``held``."""
        ...

    def has_more(self, applied: int) -> bool:
        """Whether there is anything to be replayed behind ``applied``; cheap, and no error where nothing may be."""
        ...

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        """See ``LogReader.read``."""
        ...

    def doubt(self, why: BaseException, *, wrote: bool) -> LogStoreError:
        """What a caller is told whose records may or may not be there (``wrote``), or whose reply rests on such."""
        ...

    def lost(self) -> LogStoreError | None:
        """Why this process does not run the coordinator now; None: it may."""
        ...

    def close(self) -> None: ...
