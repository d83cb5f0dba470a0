"""The two-step removal of segment files: renamed to `.deleted` now, removed after `file.delete.delay.ms`.

The rename takes a segment out of every later listing at once; the delay lets readers in other processes that
have found the name but not opened the file yet come to their end. Open files and mappings live on either way.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from logstore.log.producers import producer_snapshot, transaction_index
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment import LOG_SUFFIX, Segment
from logstore.seams.fs import remove_if_there

DELETED_SUFFIX = ".deleted"
_SUFFIXES = (
    offset_index.SUFFIX,
    time_index.SUFFIX,
    transaction_index.SUFFIX,
    producer_snapshot.SUFFIX,
    LOG_SUFFIX,
)


class Retirement:
    """Segments of one store that are on their way out. Any thread may retire and sweep."""

    def __init__(self, pool: FilePool) -> None:
        self._pool = pool
        self._sweeping = threading.Lock()
        self._waiting: deque[tuple[float, str]] = deque()  # (due by the monotonic clock, path)

    def retire(self, directory: str, segments: Sequence[Segment], due_s: float) -> None:
        """Rename the files, log last (without it the others mean nothing), durably. Raises ``OSError``."""
        fs = self._pool.fs
        for segment in segments:
            for suffix in _SUFFIXES:
                path = segment.path(suffix)
                self._pool.forget_file(path)
                try:
                    fs.rename(path, path + DELETED_SUFFIX)
                except FileNotFoundError:
                    continue  # most segments have no transaction index, and an index may be missing
                self._waiting.append((due_s, path + DELETED_SUFFIX))
        if segments:
            fs.sync_dir(directory)

    @property
    def waiting(self) -> int:
        """Files that are renamed and not removed yet."""
        return len(self._waiting)

    def sweep(self, now_s: float) -> float | None:
        """Remove what is due; seconds until the next is, None if nothing waits. Raises ``OSError``."""
        with self._sweeping:
            while self._waiting and self._waiting[0][0] <= now_s:
                path = self._waiting[0][1]
                remove_if_there(self._pool.fs, path)  # the topic may be deleted, or its next owner swept up
                self._waiting.popleft()
            return self._waiting[0][0] - now_s if self._waiting else None
