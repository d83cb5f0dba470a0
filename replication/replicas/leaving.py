"""The files of a replica that was moved to other nodes: they go once the cluster has committed that it is none.

What the replica has promised in elections stays (`raft-vote`), as it may come back. A note says that the rest is on its
way out: no log is opened over what a crash has left of it (``leave`` is called again).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logstore.errors import from_os_error
from logstore.log.checkpoints import METADATA_FILE
from logstore.seams.fs import FileSystem, exists, remove_if_there, replace_file
from replication.replicas.member_file import FILE_NAME as MEMBER_FILE
from replication.replicas.vote_store import FILE_NAME as VOTE_FILE

NOTE: Final = "raft-leaving"


def has_files(fs: FileSystem, directory: str) -> bool:
    """Whether a replica took part there, or is on its way out. StorageError."""
    try:
        return exists(fs, f"{directory}/{MEMBER_FILE}") or exists(fs, f"{directory}/{NOTE}")
    except OSError as error:
        raise from_os_error(error, "look at", directory) from error


def is_unfinished(fs: FileSystem, directory: str) -> bool:
    """StorageError."""
    try:
        return exists(fs, f"{directory}/{NOTE}")
    except OSError as error:
        raise from_os_error(error, "look at", directory) from error


def leave(fs: FileSystem, directory: str, forget_state: Callable[[], None]) -> None:
    """Remove the files; may be repeated. ``forget_state``: of the partition, whose log is closed by it. StorageError,
    DiskFullError."""
    try:
        if not exists(fs, f"{directory}/{NOTE}"):
            replace_file(fs, f"{directory}/{NOTE}", b"")
        forget_state()
        for name in sorted(fs.listdir(directory)):
            if name != NOTE and name != METADATA_FILE and not name.startswith(VOTE_FILE):
                remove_if_there(fs, f"{directory}/{name}")
        fs.sync_dir(directory)
        remove_if_there(fs, f"{directory}/{NOTE}")
        fs.sync_dir(directory)
    except OSError as error:
        raise from_os_error(error, "remove the files of", directory) from error
