"""``store_together``: the votes of many replicas, each in two copies, by two syncs for all."""

from __future__ import annotations

from functools import partial
from unittest import mock

import pytest

from logstore.errors import LogStoreError, PartitionPoisonedError, StorageError
from logstore.seams.faults import FaultKind
from logstore.seams.memory_crash import KeepNothing
from logstore.seams.memory_fs import MemoryFileSystem
from replication.raft.types import VoteState
from replication.replicas.vote_round import store_together
from replication.replicas.vote_store import COPIES, VoteStore
from replication.replicas.vote_writer import VoteWriter

COUNT = 4
VOTE = VoteState(3, 1)


def made(fs: MemoryFileSystem) -> list[VoteWriter]:
    writers = []
    for number in range(COUNT):
        folder = f"/r{number}"
        fs.mkdir(folder)
        fs.sync_dir("/")
        writers.append(VoteWriter(VoteStore.create(fs, folder), partial(VoteStore.open, fs, folder)))
    return writers


def wanted(fs: MemoryFileSystem) -> list[VoteWriter]:
    writers = made(fs)
    for writer in writers:
        writer.want(VOTE)
    return writers


def stored(fs: MemoryFileSystem) -> list[VoteState]:
    return [VoteStore.open(fs, f"/r{number}").state for number in range(COUNT)]


def test_all_are_durable_by_two_syncs() -> None:
    fs = MemoryFileSystem()
    writers = wanted(fs)
    with mock.patch.object(fs, "sync_files", wraps=fs.sync_files) as call:
        assert store_together(fs, writers) == [VOTE] * COUNT
    assert call.call_count == len(COPIES)
    assert [writer.state for writer in writers] == [VOTE] * COUNT
    assert stored(fs.crash(KeepNothing())) == [VOTE] * COUNT
    assert not any(writer.is_due for writer in writers)
    assert store_together(fs, writers) == [None] * COUNT
    assert store_together(fs, []) == []


def test_a_vote_that_is_not_due_is_passed_over() -> None:
    fs = MemoryFileSystem()
    writers = wanted(fs)
    assert writers[0].write() == VOTE
    writers[1].close()
    writers[2].want(VoteState())  # what is stored already
    assert store_together(fs, writers) == [None, None, VoteState(), VOTE]
    assert not writers[2].is_due


@pytest.mark.parametrize("sync", [1, COUNT, COUNT + 1, 2 * COUNT])
def test_a_sync_that_fails_fails_all(sync: int) -> None:
    fs = MemoryFileSystem()
    writers = wanted(fs)
    fs.faults.on("sync", FaultKind.EIO, skip=sync - 1, path_ends="raft-vote")
    assert [type(outcome) for outcome in store_together(fs, writers)] == [StorageError] * COUNT
    assert [writer.state for writer in writers] == [VoteState()] * COUNT
    again = store_together(fs, writers)
    assert [type(outcome) for outcome in again] == [PartitionPoisonedError] * COUNT
    for writer in writers:
        writer.begin_anew()
        writer.want(VoteState(4))
    assert store_together(fs, writers) == [VoteState(4)] * COUNT


@pytest.mark.parametrize("nth", [1, 2])
def test_a_write_that_fails_is_of_one_alone(nth: int) -> None:
    fs = MemoryFileSystem()
    writers = wanted(fs)
    fs.faults.on("pwritev", FaultKind.EIO, skip=nth - 1, path_ends="r2/raft-vote")
    outcomes = store_together(fs, writers)
    assert [isinstance(outcome, LogStoreError) for outcome in outcomes] == [False, False, True, False]
    assert [writer.state for writer in writers] == [VOTE, VOTE, VoteState(), VOTE]


def test_what_was_cut_short_is_stored_by_nothing_more() -> None:
    fs = MemoryFileSystem()
    writers = wanted(fs)
    with (
        mock.patch.object(fs, "sync_files", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        store_together(fs, writers)
    again = store_together(fs, writers)
    assert [type(outcome) for outcome in again] == [PartitionPoisonedError] * COUNT
    assert [writer.state for writer in writers] == [VoteState()] * COUNT


def test_a_crash_leaves_each_vote_whole() -> None:
    """At every moment one copy is one that was durable before."""
    for syncs in range(2 * COUNT):
        fs = MemoryFileSystem()
        writers = wanted(fs)
        fs.faults.on("sync", FaultKind.EIO, skip=syncs, path_ends="raft-vote")
        store_together(fs, writers)
        for state in stored(fs.crash(KeepNothing())):
            assert state in (VoteState(), VOTE)
