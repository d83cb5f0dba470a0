"""The active segment's file, kept open while it has unsynced bytes."""

from __future__ import annotations

from logstore.errors import from_os_error
from logstore.log.file_pool import FilePool
from logstore.log.segment import Segment
from logstore.seams.fs import File


class HeldFile:
    """An unsynced file keeps its descriptor: one that is closed and opened again between a failed writeback
    and the fsync might not be told of the failure. The log's lock guards it."""

    def __init__(self, pool: FilePool) -> None:
        self._pool = pool
        self.file: File | None = None

    def hold(self, segment: Segment) -> File:
        try:
            self.file = self._pool.pin(segment.path(), True)
        except OSError as error:
            raise from_os_error(error, "open", segment.path()) from error
        return self.file

    def let_go(self) -> None:
        file, self.file = self.file, None
        if file is not None:
            self._pool.unpin(file, True)
