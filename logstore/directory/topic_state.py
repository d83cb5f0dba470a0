"""``.state/<topic>.json``: what recovery must know of a topic. Written only by the topic's owner, durably.

``recovery_point``: below it every byte of the partition's log was synced, so nothing there is ever cut.
``clean``: the topic was closed in order after its last append; then ``log_end_offset`` is where the log ends,
and nothing needs to be scanned. ``boot_id``: the boot that wrote the file: the same boot means that the page
cache survived whatever happened. Partitions are rows of ``columns`` numbers:

    {"crc32c": ..., "format_version": 2, "topic_id": ..., "boot_id": ..., "clean": true,
     "columns": ["recovery_point", "log_start_offset", "high_watermark", "log_end_offset",
                 "no_producers_at", "cleaner_point"],
     "partitions": {"0": [12, 0, 12, 12, 12, 0], ...}}

A partition whose last stop was another than its topic's has it for itself, in version 3: `"apart": {"0": ["", false]}`
says that partition 0 is not clean and that no boot's page cache speaks for it (its sync had failed), whatever is true
of the others. The rows share a file so that a topic of 10,000 partitions is taken and opened with one read and one
durable write; a file for each would cost thousands of syncs.

A partition whose high watermark is a commit index, since other nodes have copies of it, is listed in version 4:
`"replicas": [0]`. What its log holds beyond the high watermark of its row is not committed.

Version 2 has no rows apart, and is what is written where there are none. Version 1 had the first four columns: no
producer had state then, and nothing had been cleaned. Both are read as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c

from logstore.errors import from_os_error
from logstore.format.json_document import (
    INT64_MAX,
    damaged,
    decode_document,
    encode_document,
    table,
    text,
    truth,
)
from logstore.invariants import invariant
from logstore.seams.fs import FileSystem, read_file, replace_file

FORMAT_VERSION: Final = 4
_APART_VERSION: Final = 3
_PLAIN_VERSION: Final = 2
DIRECTORY: Final = ".state"
MAX_PARTITION: Final = 2**31 - 1
_COLUMNS_1: Final = ["recovery_point", "log_start_offset", "high_watermark", "log_end_offset"]
_COLUMNS: Final = [*_COLUMNS_1, "no_producers_at", "cleaner_point"]
_PARTITION_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_PLAIN_KEYS: Final = frozenset({"topic_id", "boot_id", "clean", "columns", "partitions"})
_APART_KEYS: Final = _PLAIN_KEYS | {"apart"}
_KEYS: Final = _APART_KEYS | {"replicas"}
_OLDER: Final = {1: _PLAIN_KEYS, _PLAIN_VERSION: _PLAIN_KEYS, _APART_VERSION: _APART_KEYS}
_LONGEST_PLAIN_NAME: Final = 246  # with ".json.tmp" behind it a file name of 255 bytes, the most there is


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Offsets of one partition. ``log_end_offset`` is meaningful when the topic is clean.

    ``no_producers_at``: an offset at which no producer had state (whatever has to be known of producers comes
    from batches behind it, or from a newer snapshot); ``cleaner_point``: compaction has been through all
    before it. ``boot_id``, ``clean``: how this partition was stopped; None: as its topic was. ``replica``: what is
    committed is said by ``high_watermark``, and not by how far the log is durable here.
    """

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    no_producers_at: int = 0
    cleaner_point: int = 0
    boot_id: str | None = None
    clean: bool | None = None
    replica: bool = False


@dataclass(frozen=True, slots=True)
class TopicState:
    """``topic_id`` tells a topic from an earlier one of the same name, whose state must not be believed. ``boot_id``,
    ``clean``: of the partitions that do not say it for themselves."""

    topic_id: str
    boot_id: str
    clean: bool
    partitions: Mapping[int, PartitionState]

    def is_clean(self, partition: int) -> bool:
        """Whether the partition was closed in order after its last append."""
        row = self.partitions.get(partition)
        return self.clean if row is None or row.clean is None else row.clean

    def boot_of(self, partition: int) -> str:
        """The boot whose page cache speaks for the partition; "": none does."""
        row = self.partitions.get(partition)
        return self.boot_id if row is None or row.boot_id is None else row.boot_id


def state_path(root: str, topic: str) -> str:
    """Where the topic's state is. A name too long for a file with suffixes is cut and gets its checksum,
    after a "~" that no topic name can hold."""
    name = topic if len(topic) <= _LONGEST_PLAIN_NAME else f"{topic[:200]}~{crc32c(topic.encode()):08x}"
    return os.path.join(root, DIRECTORY, name + ".json")


def encode(state: TopicState) -> bytes:
    rows = {
        str(number): [
            row.recovery_point,
            row.log_start_offset,
            row.high_watermark,
            row.log_end_offset,
            row.no_producers_at,
            row.cleaner_point,
        ]
        for number, row in sorted(state.partitions.items())
    }
    invariant(
        all(min(row) >= 0 for row in rows.values()) and all(number >= 0 for number in state.partitions),
        "offsets and partition numbers in a topic's state are not negative",
    )
    told = sorted(
        n for n, row in state.partitions.items() if row.boot_id is not None or row.clean is not None
    )
    stops = {number: (state.boot_of(number), state.is_clean(number)) for number in told}
    apart = {str(n): [*stop] for n, stop in stops.items() if stop != (state.boot_id, state.clean)}
    fields: dict[str, object] = {
        "topic_id": state.topic_id,
        "boot_id": state.boot_id,
        "clean": state.clean,
        "columns": _COLUMNS,
        "partitions": rows,
    }
    replicas = sorted(n for n, row in state.partitions.items() if row.replica)
    if replicas:
        return encode_document(FORMAT_VERSION, fields | {"apart": apart, "replicas": replicas})
    if apart:
        return encode_document(_APART_VERSION, fields | {"apart": apart})
    return encode_document(_PLAIN_VERSION, fields)


def decode(data: bytes, path: str) -> TopicState:
    """DamagedStoreError with ``path`` if malformed; UnsupportedStoreVersionError if newer than this code."""
    fields = decode_document(data, FORMAT_VERSION, _KEYS, path, older=_OLDER)
    columns = fields["columns"]
    if columns != _COLUMNS and columns != _COLUMNS_1:
        raise damaged(path, f"its columns are {fields['columns']!r}")
    partitions: dict[int, PartitionState] = {}
    for key, row in table(fields["partitions"], "partitions", path).items():
        if not _PARTITION_NUMBER.fullmatch(key) or int(key) > MAX_PARTITION:
            raise damaged(path, f"partition {key!r} is not a number")
        # One check a row, not one a number: a topic may have a hundred thousand rows, read at every open.
        if type(row) is not list or len(row) != len(columns) or set(map(type, row)) != {int}:
            raise damaged(path, f"partition {key} has {row!r}, not {len(columns)} whole numbers")
        if min(row) < 0 or max(row) > INT64_MAX:
            raise damaged(path, f"partition {key} has {row!r}, which are no offsets")
        # In version 1 no batch could name a producer, so none has state at the recovery point.
        partitions[int(key)] = (
            PartitionState(*row)
            if len(row) == len(_COLUMNS)
            else PartitionState(row[0], row[1], row[2], row[3], row[0])
        )
    for key, stop in table(fields.get("apart", {}), "apart", path).items():
        number = int(key) if _PARTITION_NUMBER.fullmatch(key) else -1
        if number not in partitions or type(stop) is not list or list(map(type, stop)) != [str, bool]:
            raise damaged(path, f"partition {key} has {stop!r} apart, not a boot and whether it is clean")
        partitions[number] = replace(partitions[number], boot_id=stop[0], clean=stop[1])
    replicas = fields.get("replicas", [])
    if type(replicas) is not list or not all(type(n) is int and n in partitions for n in replicas):
        raise damaged(path, f"its replicas are {replicas!r}, not numbers of its partitions")
    for number in replicas:
        partitions[number] = replace(partitions[number], replica=True)
    return TopicState(
        text(fields["topic_id"], "topic_id", path),
        text(fields["boot_id"], "boot_id", path),
        truth(fields["clean"], "clean", path),
        partitions,
    )


def load(fs: FileSystem, root: str, topic: str) -> TopicState | None:
    """The topic's state; None if it was never saved. DamagedStoreError, UnsupportedStoreVersionError."""
    path = state_path(root, topic)
    try:
        data = read_file(fs, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os_error(error, "read", path) from error
    return decode(data, path)


def save(fs: FileSystem, root: str, topic: str, state: TopicState) -> None:
    """Put the state in place, durable when it returns. StorageError, DiskFullError: the old one stands."""
    path = state_path(root, topic)
    data = encode(state)
    try:
        try:
            replace_file(fs, path, data)
        except FileNotFoundError:
            make_directory(fs, root)
            replace_file(fs, path, data)
    except OSError as error:
        raise from_os_error(error, "write", path) from error


def remove(fs: FileSystem, root: str, topic: str) -> None:
    """Forget the state of a deleted topic; gone durably when it returns. Nothing to remove is fine."""
    path = state_path(root, topic)
    try:
        fs.remove(path)
        fs.sync_dir(os.path.dirname(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise from_os_error(error, "remove", path) from error


def make_directory(fs: FileSystem, root: str) -> None:
    """Make ``.state`` in ``root``, durably; it may be there already (another process was first)."""
    try:
        fs.mkdir(os.path.join(root, DIRECTORY))
    except FileExistsError:
        pass  # still synced below: whoever made it may have died before it did
    fs.sync_dir(root)
