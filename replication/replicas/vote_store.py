"""``VoteStore``: the term and the vote of one replica on disk, in two copies of one file.

    magic 4 = "LSV1" | sequence u64 | term i64 | voted_for i32 (-1: nobody) | CRC-32C u32 of what is before it

at byte 0 and at byte 4096, big-endian. A state is written to one copy and synced, then to the other and synced, and
only then it is spoken of. So whichever copy a crash tears, or a disk damages later, the other one holds a state that is
as new as any that was spoken of: a damaged replica never votes as if it had not voted.
"""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from logstore.errors import LogStoreError, PartitionPoisonedError, from_os_error
from logstore.invariants import invariant
from logstore.seams.fs import File, FileSystem, write_all
from replication.errors import DamagedVoteError
from replication.raft.types import VoteState

FILE_NAME: Final = "raft-vote"
COPY_BYTES: Final = 4096
"""Between the copies: no sector of a disk holds both."""
COPIES: Final = (0, COPY_BYTES)

_FIELDS: Final = struct.Struct(">4sQqi")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = b"LSV1"
_COPY: Final = _FIELDS.size + _CRC.size


def encode(sequence: int, state: VoteState) -> bytes:
    fields = _FIELDS.pack(_MAGIC, sequence, *state)
    return fields + _CRC.pack(crc32c(fields))


def decode(data: bytes) -> tuple[int, VoteState] | None:
    """Sequence and state; None: these bytes are no copy."""
    if len(data) < _COPY:
        return None
    fields = data[: _FIELDS.size]
    if _CRC.unpack_from(data, _FIELDS.size)[0] != crc32c(fields):
        return None
    magic, sequence, term, voted_for = _FIELDS.unpack(fields)
    return (sequence, VoteState(term, voted_for)) if magic == _MAGIC and term >= 0 else None


class VoteStore:
    """Of one thread. After a write or a sync that failed nothing more is stored: reopen it."""

    def __init__(self, file: File, sequence: int, state: VoteState) -> None:
        self.file = file
        self._sequence = sequence
        self.state = self._storing = state
        self._failure: LogStoreError | None = None

    @classmethod
    def create(cls, fs: FileSystem, directory: str) -> VoteStore:
        """For a replica that is made: in term 0, without a vote. Durable. FileExistsError, StorageError, DiskFullError:
        what is there then is removed with the replica's folder."""
        path = f"{directory}/{FILE_NAME}"
        try:
            file = fs.open(path, "create")
            try:
                store = cls(file, 0, VoteState())
                store._write()
                fs.sync_dir(directory)
            except BaseException:
                file.close()
                raise
        except FileExistsError:
            raise
        except OSError as error:
            raise from_os_error(error, "make", path) from error
        return store

    @classmethod
    def open(cls, fs: FileSystem, directory: str) -> VoteStore:
        """DamagedVoteError: there is no copy left, so that what this replica has promised is not known."""
        path = f"{directory}/{FILE_NAME}"
        try:
            file = fs.open(path, "rw")
        except FileNotFoundError as error:
            raise DamagedVoteError(f"{path}: the file is gone") from error
        except OSError as error:
            raise from_os_error(error, "open", path) from error
        try:
            found = [copy for at in COPIES if (copy := decode(file.pread(_COPY, at))) is not None]
            if not found:
                raise DamagedVoteError(f"{path}: neither copy is whole")
            store = cls(file, *max(found))
            if len(found) < 2 or found[0] != found[1]:
                store._write()  # both copies hold the newest from now on
        except OSError as error:
            file.close()
            raise from_os_error(error, "read", path) from error
        except BaseException:
            file.close()
            raise
        return store

    def store(self, state: VoteState) -> None:
        """Durable when it returns. StorageError, DiskFullError: it is stored or not, and nothing is any more."""
        if self._failure is None and state == self.state:
            return
        self.begin(state)
        try:
            self._write()
        except OSError as error:
            raise self.failed(error) from error
        self.end()

    def _write(self) -> None:
        for copy in COPIES:
            self.put(copy)
            self.file.sync()

    # Its parts, for the votes of many replicas at once (``vote_round.py``).

    def begin(self, state: VoteState) -> None:
        """``put`` and a sync of ``file`` are to follow for each of ``COPIES``, then ``end``, or ``failed``.
        PartitionPoisonedError."""
        if self._failure is not None:
            raise PartitionPoisonedError(
                f"{self.file.path} accepts nothing more: {self._failure.message}",
                hint="find out why the disk failed, then start the replica anew",
            )
        invariant(state >= self.state, f"the vote {state} would take {self.state} back")
        self._failure = PartitionPoisonedError(f"{self.file.path}: a write was cut short")
        self._storing = state
        self._sequence += 1

    def put(self, copy: int) -> None:
        write_all(self.file, [encode(self._sequence, self._storing)], copy)

    def end(self) -> None:
        self.state, self._failure = self._storing, None

    def failed(self, error: OSError) -> LogStoreError:
        """What ``store`` raises."""
        self._failure = from_os_error(error, "write", self.file.path)
        return self._failure

    def close(self) -> None:
        self.file.close()
