"""One storing of many votes: the first copies of all, then the second ones, each time one sync of all of their files.

What a sync fails is stored of none, as far as is known, and each of their files takes nothing more until it is opened
again. A write that fails is of one alone. The files' locks are held meanwhile; whoever holds one waits for no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from logstore.errors import LogStoreError
from logstore.seams.fs import FileSystem
from replication.raft.types import VoteState
from replication.replicas.vote_store import COPIES
from replication.replicas.vote_writer import VoteWriter

Outcome = VoteState | LogStoreError | None
"""Of one vote: it is durable; why it is not; None: none was due."""


def store_together(fs: FileSystem, writers: Sequence[VoteWriter]) -> list[Outcome]:
    """What each of them has due, all of them on ``fs``, in the order of ``writers``. None comes twice."""
    outcomes: list[Outcome] = [None] * len(writers)
    with ExitStack() as locks:
        under_way: list[int] = []
        for number, writer in enumerate(writers):
            locks.enter_context(writer.writing)
            try:
                if writer.begin():
                    under_way.append(number)
            except LogStoreError as error:
                outcomes[number] = error
        for copy in COPIES:
            under_way = _store_copy(fs, writers, under_way, copy, outcomes)
        for number in under_way:
            outcomes[number] = writers[number].end()
    return outcomes


def _store_copy(
    fs: FileSystem,
    writers: Sequence[VoteWriter],
    under_way: Sequence[int],
    copy: int,
    outcomes: list[Outcome],
) -> list[int]:
    """Which of them have it on the disk."""
    written: list[int] = []
    for number in under_way:
        try:
            writers[number].put(copy)
        except OSError as error:
            outcomes[number] = writers[number].failed(error)
        else:
            written.append(number)
    try:
        fs.sync_files([writers[number].file for number in written])
    except OSError as error:
        for number in written:
            outcomes[number] = writers[number].failed(error)
        return []
    return written
