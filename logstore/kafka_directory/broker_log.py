"""A partition in a Kafka broker's directory: read-only, beside the live broker or after it.

Where it ends is found as the broker's own recovery finds it: from the recovery point on every batch is checked,
and the log ends before the first bad one. A log that ends before its own log start offset then (records were
deleted, and what is left is damaged) is empty at that offset. A broker of several replicas shows its consumers
less, up to the high watermark: what lies between may still be cut when a leader changes. Of a partition with one
replica, whose high watermark is the end of its log, this shows exactly what the broker would.
"""

from __future__ import annotations

from collections.abc import Callable

from logstore.directory.topic_state import PartitionState
from logstore.errors import (
    CorruptBatchError,
    RemoteSegmentError,
    SegmentVanishedError,
    from_os_error,
)
from logstore.kafka_directory.broker_segments import BrokerListing, BrokerSegment
from logstore.log.epochs import FILE_NAME as EPOCHS_FILE
from logstore.log.epochs import Epochs
from logstore.log.read_only_log import ReadOnlyLog
from logstore.log.recovery.scan import SegmentScan
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment import Chunk
from logstore.log.segments.segment_list import SegmentList
from logstore.ownership.live import LiveSlot, MemoryLive
from logstore.seams.fs import FileStat

_TRIES = 5


class BrokerLog(ReadOnlyLog):
    """``folder``: where the partition is now (a broker may move it to another of its directories); ``state``: the
    checkpoints' word on the partition, newest first; ``is_remote``: whether offsets before the first segment may lie
    in remote storage; ``not_here``: the error when there is no folder."""

    def __init__(
        self,
        *,
        where: str,
        folder: Callable[[], str],
        pool: FilePool,
        state: Callable[[], PartitionState | None],
        is_remote: Callable[[], bool],
        not_here: Callable[[], Exception],
    ) -> None:
        super().__init__(
            where=where, directory=folder(), pool=pool, live=MemoryLive(), live_slot=0, state=state
        )
        self.gapless = False
        self._folder = folder
        self._is_remote = is_remote
        self._not_here = not_here
        self._stats: dict[tuple[int, bool], tuple[FileStat, BrokerSegment]] = {}
        self._checked: tuple[BrokerSegment, int, int] | None = None  # all before (segment, position) is good
        self._dropped: dict[tuple[int, bool], FileStat] | None = None  # files that end before the log's start

    # --- where it starts and ends ---

    def _first_offset(self, state: PartitionState | None) -> int:
        """Retention moves the first segment before the checkpoint says so; remote segments lie before it."""
        start = state.log_start_offset if state is not None else 0
        if not self.segments.segments or self._is_remote():
            return start
        return max(start, self.segments.segments[0].base_offset)

    def _scan_end(self, state: PartitionState | None) -> int:
        point = state.recovery_point if state is not None else 0
        start = state.log_start_offset if state is not None else 0
        for attempt in range(_TRIES):
            try:
                end = self._scan_from(point, last_try=attempt == _TRIES - 1)
            except FileNotFoundError:
                end = None  # swapped or removed since it was listed
            if end is not None and end >= start:
                return end
            if (
                end is not None and attempt > 0
            ):  # the listing is younger than the checkpoint was when it was read
                return self._drop_all(start)
            self._look_again()
        raise self._too_fast()

    def _drop_all(self, start: int) -> int:
        """What the broker does at its start with a log that ends before its log start offset: the segments, the
        epochs and the producers are dropped, and the log goes on, empty, at ``start``."""
        self._dropped = {place: seen for place, (seen, _) in self._stats.items()}
        self.segments = SegmentList()
        self._replay = self._checked = None
        return start

    def _stable_end(self, state: PartitionState | None, end: int) -> int:
        """As of any log; never before its start, whatever of an open transaction was deleted."""
        return max(super()._stable_end(state, end), min(self._first_offset(state), end))

    def _scan_from(self, point: int, *, last_try: bool) -> int | None:
        """The end of the log; None if a segment other than the last looks bad and may just be in a swap."""
        segments = self.segments.segments
        if not segments:
            return max(point, self._first_offset(self._state()))
        first = self.segments.floor(point)
        if self._checked is not None:
            first = max(first, self.segments.floor(self._checked[0].base_offset))
        next_offset = point
        for number in range(first, len(segments)):
            segment = segments[number]
            if not isinstance(segment, BrokerSegment):
                continue
            scan = self._scanned_segment(segment, point)
            next_offset = max(scan.next_offset, point)
            if scan.bad is None:
                continue
            segment.refuse_old_message(scan.position)
            if number < len(segments) - 1:
                if not last_try:
                    return None
                self.segments = SegmentList(segments[: number + 1])  # recovery drops all behind it
            segment.size = scan.position
            break
        active = self.segments.segments[-1]
        active.next_offset = next_offset
        return next_offset

    def _scanned_segment(self, segment: BrokerSegment, point: int) -> SegmentScan:
        """Every batch above the recovery point that was not looked at before."""
        position, next_offset = 0, segment.base_offset
        known = self._checked
        if known is not None and known[0] is segment and known[1] <= segment.size:
            position, next_offset = known[1], known[2]
        elif point > segment.base_offset:
            found = segment.locate(point - 1)
            position = segment.size if found is None else found
        scan = SegmentScan(segment.bytes_at, start=position, end=segment.size, next_offset=next_offset)
        for _ in scan:
            pass
        self._checked = segment, scan.position, scan.next_offset
        return scan

    def epoch_table(self) -> Epochs:
        """As of any log; a broker makes the file empty, and fills it with the first epoch."""
        path = f"{self.directory}/{EPOCHS_FILE}"
        if self._dropped is not None:
            return Epochs()
        try:
            return Epochs() if self._fs.stat(path).size == 0 else super().epoch_table()
        except FileNotFoundError:
            return Epochs()
        except OSError as error:
            raise from_os_error(error, "look at", path) from error

    # --- segments ---

    def _refresh(self, slot: LiveSlot | None) -> None:
        """List the directory again; a segment whose file is another one now is made anew. The lock is held.

        A listing during which names changed may lack a segment in both its old and its new name: it is made
        again, so that a swap never looks like lost records.
        """
        del slot
        for attempt in range(_TRIES):
            stats = self._listed(last_try=attempt == _TRIES - 1)
            if stats is not None:
                self._stats = stats
                if self._dropped != {place: seen for place, (seen, _) in stats.items()}:
                    self._dropped = None
                self.segments = SegmentList(
                    [] if self._dropped is not None else [segment for _, segment in stats.values()]
                )
                return
        raise self._too_fast()

    def _listed(self, *, last_try: bool) -> dict[tuple[int, bool], tuple[FileStat, BrokerSegment]] | None:
        """The segments that are there; None if one went away, or names changed, while they were looked at."""
        fs = self._fs
        if (folder := self._folder()) != self.directory:
            self.directory = folder
            self._stats, self._checked = {}, None
        try:
            before = fs.stat(self.directory)  # refuses a symbolic link, which a listing would follow
            listing = BrokerListing.of(fs.listdir(self.directory))
            changed = fs.stat(self.directory).mtime_ns != before.mtime_ns
        except FileNotFoundError:
            raise self._not_here() from None
        except OSError as error:
            raise from_os_error(error, "list", self.directory) from error
        if changed and not last_try:
            return None
        stats: dict[tuple[int, bool], tuple[FileStat, BrokerSegment]] = {}
        try:
            places = listing.counted(self._swapped_end)
            for number, place in enumerate(places):
                following = places[number + 1][0] if number + 1 < len(places) else None
                stats[place] = self._segment_at(place, following)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os_error(error, "look at the segments in", self.directory) from error
        return stats

    def _too_fast(self) -> SegmentVanishedError:
        return SegmentVanishedError(
            f"{self.where}: the segments in {self.directory} change faster than they can be looked at",
            hint="read again; if it stays so, `logstore log verify` says what is missing",
        )

    def _segment_at(self, place: tuple[int, bool], following: int | None) -> tuple[FileStat, BrokerSegment]:
        """The segment and its file, as it is now. ``OSError``."""
        base, swapped = place
        next_offset = base if following is None else following
        made = BrokerSegment(
            self._pool, self.directory, base, size=0, next_offset=next_offset, swapped=swapped
        )
        seen = self._fs.stat(made.path())
        known = self._stats.get(place)
        if known is not None and known[0].inode == seen.inode and known[0].size <= seen.size:
            segment = known[1]
            segment.size, segment.next_offset = seen.size, next_offset  # the scan narrows it again
            return seen, segment
        if known is not None:
            self._checked = None  # the broker put another file there, or its recovery cut this one
            for suffix in (".log", ".index", ".timeindex"):
                self._pool.forget_file(made.path(suffix))
        made.size = seen.size
        return seen, made

    def _swapped_end(self, base: int) -> int:
        """The first offset past a segment whose swap was not finished: its last batch tells. ``OSError``."""
        segment = BrokerSegment(self._pool, self.directory, base, size=0, next_offset=base, swapped=True)
        segment.size = self._fs.stat(segment.path()).size
        scan = SegmentScan(segment.bytes_at, start=0, end=segment.size, next_offset=base, check=False)
        for _ in scan:
            pass
        if scan.bad is not None:
            path = segment.path()
            raise CorruptBatchError(
                f"{path} at byte {scan.position}: {scan.bad.error.message}: which segments it replaces is not known",
                hint="start the broker on the directory: it finishes the swap, or says what is wrong",
                path=path,
                position=scan.position,
            )
        return scan.next_offset

    def _look_again(self) -> None:
        """Trust no descriptor and no segment that is held. The lock is held."""
        self._pool.forget(self.directory)
        self._stats.clear()
        self._checked = None
        self._refresh(None)

    # --- read ---

    def read(self, offset: int, max_bytes: int, limit_offset: int) -> Chunk | None:
        """As ``OwnedLog.read``, but None also where compaction left nothing from ``offset`` to the limit.
        RemoteSegmentError, UnsupportedMagicError, SegmentVanishedError, CorruptBatchError."""
        for attempt in range(_TRIES):
            last_try = attempt == _TRIES - 1
            segments = self._current()
            self._check_reach(segments, offset)
            try:
                chunk = segments.read(offset, max_bytes, limit_offset)
            except FileNotFoundError:
                chunk = None
                if last_try:
                    raise
            except CorruptBatchError:
                chunk = None
                if last_try:
                    raise
            if chunk is not None:
                return chunk
            if offset >= limit_offset or (attempt > 0 and last_try):
                return None
            with self._lock:
                self._look_again()
        return None

    def _check_reach(self, segments: SegmentList, offset: int) -> None:
        first = segments.segments[0].base_offset if segments.segments else 0
        if offset >= first:
            return
        if self._is_remote():
            raise RemoteSegmentError(
                f"{self.where}: offsets {offset} to {first - 1} lie in the cluster's remote storage, not in "
                f"{self.directory}",
                hint=f"read from offset {first} on, or read the older ones through the cluster",
                local_start_offset=first,
            )
        raise SegmentVanishedError(
            f"{self.where}: offsets {offset} to {first - 1} are gone",
            hint=f"go on at offset {first}",
            lost=(offset, first),
        )
