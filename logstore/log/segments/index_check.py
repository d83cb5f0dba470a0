"""A segment's two indexes held against its batches, in one walk over the batches.

An entry of the offset index names the last offset and the position of one batch; one of the time index names
the largest timestamp so far and the last offset of the batch that holds it. Both lists only grow, so they are
compared in step with the batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from logstore.errors import LogStoreError
from logstore.log.inspection.inspect import ScannedBatch, index_table, segment_path
from logstore.log.segments import offset_index, time_index
from logstore.log.segments.mapped_table import MappedTable
from logstore.seams.fs import FileSystem

Finding: TypeAlias = tuple[str, int, str, str]  # path, position of the entry (-1: the file), kind, message


class IndexCheck:
    """``see`` every intact batch in order, then ``finish`` for what is wrong.

    ``by_broker``: as Kafka's versions wrote them: several batches that a follower appended at a stroke have one
    entry, with the place of the first and the end of the last; a time entry names the record's own offset.
    """

    def __init__(self, fs: FileSystem, folder: str, base_offset: int, *, by_broker: bool = False) -> None:
        self._base_offset = base_offset
        self._by_broker = by_broker
        self._findings: list[Finding] = []
        self._offset_path = segment_path(folder, base_offset, offset_index.SUFFIX)
        self._time_path = segment_path(folder, base_offset, time_index.SUFFIX)
        self._offsets = self._load(fs, self._offset_path, offset_index.ROW.size)
        self._times = self._load(fs, self._time_path, time_index.ROW.size)
        self._offset_entry = 0
        self._time_entry = 0
        self._max_timestamp_ms = -1
        self._tracking = True  # false once a bad span hid batches: entries may point into it

    def _load(self, fs: FileSystem, path: str, row_bytes: int) -> MappedTable | None:
        row = offset_index.ROW if path == self._offset_path else time_index.ROW
        try:
            table = index_table(fs, path, row)
        except LogStoreError as error:
            self._findings.append((path, -1, "unreadable", error.message))
            return None
        if table is None:
            self._findings.append((path, -1, "missing", "the index is missing; the next open rebuilds it"))
            return None
        broken = table.first_break()
        if broken is not None:
            self._findings.append((path, broken * row_bytes, "index", f"entry {broken} does not grow"))
            return None
        return table

    def lose_track(self) -> None:
        """A span between batches could not be read: entries may rightly point into it."""
        self._tracking = False

    def see(self, batch: ScannedBatch) -> None:
        self._max_timestamp_ms = max(self._max_timestamp_ms, batch.header.max_timestamp)
        self._see_offsets(batch)
        self._see_times(batch)

    def _see_offsets(self, batch: ScannedBatch) -> None:
        table = self._offsets
        while table is not None and self._offset_entry < table.count:
            relative, position = table.row(self._offset_entry)
            if position > batch.position:
                return
            last_offset = self._base_offset + relative
            if position < batch.position:
                if self._tracking:
                    self._offset_fault(f"position {position} is not the start of a batch")
            elif last_offset != batch.header.last_offset and not (
                self._by_broker and last_offset > batch.header.last_offset
            ):
                self._offset_fault(
                    f"offset {last_offset} at position {position}, "
                    f"where the batch ends with offset {batch.header.last_offset}"
                )
            self._offset_entry += 1

    def _see_times(self, batch: ScannedBatch) -> None:
        table = self._times
        while table is not None and self._time_entry < table.count:
            timestamp_ms, relative = table.row(self._time_entry)
            offset = self._base_offset + relative
            if offset > batch.header.last_offset:
                return
            if self._tracking:
                if offset < batch.header.base_offset or (
                    offset != batch.header.last_offset and not self._by_broker
                ):
                    self._time_fault(f"offset {offset} is not the last of a batch")
                elif timestamp_ms != self._max_timestamp_ms or timestamp_ms != batch.header.max_timestamp:
                    self._time_fault(
                        f"timestamp {timestamp_ms} for offset {offset}: the batch's largest is "
                        f"{batch.header.max_timestamp}, the largest so far {self._max_timestamp_ms}"
                    )
            self._time_entry += 1

    def _offset_fault(self, message: str) -> None:
        entry = self._offset_entry
        position = entry * offset_index.ROW.size
        self._findings.append((self._offset_path, position, "index", f"entry {entry}: {message}"))

    def _time_fault(self, message: str) -> None:
        entry = self._time_entry
        position = entry * time_index.ROW.size
        self._findings.append((self._time_path, position, "index", f"entry {entry}: {message}"))

    def finish(self) -> Iterator[Finding]:
        """All findings; entries that no batch answered point past the log."""
        yield from self._findings
        if not self._tracking:
            return
        if self._offsets is not None and self._offset_entry < self._offsets.count:
            left = self._offsets.count - self._offset_entry
            position = self._offset_entry * offset_index.ROW.size
            yield self._offset_path, position, "index", f"{left} entries point past the end of the segment"
        if self._times is not None and self._time_entry < self._times.count:
            left = self._times.count - self._time_entry
            position = self._time_entry * time_index.ROW.size
            yield self._time_path, position, "index", f"{left} entries point past the end of the segment"
