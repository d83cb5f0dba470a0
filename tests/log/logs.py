"""One partition's log without a store around it: on the in-memory file system, with a clock moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logstore.config import TopicConfig
from logstore.format.batch import decode_batches, encode_batch
from logstore.log.append_validation import CheckedBatch, split_checked
from logstore.log.commit_policy import by_commit_index
from logstore.log.log_offsets import Appended
from logstore.log.owned_log import OwnedLog
from logstore.log.recovery.recovery import Loaded, LoadRules, load
from logstore.log.replica_log import ReplicaLog
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.tail_cache import TailBudget, TailCache
from logstore.seams.clock import ManualClock
from logstore.seams.fs import read_file
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.types import Record, Row

FOLDER = "/t-0"
NOW_MS = 1_700_000_000_000
NO_TAIL = {"tail_cache_bytes": 0}


def batch(
    *values: bytes, at_ms: int = NOW_MS, base_offset: int = 0, epoch: int = -1, codec: str = "none"
) -> bytes:
    """One encoded batch of records without keys."""
    rows = [(None, value) for value in values]
    return encode_batch(rows, now_ms=at_ms, base_offset=base_offset, leader_epoch=epoch, codec=codec)


def checked(*batches: bytes) -> list[CheckedBatch]:
    return split_checked(b"".join(batches), "t-0")


def make_folder(fs: MemoryFileSystem, folder: str = FOLDER) -> None:
    fs.mkdir(folder)
    fs.sync_dir("/")


class Desk:
    """A folder, and the log opened in it; ``events`` are the calls that the log made outwards. The folder of a file
    system that is given has to be there."""

    def __init__(self, fs: MemoryFileSystem | None = None, *, folder: str = FOLDER, **settings: Any) -> None:
        self.fs = MemoryFileSystem() if fs is None else fs
        self.folder = folder
        if fs is None:
            make_folder(self.fs, folder)
        self.config = TopicConfig(**settings)
        self.clock = ManualClock(NOW_MS)
        self.pool = FilePool(self.fs)
        self.events: list[str] = []
        self.published: list[tuple[int, int, tuple[int, int]]] = []
        self.fail_before_roll: Exception | None = None

    def load(self, **rules: Any) -> Loaded:
        known: dict[str, Any] = {
            "recovery_point": 0,
            "log_start_offset": 0,
            "clean": False,
            "same_boot": True,
            "interval_bytes": self.config.index_interval_bytes,
            "max_batch_bytes": self.config.max_message_bytes,
            "now_ms": NOW_MS,
        }
        return load(self.pool, self.folder, "t", 0, LoadRules(**(known | rules)))

    def open(self, *, jitter_ms: int = 0, **rules: Any) -> ReplicaLog:
        """The log of a node that is alone, which can do all that a replica's can: tests write as followers, too."""
        return ReplicaLog(**self._parts(rules), roll_jitter_ms=jitter_ms)

    def replica(self, **rules: Any) -> ReplicaLog:
        """The log of a replica, whose high watermark is told from outside."""
        known: dict[str, Any] = {"high_watermark": 0, "epochs": "keep"}
        return ReplicaLog(**self._parts(known | rules), commits=by_commit_index)

    def _parts(self, rules: dict[str, Any]) -> dict[str, Any]:
        return {
            "where": "t-0",
            "directory": self.folder,
            "pool": self.pool,
            "config": self.config,
            "clock": self.clock,
            "loaded": self.load(**rules),
            "tail": TailCache(TailBudget(), self.config.tail_cache_bytes),
            "publish": self._publish,
            "before_roll": self._before_roll,
            "on_dirty": lambda _: self.events.append("dirty"),
            "on_poison": lambda _: self.events.append("poison"),
        }

    def _publish(self, log: OwnedLog) -> None:
        self.published.append((log.high_watermark, log.log_end_offset, log.end_position))

    def _before_roll(self, log: OwnedLog) -> None:
        if self.fail_before_roll is not None:
            raise self.fail_before_roll
        self.events.append(f"roll at {log.recovery_point}")

    def content(self, base_offset: int, suffix: str = ".log") -> bytes:
        return read_file(self.fs, f"{self.folder}/{base_offset:020d}{suffix}")

    def names(self, suffix: str = ".log") -> list[str]:
        return sorted(name for name in self.fs.listdir(self.folder) if name.endswith(suffix))


def append(log: OwnedLog, *values: bytes, at_ms: int = NOW_MS) -> Appended:
    return log.append(checked(batch(*values, at_ms=at_ms)))


def records(log: Any, start: int = 0, end: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """All records of an owned or observed log below ``end``, through as many reads as it takes."""
    limit = log.bounds().log_end_offset if end is None else end
    found: list[Record] = []
    offset = start
    while offset < limit:
        chunk = log.read(offset, max_bytes, limit)
        if chunk is None:
            break
        found += decode_batches(bytes(chunk.data), "t", 0, start_offset=offset, end_offset=limit)
        assert chunk.next_offset > offset
        offset = chunk.next_offset
    return found


def values(log: Any, start: int = 0, end: int | None = None, max_bytes: int = 1 << 20) -> list[bytes]:
    return [record.value for record in records(log, start, end, max_bytes)]


def rows_of(count: int, first: int = 0, size: int = 20) -> Sequence[Row]:
    return [(b"k%d" % number, b"v%05d" % number + bytes(size)) for number in range(first, first + count)]
