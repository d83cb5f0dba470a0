"""``.state/maintenance.note``: what processes that look after the store for a moment tell the next.

Wall time and monotonic time of one moment, and the boot that they belong to: a later process of the same boot can
tell from them whether the wall clock was set since. And when internal topics were last gone through for what has
expired, which is too much for every process to do. Nothing depends on the file: without it a pass is waited for.

    {"crc32c": ..., "format_version": 1, "boot_id": ..., "wall_ms": 1795891291197, "monotonic_ms": 81234,
     "expired_ms": 1795891291197}
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.directory import topic_state
from logstore.errors import from_os_error
from logstore.format.json_document import INT64_MAX, damaged, decode_document, encode_document, text
from logstore.seams.fs import FileSystem, read_file, replace_file

FORMAT_VERSION: Final = 1
FILE_NAME: Final = "maintenance.note"  # the state of a topic ends in .json
_KEYS: Final = frozenset({"boot_id", "wall_ms", "monotonic_ms", "expired_ms"})


class MaintenanceNote(NamedTuple):
    """``wall_ms``: since 1970; ``monotonic_ms``: since the boot, or another start that the boot's processes share;
    ``expired_ms``: when a process last looked for expired offsets and dead transactions, 0 if none did."""

    boot_id: str
    wall_ms: int
    monotonic_ms: int
    expired_ms: int = 0


def note_path(root: str) -> str:
    return f"{root}/{topic_state.DIRECTORY}/{FILE_NAME}"


def load(fs: FileSystem, root: str) -> MaintenanceNote | None:
    """None if there is none. StorageError, DamagedStoreError, UnsupportedStoreVersionError."""
    path = note_path(root)
    try:
        data = read_file(fs, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os_error(error, "read", path) from error
    fields = decode_document(data, FORMAT_VERSION, _KEYS, path)
    times = [fields[name] for name in ("wall_ms", "monotonic_ms", "expired_ms")]
    for value in times:
        if type(value) is not int or abs(value) > INT64_MAX:
            raise damaged(path, f"{value!r} is no time in ms")
    return MaintenanceNote(text(fields["boot_id"], "boot_id", path), *times)


def save(fs: FileSystem, root: str, note: MaintenanceNote) -> None:
    """StorageError, DiskFullError: the old one stands."""
    path = note_path(root)
    data = encode_document(FORMAT_VERSION, note._asdict())
    try:
        try:
            replace_file(fs, path, data)
        except FileNotFoundError:
            topic_state.make_directory(fs, root)
            replace_file(fs, path, data)
    except OSError as error:
        raise from_os_error(error, "write", path) from error
