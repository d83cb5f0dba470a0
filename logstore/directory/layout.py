"""What a directory is, seen from its names alone: nothing, a store, a Kafka broker's, or something else."""

from __future__ import annotations

import json
import os
import re
from enum import Enum
from typing import Final

from logstore.errors import (
    DamagedStoreError,
    ForeignDirectoryError,
    LogStoreError,
    StoreNotFoundError,
    from_os_error,
)
from logstore.seams.fs import FileSystem, read_file

CATALOGUE_FILE: Final = "topics.json"
NODE_FILE: Final = "cluster.json"
"""In the directory of a cluster's node: its logs are replicas, which only the cluster may write."""
PROBE_FILE: Final = ".disk-probe"
"""Written and removed by a node that looks whether its disk takes writes again; a node that is killed leaves it."""
_KAFKA_MARK: Final = "meta.properties"
# What a store's creation leaves behind when it is cut short, and what a new file system holds: still empty.
_CREATION_LEAVES: Final = re.compile(r"\.locks.*|\.live(\.tmp)?|topics\.json\.tmp|\.state|lost\+found")


class DirectoryKind(Enum):
    MISSING = "missing"
    EMPTY = "empty"  # or only what a creation that was cut short left behind
    STORE = "store"
    HEADLESS = "headless"  # a store whose topics.json is gone
    KAFKA = "kafka"
    FOREIGN = "foreign"
    FILE = "file"


def classify_directory(fs: FileSystem, root: str) -> DirectoryKind:
    """What ``root`` is. Raises the named error when the directory cannot be read."""
    try:
        names = fs.listdir(root)
    except FileNotFoundError:
        return DirectoryKind.MISSING
    except NotADirectoryError:
        return DirectoryKind.FILE
    except OSError as error:
        raise from_os_error(error, "list", root) from error
    if CATALOGUE_FILE in names:
        return DirectoryKind.STORE
    if _KAFKA_MARK in names:
        return DirectoryKind.KAFKA
    if all(_CREATION_LEAVES.fullmatch(name) for name in names):
        return DirectoryKind.EMPTY
    return DirectoryKind.HEADLESS if ".state" in names else DirectoryKind.FOREIGN


def missing_store(kind: DirectoryKind, root: str) -> LogStoreError:
    """The error for a ``root`` that holds no catalogue, by its kind."""
    if kind is DirectoryKind.KAFKA:
        return ForeignDirectoryError(
            f"{root} is a Kafka broker's directory (it holds {_KAFKA_MARK})",
            hint="open it with mode='r': it is only read; to write, choose an empty or new directory",
        )
    if kind is DirectoryKind.HEADLESS:
        return DamagedStoreError(
            f"{root} is a log store whose {CATALOGUE_FILE} is gone",
            hint=f"restore {CATALOGUE_FILE} from a backup; `logstore log salvage` copies what is readable",
            path=os.path.join(root, CATALOGUE_FILE),
        )
    if kind is DirectoryKind.FILE:
        return ForeignDirectoryError(f"{root} is a file, a log store is a directory")
    if kind is DirectoryKind.FOREIGN:
        return ForeignDirectoryError(f"{root} is not empty and holds no {CATALOGUE_FILE}: it is no log store")
    found = "does not exist" if kind is DirectoryKind.MISSING else "is empty"
    return StoreNotFoundError(
        f"there is no log store at {root}: the directory {found}",
        hint="check the path; `logstore topic create`, or open() with mode='rw', makes a new one",
    )


def is_node_directory(fs: FileSystem, root: str) -> bool:
    """Whether it is of a cluster's node: not where a broker was started with ``peers`` and has found none of them yet.
    A file that cannot be made out counts as a node's. StorageError."""
    path = f"{root}/{NODE_FILE}"
    try:
        fields = json.loads(read_file(fs, path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise from_os_error(error, "read", path) from error
    except ValueError:
        return True
    return not isinstance(fields, dict) or bool(fields.get("cluster_id", True) or fields.get("begun"))


def refuse_node_directory(fs: FileSystem, root: str) -> None:
    """For those who write without the cluster: ForeignDirectoryError, StorageError."""
    if is_node_directory(fs, root):
        raise ForeignDirectoryError(
            f"{root} is a directory of a cluster's node (it holds {NODE_FILE}): its records are the cluster's",
            hint="ask its brokers: logstore.connect, --bootstrap-server; or start the broker with its `peers`; "
            "to read, open it with mode='r'",
        )


def make_root(fs: FileSystem, root: str) -> None:
    """Make the directory ``root`` and the parents it lacks, each durably. There already is fine."""
    lacking: list[str] = []
    path = root
    try:
        while _is_missing(fs, path):
            lacking.append(path)
            path = _parent(path)
        _sync_name(fs, path)
        for made in reversed(lacking):
            try:
                fs.mkdir(made)
            except FileExistsError:
                pass  # another process was first; the sync below is still ours to do
            fs.sync_dir(_parent(made))
    except OSError as error:
        raise from_os_error(error, "create the directory", root) from error


def _sync_name(fs: FileSystem, path: str) -> None:
    """A directory that is there may have been made by a process that was killed before it synced the name."""
    try:
        fs.sync_dir(_parent(path))
    except PermissionError:
        pass  # somebody else's directory, which no store of this user made


def _parent(path: str) -> str:
    return os.path.dirname(path.rstrip(os.sep)) or (os.sep if path.startswith(os.sep) else os.curdir)


def _is_missing(fs: FileSystem, path: str) -> bool:
    try:
        fs.stat(path)
    except FileNotFoundError:
        return path not in (os.sep, os.curdir)
    return False
