"""A replica whose log is damaged: its files are kept aside, and it begins anew, filled by the others.

What it has promised in elections is kept (`raft-vote`), and so is who has the log (`raft-members`). Its log may hold
less from now on than it once acknowledged, so that it must not vote, nor stand, before it has caught up with a leader:
the note `raft-abstains` says so until then, across restarts. Nothing is repaired where there are no others.

A replica in a directory that was exchanged does not even know what it promised. Its note says more: it is held back,
and gives no vote however much it holds, until its group has counted it out as a voter once (``cluster/duties.py``):
from then on no leader can be elected by what the lost directory promised.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from logstore.errors import from_os_error
from logstore.log.checkpoints import METADATA_FILE
from logstore.seams.fs import FileSystem, exists, read_file, remove_if_there, replace_file
from replication.replicas.member_file import FILE_NAME as MEMBER_FILE
from replication.replicas.vote_store import FILE_NAME as VOTE_FILE

NOTE: Final = "raft-abstains"
_HELD_BACK: Final = b"held back\n"
ASIDE: Final = ".damaged-"
_KEPT: Final = (METADATA_FILE, VOTE_FILE, MEMBER_FILE)


def abstains(fs: FileSystem, directory: str) -> bool:
    """Whether the replica there must not vote yet. StorageError."""
    path = f"{directory}/{NOTE}"
    try:
        return exists(fs, path)
    except OSError as error:
        raise from_os_error(error, "look at", path) from error


def is_held_back(fs: FileSystem, directory: str) -> bool:
    """Whether the replica there does not know what it promised. StorageError."""
    path = f"{directory}/{NOTE}"
    try:
        return read_file(fs, path) == _HELD_BACK
    except FileNotFoundError:
        return False
    except OSError as error:
        raise from_os_error(error, "read", path) from error


def hold_back(fs: FileSystem, directory: str) -> None:
    """What the replica there has promised is not known, durably. StorageError, DiskFullError."""
    _write_note(fs, directory, _HELD_BACK)


def readmit(fs: FileSystem, directory: str) -> None:
    """The replica may vote once it has caught up, durably. StorageError, DiskFullError."""
    _write_note(fs, directory, b"")


def _write_note(fs: FileSystem, directory: str, content: bytes) -> None:
    path = f"{directory}/{NOTE}"
    try:
        replace_file(fs, path, content)
    except OSError as error:
        raise from_os_error(error, "write", path) from error


def caught_up(fs: FileSystem, directory: str) -> None:
    """The replica may vote again, durably. StorageError: it may not, after the next start."""
    path = f"{directory}/{NOTE}"
    try:
        remove_if_there(fs, path)
        fs.sync_dir(directory)
    except OSError as error:
        raise from_os_error(error, "remove", path) from error


class Abstention:
    """Of one replica, as its note has it: ``abstains``: it must not vote yet; ``held_back``: nor once it has caught up.
    Not thread-safe: its replica's lock is held."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self.abstains = abstains(fs, directory)
        self.held_back = is_held_back(fs, directory)

    def readmit(self, *, never_promised: bool) -> None:
        """Its group has counted it out since; or is only about to begin, and it votes at once. Durable when it returns.
        StorageError, DiskFullError."""
        if never_promised:
            self.end()
        else:
            readmit(self._fs, self._directory)
        self.held_back = False

    def end(self) -> None:
        """As ``caught_up``."""
        caught_up(self._fs, self._directory)
        self.abstains = False


def set_aside(fs: FileSystem, directory: str, now_ms: int, forget_state: Callable[[], None]) -> str:
    """Rename the folder, and make it anew with what the replica has promised; where its files are now.
    ``forget_state``: of the partition, which says what its log has to hold; with the note in place, as what is
    recovered then may be less. A crash in between leaves a folder without promises, which the next call makes from the
    one that is aside.
    StorageError, DiskFullError."""
    aside = _aside_of(fs, directory)
    try:
        if aside is None:
            if not exists(fs, f"{directory}/{NOTE}"):
                replace_file(fs, f"{directory}/{NOTE}", b"")
            forget_state()
            aside = f"{directory}{ASIDE}{now_ms}"
            fs.rename(directory, aside)
        if not exists(fs, directory):
            fs.mkdir(directory)
        for name in (NOTE, *_KEPT):
            if exists(fs, f"{aside}/{name}"):
                replace_file(fs, f"{directory}/{name}", read_file(fs, f"{aside}/{name}"))
        fs.sync_dir(directory)
        fs.sync_dir(os.path.dirname(directory))
    except OSError as error:
        raise from_os_error(error, "set aside", directory) from error
    return aside


def _aside_of(fs: FileSystem, directory: str) -> str | None:
    """A folder that was set aside by a call that did not come to its end."""
    root, name = os.path.split(directory)
    try:
        if exists(fs, f"{directory}/{MEMBER_FILE}"):
            return None
        found = sorted(one for one in fs.listdir(root) if one.startswith(name + ASIDE))
    except OSError as error:
        raise from_os_error(error, "list", root) from error
    return f"{root}/{found[-1]}" if found else None


def is_unfinished(fs: FileSystem, directory: str) -> bool:
    """Whether a crash has left the replica without what it promised, which is aside."""
    return _aside_of(fs, directory) is not None
