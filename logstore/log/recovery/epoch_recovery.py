"""The epoch table of a log that is opened: of its checkpoint, or of its batches, cut to the records that are there."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.log.checkpoints import decode_pairs, encode_pairs
from logstore.log.epochs import FILE_NAME, Epochs
from logstore.log.recovery.scan import SegmentScan
from logstore.log.segments.segment import Segment
from logstore.seams.fs import FileSystem, exists, read_file, replace_file


def recover_epochs(
    fs: FileSystem,
    directory: str,
    segments: Sequence[Segment],
    log_end_offset: int,
    *,
    step: bool,
    keep_empty: bool,
    log_start_offset: int,
) -> Epochs:
    """The table, durable when it returns. ``step``: a new epoch begins at the log's end, unless the log has never had
    a record. ``keep_empty``: an epoch that begins at the log's end stays; else only those with records do, since a
    replica may yet get records of an older one there. ``OSError``, ``DamagedStoreError``."""
    path = f"{directory}/{FILE_NAME}"
    rebuilt = not exists(fs, path)
    entries = _of_batches(segments) if rebuilt else decode_pairs(read_file(fs, path), path)
    end = log_end_offset + 1 if keep_empty else log_end_offset
    epochs = Epochs(entry for entry in entries if entry[1] < end)
    newest = Epochs(entries).latest  # also of an epoch whose records are cut: it is never given again
    if step and (newest >= 0 or log_end_offset > log_start_offset):
        epochs.assign(newest + 1, log_end_offset)
    changed = rebuilt or tuple(entries) != epochs.entries
    if changed and (epochs.entries or not rebuilt):
        replace_file(fs, path, encode_pairs(epochs.entries))
    return epochs


def _of_batches(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """The table as the batches' own epochs tell it: for a checkpoint that is gone."""
    epochs = Epochs()
    for segment in segments:
        scan = SegmentScan(
            segment.bytes_at, start=0, end=segment.size, next_offset=segment.base_offset, check=False
        )
        for _, header, _ in scan:
            epochs.assign(header.leader_epoch, header.base_offset)
    return list(epochs.entries)
