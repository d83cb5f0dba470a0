"""``VoteWriter``: what is due is stored once, in order, and nothing after the end."""

from __future__ import annotations

import pytest

from logstore.errors import StorageError
from logstore.seams.faults import FaultKind
from logstore.seams.memory_fs import MemoryFileSystem
from replication.raft.types import VoteState
from replication.replicas.vote_store import VoteStore
from replication.replicas.vote_writer import VoteWriter
from tests.replication.nodes import Nodes


def made() -> tuple[MemoryFileSystem, VoteWriter]:
    fs = MemoryFileSystem()
    fs.mkdir("/r")
    return fs, VoteWriter(VoteStore.create(fs, "/r"), lambda: VoteStore.open(fs, "/r"))


def test_what_is_due_is_stored_once() -> None:
    fs, votes = made()
    assert votes.write() is None
    votes.want(VoteState(3, 1))
    assert votes.state == VoteState()  # nothing is durable by being wanted
    assert votes.write() == VoteState(3, 1)
    assert votes.write() is None
    votes.close()
    assert VoteStore.open(fs, "/r").state == VoteState(3, 1)


def test_a_later_vote_takes_the_place_of_one_that_is_due() -> None:
    _, votes = made()
    votes.want(VoteState(3))
    votes.want(VoteState(4, 2))
    assert votes.write() == VoteState(4, 2)
    assert votes.write() is None


def test_a_vote_that_could_not_be_stored_is_due_no_more_once_the_file_is_open_again() -> None:
    fs, votes = made()
    votes.want(VoteState(3, 1))
    fs.faults.on("sync", FaultKind.EIO, path_ends="raft-vote")
    with pytest.raises(StorageError):
        votes.write()
    votes.begin_anew()
    assert votes.write() is None
    votes.want(VoteState(5, 1))
    assert votes.write() == VoteState(5, 1)


def test_nothing_is_stored_after_the_end() -> None:
    _, votes = made()
    votes.want(VoteState(3, 1))
    votes.close()
    assert votes.write() is None


def test_messages_are_taken_while_votes_wait_for_the_disk() -> None:
    nodes = Nodes()
    nodes.committed(b"a")
    leader = nodes.leader()
    followers = [node for node in nodes.living if node is not leader]
    leader.kill()
    for node in followers:
        node.node.sync_waiting = lambda: False  # type: ignore[method-assign]
    nodes.run(lambda: any(node.replica.term > 1 for node in followers), most=60)
    terms = [node.files.votes.state.term for node in followers]
    assert terms == [1, 1]  # the new term is not durable anywhere, and nobody leads in it
    assert not any(node.replica.is_leader for node in followers)
    for node in followers:
        del node.node.sync_waiting  # type: ignore[method-assign]
    nodes.run(lambda: len(nodes.leaders()) == 1)
