"""The files of a replica that was moved away: gone but for its promises, whatever step a crash comes at."""

from __future__ import annotations

import pytest

from logstore.config import TopicConfig
from logstore.directory import topic_state
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_crash import KeepAll, KeepNothing
from replication.replicas import leaving
from replication.replicas.vote_store import VoteStore
from tests.replication.nodes import Nodes

SMALL = TopicConfig(segment_bytes=400)


@pytest.mark.parametrize("chooser", [KeepNothing(), KeepAll()], ids=["nothing", "all"])
@pytest.mark.parametrize("at", range(0, 40, 2))
def test_what_is_left_is_the_vote_alone(at: int, chooser: KeepNothing | KeepAll) -> None:
    nodes = Nodes(config=SMALL)
    for number in range(10):
        nodes.committed(b"%d" % number)
    nodes.agree()
    node = nodes.living[-1]
    promised = node.replica.core.state.vote
    directory = node.files.directory
    node.stop()

    logs = {name for name in node.fs.listdir(directory) if name.endswith(".log")}

    def leave() -> None:
        fs = node.fs
        leaving.leave(fs, directory, lambda: topic_state.remove(fs, "/store", "t"))

    node.fs.faults.on("", FaultKind.CRASH, skip=at)
    try:
        leave()
        node.fs.faults.clear()
    except SimulatedCrash:
        node.fs = node.fs.crash(chooser)
        untouched = logs <= set(node.fs.listdir(directory))
        assert (
            untouched
            or leaving.is_unfinished(node.fs, directory)
            or not leaving.has_files(node.fs, directory)
        )
        leave()
    assert not leaving.has_files(node.fs, directory)
    assert not [name for name in node.fs.listdir(directory) if name.endswith((".log", ".index"))]
    node.fs = node.fs.crash(KeepNothing())
    assert not leaving.has_files(node.fs, directory)
    assert VoteStore.open(node.fs, directory).state == promised
