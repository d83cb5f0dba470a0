"""The extension modules by name, and the fingerprint that ties a built one to its source.

Imports nothing but Python's own library: the build reads it where the package is not installed yet.
"""

from __future__ import annotations

import zlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

MODULES = (
    "client.arrow_encoding",
    "client.flights",
    "client.hashing",
    "client.pending",
    "client.sending",
    "format.arrow_buffers",
    "format.arrow_rows",
    "format.batches",
    "format.columns",
    "format.decoding",
    "format.encoding",
    "format.record",
    "format.record_checks",
    "format.row_buffer",
    "format.rows",
    "format.spans",
    "log.appending",
    "log.checking",
    "log.file_pins",
    "log.keytable",
    "log.segment_tail",
    "log.tail_cache",
    "partition.live",
    "partition.local_append",
    "partition.lock_check",
    "partition.lone_commits",
    "partition.together",
    "partition.topic_users",
)
"""Each by its folder and its noun: ``format.rows`` is built from ``format/rows.pyx``. All of them are used, or none."""


def file_of(name: str, ending: str, folder: Path = FOLDER) -> Path:
    """The file of an extension module in the package's folder: its source, its declarations or what was built."""
    return folder / f"{name.replace('.', '/')}{ending}"


def fingerprint(name: str, folder: Path = FOLDER) -> str | None:
    """Of the source of one extension module and of the ``.pxd`` files that all share, in hexadecimal.

    None where the source is not there to compare with.
    """
    try:
        found = zlib.crc32(file_of(name, ".pyx", folder).read_bytes())
        for shared in sorted(folder.glob("*/*.pxd")):
            found = zlib.crc32(shared.read_bytes(), found)
    except OSError:
        return None
    return f"{found:08x}"
