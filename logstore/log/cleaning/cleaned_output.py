"""Where the batches of a group go once it is decided what becomes of them: nowhere, or into `.cleaned` files."""

from __future__ import annotations

from collections.abc import Generator

from logstore.format.batch import BatchHeader, read_header
from logstore.log.cleaning import swap
from logstore.log.cleaning.compaction import AbortedRanges, Action, Cover, Decision
from logstore.log.cleaning.swap import Swap
from logstore.log.producers import transaction_index
from logstore.log.producers.transaction_index import AbortedTransaction
from logstore.log.segments.file_pool import FilePool
from logstore.log.segments.segment import Segment
from logstore.log.segments.segment_writer import SegmentWriter
from logstore.seams.fs import write_all

_SYNC_BYTES = 2 << 20  # what one sync may take at the most, so that a step stays short


class ChangeWatch:
    """A sink that only looks whether anything would change."""

    def __init__(self) -> None:
        self.changed = False
        self._cover: Cover | None = None

    @property
    def is_done(self) -> bool:
        return self.changed

    def take(self, header: BatchHeader, _: memoryview, decision: Decision) -> None:
        if decision.action is Action.KEEP:
            self._cover = None
            return
        joins = self._cover is not None and self._cover.extended(header) is not None
        self._cover = Cover.of(header)
        self.changed = decision.action is Action.WRITE or joins or not self._cover.alone

    def end(self) -> None:
        """Nothing is held back."""


class CleanedOutput:
    """What a group becomes: `.cleaned` files, one set unless a position would not fit its index."""

    is_done = False

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        base_offset: int,
        interval_bytes: int,
        largest_bytes: int,
        aborted: AbortedRanges,
    ) -> None:
        self.writers: list[SegmentWriter] = []
        self.swap: Swap | None = None
        self.placed = False
        self._pool = pool
        self._directory = directory
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._largest_bytes = largest_bytes
        self._aborted = aborted
        self._rows: dict[int, list[AbortedTransaction]] = {}
        self._cover: Cover | None = None
        self._cover_data = b""

    def take(self, header: BatchHeader, data: memoryview, decision: Decision) -> None:
        if decision.action is Action.DROP:
            joined = self._cover.extended(header) if self._cover is not None else None
            if joined is None:
                self.end()
                joined = Cover.of(header)
                self._cover_data = bytes(data) if joined.alone else b""
            self._cover = joined
            return
        self.end()
        if decision.action is Action.WRITE:
            self._write(read_header(decision.data), memoryview(decision.data))
        else:
            self._write(header, data)

    def end(self) -> None:
        """Write what covers the batches that went last."""
        cover, self._cover = self._cover, None
        if cover is not None:
            data = self._cover_data if cover.alone else cover.encoded()
            self._write(read_header(data), memoryview(data))

    def _write(self, header: BatchHeader, data: memoryview) -> None:
        writer = self.writers[-1] if self.writers else self._open(self._base_offset)
        if writer.size > 0 and writer.size + header.size > self._largest_bytes:
            writer = self._open(header.base_offset)
        writer.append(header, data)
        writer.sync_beyond(_SYNC_BYTES)
        row = self._aborted.of_marker(header) if header.is_control else None
        if row is not None:
            self._rows.setdefault(writer.base_offset, []).append(row)

    def _open(self, base_offset: int) -> SegmentWriter:
        writer = SegmentWriter(
            self._pool.fs, self._directory, base_offset, self._interval_bytes, swap.CLEANED_SUFFIX
        )
        self.writers.append(writer)
        return writer

    def close(self, had_transactions: bool) -> Generator[None, None, None]:
        """All files complete and synced. ``had_transactions``: an old file has to be replaced, be it by an
        empty one."""
        if not self.writers:
            self._open(self._base_offset)  # of segments without a batch
        for writer in self.writers:
            writer.finish()
            yield
            rows = self._rows.get(writer.base_offset, [])
            if rows or had_transactions:
                path = f"{self._directory}/{writer.base_offset:020d}{transaction_index.SUFFIX}"
                file = self._pool.fs.open(path + swap.CLEANED_SUFFIX, "create")
                try:
                    write_all(file, [transaction_index.encode_rows(rows)], 0)
                    file.sync()
                finally:
                    file.close()
            yield

    @property
    def row_counts(self) -> dict[int, int]:
        """Base offset -> rows of its transaction index."""
        return {writer.base_offset: len(self._rows.get(writer.base_offset, [])) for writer in self.writers}

    def segments(self, next_offset: int) -> list[Segment]:
        ends = [writer.base_offset for writer in self.writers[1:]] + [next_offset]
        return [
            Segment(
                self._pool,
                self._directory,
                writer.base_offset,
                size=writer.size,
                next_offset=end,
                interval_bytes=self._interval_bytes,
            )
            for writer, end in zip(self.writers, ends, strict=True)
        ]

    def drop(self) -> None:
        """Take it all back, unless it is in place. ``OSError`` leaves files for the next cleaning to remove."""
        for writer in self.writers:
            writer.abandon()
        if self.placed:
            return
        fs = self._pool.fs
        if self.swap is not None:
            self.swap.undo(fs)
        for writer in self.writers:
            swap.discard(fs, self._directory, writer.base_offset)
