"""A second opinion on the files of a store: indexes worked out from the log's bytes by other code."""

from __future__ import annotations

import struct

from logstore.format.batch import iter_headers
from logstore.seams.fs import FileSystem, read_file
from tests.sim.model import INDEXES, Violation


def reference_indexes(log: bytes, base_offset: int, interval_bytes: int) -> tuple[bytes, bytes]:
    """The offset and the time index that belong to a segment's bytes, after format.md's rules."""
    offsets, times = bytearray(), bytearray()
    since_entry, newest_ms, newest_offset, entered_ms = 0, -1, -1, -1
    for position, header in iter_headers(log):
        if header.max_timestamp > newest_ms:
            newest_ms, newest_offset = header.max_timestamp, header.last_offset
        if since_entry > interval_bytes:
            offsets += struct.pack(">ii", header.last_offset - base_offset, position)
            if newest_ms > entered_ms:
                times += struct.pack(">qi", newest_ms, newest_offset - base_offset)
                entered_ms = newest_ms
            since_entry = 0
        since_entry += header.size
    return bytes(offsets), bytes(times)


def check_indexes(fs: FileSystem, folder: str, interval_bytes: int) -> int:
    """Compare every index of a partition that was closed in order; returns how many segments it has."""
    names = set(fs.listdir(folder))
    logs = sorted(name for name in names if name.endswith(".log"))
    for name in logs:
        stem = name.removesuffix(".log")
        wanted = reference_indexes(read_file(fs, f"{folder}/{name}"), int(stem), interval_bytes)
        for suffix, content in zip((".index", ".timeindex"), wanted, strict=True):
            if stem + suffix not in names:
                raise Violation(INDEXES, f"{folder}/{stem}{suffix} is missing after a close")
            found = read_file(fs, f"{folder}/{stem}{suffix}")
            if found != content:
                raise Violation(
                    INDEXES, f"{folder}/{stem}{suffix} is {found.hex()}, the log says {content.hex()}"
                )
    strangers = {name.split(".")[0] for name in names if name.endswith((".index", ".timeindex"))}
    if strangers - {name.removesuffix(".log") for name in logs}:
        raise Violation(INDEXES, f"{folder} has indexes of segments that are not there: {sorted(names)}")
    return len(logs)
