"""``MemberFile``: who has a partition's log, from which position on, beside the log.

The truth are the entries of the log; this file spares a replica that starts the reading of all its batches, and keeps
what a snapshot stood for. It is written before the entry is, so that it may name one that the log lacks: that one is
passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from logstore.errors import from_os_error
from logstore.format.json_document import damaged, decode_document, encode_document, items, whole
from logstore.seams.fs import FileSystem, read_file, replace_file
from replication.errors import InvalidMembershipError
from replication.raft.types import Membership

FILE_NAME: Final = "raft-members"
_VERSION: Final = 1
_MOST_KEPT: Final = 100
_KEYS: Final = frozenset({"memberships"})


class MemberRow(NamedTuple):
    """``position``: behind the entry that says so, and the ``term`` of that entry; (0, -1) for the first."""

    position: int
    term: int
    membership: Membership


class MemberFile:
    """Of one thread at a time. Every change is durable when the call returns. StorageError, DiskFullError."""

    def __init__(self, fs: FileSystem, directory: str, rows: Iterable[MemberRow]) -> None:
        self._fs = fs
        self._path = f"{directory}/{FILE_NAME}"
        self.rows: tuple[MemberRow, ...] = tuple(rows)

    @classmethod
    def create(cls, fs: FileSystem, directory: str, membership: Membership) -> MemberFile:
        made = cls(fs, directory, ())
        made._save((MemberRow(0, -1, membership.checked()),))
        return made

    @classmethod
    def open(cls, fs: FileSystem, directory: str) -> MemberFile | None:
        """None: there is no such file. DamagedStoreError, UnsupportedStoreVersionError."""
        path = f"{directory}/{FILE_NAME}"
        try:
            data = read_file(fs, path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os_error(error, "read", path) from error
        return cls(fs, directory, decode(data, path))

    def note(self, row: MemberRow) -> None:
        """An entry that comes into the log next."""
        kept = [one for one in self.rows if one.position < row.position]
        self._save((*kept[-_MOST_KEPT:], row))

    def truncate(self, position: int) -> None:
        kept = tuple(row for row in self.rows if row.position <= position)
        if kept != self.rows:
            self._save(kept)

    def reset(self, position: int, membership: Membership) -> None:
        """A snapshot stands for all before ``position``."""
        self._save((MemberRow(position, -1, membership),))

    def _save(self, rows: tuple[MemberRow, ...]) -> None:
        try:
            replace_file(self._fs, self._path, encode(rows))
        except OSError as error:
            raise from_os_error(error, "write", self._path) from error
        self.rows = rows


def encode(rows: Iterable[MemberRow]) -> bytes:
    table = [[row.position, row.term, *map(sorted, row.membership)] for row in rows]
    return encode_document(_VERSION, {"memberships": table})


def decode(data: bytes, path: str) -> list[MemberRow]:
    """DamagedStoreError with ``path``, UnsupportedStoreVersionError."""
    fields = decode_document(data, _VERSION, _KEYS, path)
    rows = []
    for row in items(fields["memberships"], "memberships", path):
        position, term, voters, learners = items(row, "a membership", path, 4)
        try:
            membership = Membership(_nodes(voters, path), _nodes(learners, path)).checked()
        except InvalidMembershipError as error:
            raise damaged(path, error.message) from error
        rows.append(
            MemberRow(whole(position, "a position", path), whole(term, "a term", path, low=-1), membership)
        )
    if not rows or [row.position for row in rows] != sorted({row.position for row in rows}):
        raise damaged(path, "its positions do not grow, or there is none")
    return rows


def _nodes(value: object, path: str) -> frozenset[int]:
    return frozenset(whole(node, "a node", path) for node in items(value, "nodes", path))
