"""Where records of some keys still are: a partition's folder read from end to end, every batch decoded.

Made for the proof of an erasure, so it trusts nothing of the engine: it walks files with ``inspect``, and what
it cannot look into counts as a find.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from logstore.errors import LogStoreError, StorageError, from_os_error
from logstore.format.batch import CODEC_MASK, decode_batches, read_header
from logstore.log.inspection.inspect import BadSpan, ScannedBatch, list_folder, scan_segment
from logstore.seams.fs import FileSystem, exists, read_file

_SEGMENT = re.compile(r"(\d{20})\.log")
_CUT = re.compile(r"(\d{20})\.log\.cut-\d+")
_LEAVING = re.compile(r"\d{20}\..*\.(deleted|cleaned|swap|tmp)")


@dataclass(slots=True)
class KeySearch:
    """What a search found. ``segments``: base offset -> records of the keys there; ``cut_files``: bytes that a
    recovery set aside and that hold a key, or cannot be proved not to; ``leaving_files``: retired and
    temporary ones, which are not looked into; ``unreadable``: places in segments that are no batch."""

    scanned_bytes: int = 0
    segments: dict[int, int] = field(default_factory=dict)
    cut_files: list[str] = field(default_factory=list)
    leaving_files: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(self.segments.values())

    @property
    def remains(self) -> str:
        """The first place that speaks against "nothing is left"; "" if there is none."""
        for base, count in self.segments.items():
            return f"{base:020d}.log ({count} records)"
        return next(iter([*self.cut_files, *self.leaving_files, *self.unreadable]), "")


def search_keys(fs: FileSystem, folder: str, keys: Collection[bytes], end_offset: int) -> KeySearch:
    """Search all files in ``folder`` for records below ``end_offset`` with one of ``keys``. StorageError and
    its kin if a file cannot be read; a file that vanishes meanwhile is none."""
    found, wanted = KeySearch(), frozenset(keys)
    for name in sorted(list_folder(fs, folder)):
        path = f"{folder}/{name}"
        try:
            if match := _SEGMENT.fullmatch(name):
                _search_segment(fs, path, int(match[1]), wanted, end_offset, found)
            elif (match := _CUT.fullmatch(name)) and _cut_file_holds(fs, path, int(match[1]), wanted, found):
                found.cut_files.append(name)
        except OSError as error:
            raise from_os_error(error, "read", path) from error
        except StorageError:
            if _is_there(fs, path):
                raise
    # Last of all, so that what was retired meanwhile is seen under its new name.
    found.leaving_files = [name for name in sorted(list_folder(fs, folder)) if _LEAVING.fullmatch(name)]
    return found


def _is_there(fs: FileSystem, path: str) -> bool:
    try:
        return exists(fs, path)
    except OSError as error:
        raise from_os_error(error, "look at", path) from error


def _search_segment(
    fs: FileSystem, path: str, base: int, keys: frozenset[bytes], end_offset: int, found: KeySearch
) -> None:
    if base >= end_offset:
        return
    for span in scan_segment(fs, path, base):
        if isinstance(span, BadSpan):
            # The torn end that a writer at work leaves lies past all that was there when the search began.
            if span.kind not in ("torn", "zeros"):
                found.unreadable.append(f"{path} at byte {span.position}")
            continue
        if span.header.base_offset >= end_offset:
            return
        found.scanned_bytes += span.header.size
        count = _count(span, keys)
        if count is None:
            found.unreadable.append(f"{path} at byte {span.position}")
        elif count:
            found.segments[base] = found.segments.get(base, 0) + count


def _count(span: ScannedBatch, keys: frozenset[bytes]) -> int | None:
    """Records of the keys in a batch; None if it cannot be decoded."""
    try:
        records = decode_batches(span.data, "", 0, check=False)
    except LogStoreError:
        return None
    return sum(record.key in keys for record in records)


def _cut_file_holds(fs: FileSystem, path: str, base: int, keys: frozenset[bytes], found: KeySearch) -> bool:
    """Whether a cut-off end holds a key: as a record, or as plain bytes anywhere. A damaged batch that was
    compressed hides what is in it: that counts."""
    data = read_file(fs, path)
    found.scanned_bytes += len(data)
    if any(key in data for key in keys if key):
        return True
    for span in scan_segment(fs, path, base):
        if isinstance(span, ScannedBatch):
            if _count(span, keys) != 0:
                return True
        elif span.kind != "zeros" and not _plain(data[span.position : span.position + span.length]):
            return True
    return False


def _plain(data: bytes) -> bool:
    """Whether what is no whole batch at least starts like an uncompressed one: then its bytes tell all."""
    try:
        return not read_header(data).attributes & CODEC_MASK
    except LogStoreError:
        return False
