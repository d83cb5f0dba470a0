"""`transaction-index-checkpoint`: how many rows the transaction index of each segment has at least.

An index that is gone, or short, would show aborted records as committed ones, and a reader could not tell: markers
come after the data. The count is written once rows are synced, so only where transactions were aborted; a cleaning
takes the counts of the segments that it replaces out before the new ones are in place. The text is a checkpoint's
(``checkpoints.py``), one entry `base count` a segment. Folders of earlier versions have none until their next
writer, which counts what it finds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

from logstore.errors import LogStoreError
from logstore.log.checkpoints import decode_pairs, encode_pairs
from logstore.log.producers.transaction_index import ROW, SUFFIX
from logstore.seams.fs import FileSystem, exists, read_file, replace_file

FILE_NAME: Final = "transaction-index-checkpoint"
logger = logging.getLogger(__name__)
_changing = threading.Lock()  # a roll and a cleaning of this process may come at once; no hold is long


def read_counts(fs: FileSystem, directory: str) -> dict[int, int]:
    """Base offset -> rows. Of a file that cannot be understood nothing is believed. OSError."""
    path = f"{directory}/{FILE_NAME}"
    try:
        return dict(decode_pairs(read_file(fs, path), path))
    except FileNotFoundError:
        return {}
    except LogStoreError as error:
        logger.warning("the numbers of aborted transactions are not known: %s", error)
        return {}


def count_files(fs: FileSystem, directory: str) -> None:
    """Note what the index files of a folder have that is complete. OSError."""
    found = {}
    for name in fs.listdir(directory):
        base, dot, suffix = name.partition(".")
        if dot + suffix == SUFFIX and base.isdigit():
            found[int(base)] = fs.stat(f"{directory}/{name}").size // ROW.size
    note_counts(fs, directory, found)


def note_counts(
    fs: FileSystem, directory: str, found: Mapping[int, int], *, gone: Collection[int] = ()
) -> None:
    """Durable when it returns; nothing is written if nothing changes. OSError: the file is as it was."""
    with _changing:
        counts = read_counts(fs, directory)
        changed = {base: count for base, count in counts.items() if base not in gone}
        changed.update((base, count) for base, count in found.items() if count)
        path = f"{directory}/{FILE_NAME}"
        if changed != counts:
            replace_file(fs, path, encode_pairs(sorted(changed.items())))
        elif exists(fs, path + ".tmp"):
            with suppress(FileNotFoundError):
                fs.remove(path + ".tmp")  # of a try that the disk refused
