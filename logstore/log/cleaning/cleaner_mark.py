"""`cleaner-mark-checkpoint` in a partition's folder: before which offset cleanings may have removed records, and
when the next cleaning will find something to remove without any further write.

It is durable before the first cleaned segment takes an old one's place. The cleaner point in the topic's state
follows when the cleaning has come to its end: a cleaning that ended early, or whose process died, is seen in the
mark alone. Whoever wants to know whether the log still holds all of a former time asks here.

The delete horizon is written when a cleaning has come to its end, by the process that ran the cleaning, and read by
every later one: tombstones of an idle or released topic go when their time has come, whichever process is there
then. Before the first segment of another cleaning comes into place the horizon is taken back: a process that dies
in between leaves "not known", for which one cleaning has to look.

The text is a checkpoint's (``checkpoints.py``) with the entry `0 offset` and, where it is known, `1 horizon`: ms
since 1970, -1 where nothing waits. Without a file nothing was removed since there are marks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.errors import DamagedStoreError, LogStoreError, from_os_error
from logstore.log.checkpoints import decode_pairs, encode_pairs
from logstore.seams.fs import FileSystem, read_file, replace_file

FILE_NAME: Final = "cleaner-mark-checkpoint"


class CleanerMark(NamedTuple):
    """``offset``: 0 where nothing was cleaned; ``horizon_ms``: when the next cleaning has something to remove, -1
    for never, None where no cleaning has told."""

    offset: int
    horizon_ms: int | None


def read_mark(fs: FileSystem, directory: str) -> int:
    """The offset of the mark. Errors as ``read_whole_mark``."""
    return read_whole_mark(fs, directory).offset


def read_whole_mark(fs: FileSystem, directory: str) -> CleanerMark:
    """``StorageError``, ``DamagedStoreError``, ``UnsupportedStoreVersionError``."""
    path = f"{directory}/{FILE_NAME}"
    try:
        content = read_file(fs, path)
    except FileNotFoundError:
        return CleanerMark(0, None)
    except OSError as error:
        raise from_os_error(error, "read", path) from error
    pairs = decode_pairs(content, path)
    if [key for key, _ in pairs] not in ([0], [0, 1]) or pairs[0][1] < 0 or pairs[-1][1] < -1:
        raise DamagedStoreError(f"{path} has the entries {pairs[:3]}, not an offset and a time", path=path)
    return CleanerMark(pairs[0][1], pairs[1][1] if len(pairs) == 2 else None)


def raise_mark(fs: FileSystem, directory: str, offset: int) -> None:
    """At least ``offset`` from now on, and no horizon, durable when it returns. ``StorageError``,
    ``DiskFullError``: the mark is as it was; what ``read_mark`` raises."""
    mark = read_whole_mark(fs, directory)
    if mark.offset < offset or mark.horizon_ms is not None:
        _write(fs, directory, CleanerMark(max(mark.offset, offset), None))


def note_horizon(fs: FileSystem, directory: str, horizon_ms: int | None) -> None:
    """When the next cleaning has something to remove, as ``CleanerMark``. Errors as ``raise_mark``."""
    mark = read_whole_mark(fs, directory)
    if mark.horizon_ms != horizon_ms:
        _write(fs, directory, mark._replace(horizon_ms=horizon_ms))


def _write(fs: FileSystem, directory: str, mark: CleanerMark) -> None:
    path = f"{directory}/{FILE_NAME}"
    pairs = [(0, mark.offset)]
    if mark.horizon_ms is not None:
        pairs.append((1, mark.horizon_ms))
    try:
        replace_file(fs, path, encode_pairs(pairs))
    except OSError as error:
        raise from_os_error(error, "write", path) from error


def copy_mark(fs: FileSystem, source: str, target: str, *, cleaned_to: int, end: int) -> None:
    """For a copy of the partition's log up to ``end``, whose state has the cleaner point ``cleaned_to``. A mark
    that cannot be read says that anything may be gone. Errors of writing as ``raise_mark``."""
    try:
        mark = read_mark(fs, source)
    except LogStoreError:
        mark = end
    raise_mark(fs, target, min(max(mark, cleaned_to), end))
