"""`cleaner-mark-checkpoint` in a partition's folder: before which offset cleanings may have removed records.

It is durable before the first cleaned segment takes an old one's place. The cleaner point in the topic's state
follows when the cleaning has come to its end: a cleaning that ended early, or whose process died, is seen in the
mark alone. Whoever wants to know whether the log still holds all of a former time asks here.

The text is a checkpoint's (``checkpoints.py``) with one entry, `0 offset`. Without a file nothing was removed
since there are marks.
"""

from __future__ import annotations

from typing import Final

from logstore.errors import DamagedStoreError, LogStoreError, from_os_error
from logstore.log.checkpoints import decode_pairs, encode_pairs
from logstore.seams.fs import FileSystem, read_file, replace_file

FILE_NAME: Final = "cleaner-mark-checkpoint"


def read_mark(fs: FileSystem, directory: str) -> int:
    """0: there is none. ``StorageError``, ``DamagedStoreError``, ``UnsupportedStoreVersionError``."""
    path = f"{directory}/{FILE_NAME}"
    try:
        content = read_file(fs, path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise from_os_error(error, "read", path) from error
    pairs = decode_pairs(content, path)
    if len(pairs) != 1 or pairs[0][0] != 0 or pairs[0][1] < 0:
        raise DamagedStoreError(f"{path} has {len(pairs)} entries, not one from offset 0", path=path)
    return pairs[0][1]


def raise_mark(fs: FileSystem, directory: str, offset: int) -> None:
    """At least ``offset`` from now on, durable when it returns. ``StorageError``, ``DiskFullError``: the mark is
    as it was; what ``read_mark`` raises."""
    if read_mark(fs, directory) >= offset:
        return
    path = f"{directory}/{FILE_NAME}"
    try:
        replace_file(fs, path, encode_pairs([(0, offset)]))
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
