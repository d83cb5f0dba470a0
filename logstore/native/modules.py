"""The extension modules by name, and the fingerprint that ties a built one to its source.

Imports nothing but Python's own library: the build reads it where the package is not installed yet.
"""

from __future__ import annotations

import zlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

MODULES = (
    "appending",
    "arrow_rows",
    "batches",
    "checking",
    "columns",
    "encoding",
    "file_pins",
    "flights",
    "hashing",
    "keytable",
    "live",
    "local_append",
    "pending",
    "records",
    "row_buffer",
    "rows",
    "segment_tail",
    "sending",
    "spans",
    "tail_cache",
)
"""Each is built from ``<name>.pyx``. All of them are used, or none."""


def fingerprint(name: str, folder: Path = FOLDER) -> str | None:
    """Of the source of one extension module and of the ``.pxd`` files that all share, in hexadecimal.

    None where the source is not there to compare with.
    """
    source = folder / f"{name}.pyx"
    try:
        found = zlib.crc32(source.read_bytes())
        for shared in sorted(folder.glob("*.pxd")):
            found = zlib.crc32(shared.read_bytes(), found)
    except OSError:
        return None
    return f"{found:08x}"
