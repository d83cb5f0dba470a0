"""A cleaning of one partition on its way: started, taken a slice at a time, finished or ended early.

Whoever drives it (the housekeeper, or a caller by hand) is inside the topic during a slice, so that the topic is
not given up under it; between slices it may be, and then the cleaning is ended first (``CleaningUnderWay.end_early``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from logstore.errors import InvariantError, LogStoreError, StorageError, TopicLockedError, from_os_error
from logstore.log.cleaning.cleaner_mark import note_horizon
from logstore.log.cleaning.cleaning import Cleaning, CleanRequest, CleanResult
from logstore.log.cleaning.retirement import Retirement
from logstore.log.owned_log import OwnedLog
from logstore.log.segments.file_pool import FilePool
from logstore.partition.cleaned_topic import CleanedTopic
from logstore.partition.context import StoreContext
from logstore.seams.clock import Clock
from logstore.types import CleaningProgress
from logstore.upkeep.cleaning_ledger import CleaningLedger, Place
from logstore.upkeep.clock_guard import ClockGuard

logger = logging.getLogger(__name__)

MakeCleaning = Callable[[OwnedLog, FilePool, Clock, Retirement, CleanRequest], Cleaning]


def active_producers(log: OwnedLog) -> Mapping[int, int]:
    """Producer id -> offset of the last record of its last data batch, which has to stay, if only empty."""
    return log.producers.states.last_offsets()


class CleaningKit:
    """What every cleaning of a store shares. ``key_map_bytes``: memory that a key map may take."""

    def __init__(
        self,
        context: StoreContext,
        retirement: Retirement,
        *,
        key_map_bytes: int,
        make: MakeCleaning,
        guard: ClockGuard,
    ) -> None:
        self.context = context
        self.retirement = retirement
        self.ledger = CleaningLedger()
        self.key_map_bytes = key_map_bytes
        self.make = make
        self._lock = threading.Lock()
        self._guard = guard
        self._by_hand: set[str] = set()  # ids of topics that somebody cleans or erases from by hand

    @contextmanager
    def reserved(self, topic: CleanedTopic) -> Iterator[None]:
        """No cleaning in the background begins in the topic meanwhile, and one that is under way is ended.
        TopicLockedError while another call has it."""
        topic_id = topic.entry.topic_id
        with self._lock:
            if topic_id in self._by_hand:
                raise TopicLockedError(
                    f"topic {topic.name!r} is being compacted or erased from by another call in this process",
                    hint="wait until that has come to its end",
                )
            self._by_hand.add(topic_id)
        try:
            topic.end_cleaning()
            yield
        finally:
            self._by_hand.discard(topic_id)

    def look_at_clock(self) -> bool:
        """Whether the wall clock may be believed: not in the first second, not after a jump."""
        return self._guard.steady()

    def believed_ms(self) -> int:
        """Wall time, without a jump that was seen: a clock set ahead must not make tombstones old."""
        return self.context.clock.wall_ms() - self._guard.jump_ms

    def start(
        self,
        topic: CleanedTopic,
        partition: int,
        offsets: tuple[int, int],
        *,
        by_hand: bool = False,
        erase: frozenset[bytes] | None = None,
    ) -> CleaningRun | None:
        """Begin; None if another cleaning is under way in the topic. The caller is inside the topic.
        ``offsets``: first dirty one, and the end of what may be cleaned."""
        config, log = topic.config, topic.log(partition)
        request = CleanRequest(
            start_offset=offsets[0],
            end_offset=offsets[1],
            now_ms=self.believed_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            key_map_bytes=self.key_map_bytes,
            active_producers=active_producers(log),
            producer_expiration_ms=config.producer_expiration_ms,
            erase=erase,
            file_delete_delay_s=0.0 if erase is not None else config.file_delete_delay_ms / 1000,
        )
        run = CleaningRun(self, topic, partition, log, request)
        if not topic.note_cleaning(run):
            return None
        if not by_hand and topic.entry.topic_id in self._by_hand:
            run.end_early()
            return None
        return run


class CleaningRun:
    """``ended`` (finished, failed or ended early) may be asked at any time."""

    def __init__(
        self,
        kit: CleaningKit,
        topic: CleanedTopic,
        partition: int,
        log: OwnedLog,
        request: CleanRequest,
    ) -> None:
        context = kit.context
        self.topic = topic
        self.partition = partition
        self.place: Place = (topic.entry.topic_id, partition)
        self.ended = False
        self._kit = kit
        self._log = log
        self._request = request
        self._lock = threading.Lock()  # a slice, or the end: never both
        self._started_s = context.clock.monotonic_s()
        self._hold_s = self._kit.ledger.hold_s(self.place)
        self._cleaning: Cleaning | None = None  # made by the first slice: until then there is nothing to end

    @property
    def where(self) -> str:
        return self._log.where

    def keeps_topic(self) -> bool:
        """Whether cleanings of this partition are starved, and this one has time left."""
        return not self.ended and self._kit.context.clock.monotonic_s() - self._started_s < self._hold_s

    @property
    def progress(self) -> CleaningProgress:
        cleaning = self._cleaning
        return CleaningProgress("map", 0, 0) if cleaning is None else CleaningProgress(*cleaning.progress)

    def slice(self, budget_s: float) -> CleanResult | None:
        """Work for about ``budget_s``; the result when that was the last of it. None also once ``ended``.

        Any error ends the run and is a ``LogStoreError``: whatever goes wrong in here, a bug too, must not
        take the thread that flushes with it.
        """
        with self._lock:
            if self.ended:
                return None
            try:
                result = self._engine().step(budget_s)
                if result is not None:
                    self._settle(result)
                return result
            except LogStoreError:
                self._end(cancel=True)
                raise
            except OSError as error:
                self._end(cancel=True)
                raise from_os_error(error, "clean", self._log.directory) from error
            except Exception as error:
                self._end(cancel=True)
                raise InvariantError(f"cleaning {self.where}: {type(error).__name__}: {error}") from error
            except BaseException:
                self._end(cancel=True)
                raise

    def _engine(self) -> Cleaning:
        if self._cleaning is None:
            kit, context = self._kit, self._kit.context
            self._cleaning = kit.make(self._log, context.pool, context.clock, kit.retirement, self._request)
        return self._cleaning

    def _settle(self, result: CleanResult) -> None:
        """The files are in place: say so durably, then count it."""
        clock = self._kit.context.clock
        if self._request.erase is None:
            before = self._log.cleaner_point
            if result.cleaned_to <= self._request.start_offset < self._request.end_offset:
                raise StorageError(
                    f"cleaning {self.where} got nowhere: the keys behind offset {result.cleaned_to} do not fit "
                    f"{self._request.key_map_bytes} bytes",
                    hint="raise cleaner_key_map_bytes",
                )
            self._log.cleaner_point = result.cleaned_to
            try:
                self.topic.save_state()
            except LogStoreError:
                self._log.cleaner_point = before  # it is cleaned again, which changes nothing
                raise
            took_s = clock.monotonic_s() - self._started_s
            ledger = self._kit.ledger
            horizon_ms = ledger.finished(self.place, result, finished_ms=clock.wall_ms(), took_s=took_s)
            note_horizon(self._kit.context.fs, self._log.directory, horizon_ms)
            self._tell(result, took_s)
        self._end(cancel=False)

    def _tell(self, result: CleanResult, took_s: float) -> None:
        logger.info(
            "%s: compacted up to offset %d in %.3f s: %d of %d records stay, %d of %d bytes; %d tombstones removed, "
            "%d wait",
            self.where,
            result.cleaned_to,
            took_s,
            result.records_after,
            result.records_before,
            result.bytes_after,
            result.bytes_before,
            result.removed_tombstones,
            result.tombstones,
        )

    def end_early(self) -> None:
        """End it early, in order: its temporary files are removed, the log is as it was."""
        with self._lock:
            if not self.ended:
                self._end(cancel=True)
                self._kit.ledger.cancelled(self.place)

    def _end(self, *, cancel: bool) -> None:
        """The lock is held."""
        self.ended = True
        self.topic.note_cleaning(None)
        if cancel and self._cleaning is not None:
            self._cleaning.cancel()
