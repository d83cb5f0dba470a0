"""The active segment's file, kept open while it has unsynced bytes."""

from __future__ import annotations

from logstore.errors import from_os_error
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment import Segment
from logstore.native import compiled
from logstore.seams.fs import File


@compiled("log.file_pins")
class HeldFile:
    """An unsynced file keeps its descriptor: one that is closed and opened again between a failed writeback
    and the fsync might not be told of the failure. The log's lock guards it.

    One sync at a time may borrow the file: it runs without the lock, and the descriptor outlives it even if the
    file is let go meanwhile.
    """

    def __init__(self, pool: FilePool) -> None:
        self._pool = pool
        self.file: File | None = None
        self._lent: File | None = None
        self._let_go_while_lent = False

    def hold(self, segment: Segment) -> File:
        try:
            self.file = self._pool.pin(segment.path(), True)
        except OSError as error:
            raise from_os_error(error, "open", segment.path()) from error
        return self.file

    def let_go(self) -> None:
        file, self.file = self.file, None
        if file is None:
            return
        if file is self._lent:
            self._let_go_while_lent = True
        else:
            self._pool.unpin(file, True)

    def lend(self) -> File | None:
        """The file, to be given back; None if none is held."""
        if self._lent is not None:
            self.take_back()  # of a sync that an interrupt cut short
        self._lent = self.file
        return self.file

    def take_back(self) -> None:
        """What was lent is in nobody's use any more."""
        file, self._lent = self._lent, None
        if self._let_go_while_lent and file is not None:
            self._let_go_while_lent = False
            self._pool.unpin(file, True)
