"""Two processes with the number of one broker: one of them is the broker, and the other is told so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from logstore.errors import LogStoreError
from logstore.seams.clock import ManualClock
from replication.cluster import metadata
from replication.cluster.image import BrokerRegistration, ClusterImage
from replication.cluster.machine import Incumbent
from replication.cluster_node import ClusterNode
from replication.errors import DuplicateBrokerError, NotLeaderError, StaleBrokerError
from replication.sessions import SESSION_S, BrokerSessions
from replication.transport import PeerGate, Presence
from tests.replication.cluster_nodes import Cluster, Line, cluster, until

SILENT_S = 1.0
ROWS = [(None, b"%d" % number) for number in range(20)]


class Announcements:
    """What a network is told of its process."""

    def __init__(self) -> None:
        self.gate: PeerGate | None = None
        self.presence: Presence | None = None
        self.rechecks = 0

    def guard(self, gate: PeerGate) -> None:
        self.gate = gate

    def present(self, presence: Presence) -> None:
        self.presence = presence

    def recheck(self) -> None:
        self.rechecks += 1


class OneNode:
    """The sessions of node 1, incarnation 11, for as long as a test wants."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.network = Announcements()
        self.ended: list[StaleBrokerError] = []
        self.sessions = BrokerSessions(
            Presence(1, 11),
            self.network,  # type: ignore[arg-type]
            self.clock,
            silent_s=SILENT_S,
        )
        self.sessions.when_superseded(self.ended.append)
        self.revision = 0
        self.brokers: dict[int, BrokerRegistration] = {}

    def register(self, node: int, incarnation: int, directory_id: str = "d") -> int:
        """As the controller does; the epoch."""
        self.revision += 1
        self.brokers[node] = BrokerRegistration(
            node, "host", 9092, "", self.revision, False, directory_id, incarnation
        )
        self.sessions.follow(ClusterImage(brokers=dict(self.brokers)))
        return self.revision

    def messages(self, node: int, incarnation: int, epoch: int = -1) -> None:
        self.sessions.admit_messages(Presence(node, incarnation, epoch))

    def calls(self, node: int, incarnation: int, epoch: int = -1) -> None:
        self.sessions.admit_call(Presence(node, incarnation, epoch))

    def incumbent(self, node: int) -> Incumbent:
        return self.sessions.incumbent(self.brokers[node])


def test_who_has_not_registered_is_heard_until_another_process_is_that_broker() -> None:
    one = OneNode()
    one.messages(2, 21)  # a node that is new
    one.register(2, 21)
    one.sessions.beat(2, 21)
    one.messages(2, 21)
    one.calls(2, 22)  # that is how it registers
    with pytest.raises(DuplicateBrokerError, match="another process is broker 2, at host:9092, and it lives"):
        one.messages(2, 22)
    one.clock.advance(int(1000 * SILENT_S) + 1)
    one.messages(2, 22)


def test_a_process_that_ended_is_succeeded_at_once() -> None:
    one = OneNode()
    epoch = one.register(2, 21)
    one.sessions.beat(2, 21)
    one.sessions.left(Presence(2, 21, epoch))
    one.messages(2, 22)


def test_an_older_registration_is_refused_and_a_newer_one_that_is_not_known_yet_is_not() -> None:
    one = OneNode()
    older = one.register(2, 21)
    newer = one.register(2, 22)
    for admit in (one.messages, one.calls):
        with pytest.raises(StaleBrokerError, match=f"under epoch {older}, and another one"):
            admit(2, 21, older)
        admit(2, 22, newer)
        admit(2, 23, newer + 5)


def test_a_stream_that_was_made_before_its_process_registered_is_refused_like_others() -> None:
    one = OneNode()
    one.register(2, 21)
    one.messages(2, 21)
    rechecks = one.network.rechecks
    one.register(2, 22)
    assert one.network.rechecks == rechecks + 1
    with pytest.raises(StaleBrokerError):
        one.messages(2, 21)  # with the epoch of its first word


def test_versions_that_do_not_say_who_they_are_are_heard_as_before() -> None:
    one = OneNode()
    one.register(2, 21)
    one.sessions.beat(2, 21)
    one.messages(2, 0)
    one.calls(2, 0)
    one.register(3, 0)
    one.sessions.beat(3, 31)
    one.messages(3, 32)
    one.register(1, 0)  # by a controller of before, once more: its answer was lost
    assert one.ended == []


def test_what_is_known_of_the_registered_process() -> None:
    one = OneNode()
    one.register(2, 21)
    one.register(1, 12)
    assert one.incumbent(2) is Incumbent.DOUBTFUL  # this node began to listen a moment ago
    assert one.incumbent(1) is Incumbent.GONE  # of its own number it hears nothing
    one.clock.advance(int(1000 * SESSION_S) + 1)
    assert one.incumbent(2) is Incumbent.GONE
    one.sessions.beat(2, 21)
    one.sessions.beat(2, 22)
    assert one.incumbent(2) is Incumbent.LIVES
    one.clock.advance(int(1000 * SILENT_S) + 1)
    assert one.incumbent(2) is Incumbent.DOUBTFUL
    one.sessions.excuse(SILENT_S)
    assert one.incumbent(2) is Incumbent.LIVES
    one.clock.advance(int(1000 * SESSION_S) - 10)
    assert one.incumbent(2) is Incumbent.DOUBTFUL
    one.clock.advance(20)
    assert one.incumbent(2) is Incumbent.GONE


@pytest.mark.parametrize("by_word_of_a_peer", [False, True])
def test_a_process_ends_once_another_is_its_broker(by_word_of_a_peer: bool) -> None:
    one = OneNode()
    one.sessions.refused(StaleBrokerError("before it has registered"))
    assert one.sessions.superseded is None
    one.sessions.registered(one.register(1, 11))
    assert one.network.presence == Presence(1, 11, 1)
    one.sessions.refused(DuplicateBrokerError("another one"))
    assert one.ended == []
    if by_word_of_a_peer:
        one.sessions.refused(StaleBrokerError("another process is broker 1"))
    one.register(1, 12)
    one.sessions.refused(StaleBrokerError("again"))
    assert len(one.ended) == 1
    assert one.sessions.superseded is one.ended[0]
    late: list[LogStoreError] = []
    one.sessions.when_superseded(late.append)
    assert late == one.ended


# --- whole nodes ---


class Twin:
    """A second process with the number of a node, on ``folder``. ``seen``: whether the others reach it, not the
    first."""

    def __init__(self, three: Cluster, number: int, folder: Path, *, seen: bool) -> None:
        known = three.network.lines[number]
        three.root, root = folder, three.root
        self.node = three.make(number)
        three.root = root
        if not seen:
            three.network.lines[number] = known


@contextmanager
def silent(line: Line) -> Iterator[None]:
    """It says nothing for a while, as a process that is stopped."""
    with mock.patch.object(line, "send", return_value=None):
        yield


def twin_folder(three: Cluster, number: int, folder: Path, *, copied: bool) -> Path:
    if copied:
        shutil.copytree(three.root / str(number), folder / str(number))
    return folder


def rows_of(node: ClusterNode, topic: str) -> Sequence[bytes | None]:
    return [record.value for record in node.store.partition(topic, 0).records(0)]


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("of_controller", [False, True])
def test_a_second_process_is_refused_while_the_first_lives(
    tmp_path: Path, copied: bool, of_controller: bool
) -> None:
    with cluster(tmp_path / "a") as three, mock.patch.object(metadata, "_SUCCESSION_S", 0.7):
        three.create_topic("t")
        three.leader("t").store.partition("t", 0).append(ROWS)
        number = next(one for one in three.nodes if (one == three.controller.node_id) == of_controller)
        before = three.controller.metadata.follower.newest()
        three.join_timeout_s = 20.0
        folder = twin_folder(three, number, tmp_path / "b", copied=copied)
        twin = Twin(three, number, folder, seen=False)
        with pytest.raises(DuplicateBrokerError, match=f"another process is broker {number}") as refused:
            twin.node.start()
        assert "another number (`node_id`)" in refused.value.advice
        after = three.controller.metadata.follower.newest()
        assert (after.brokers, after.vacated) == (before.brokers, {})
        assert all(node.sessions.superseded is None for node in three.nodes.values())
        three.leader("t").store.partition("t", 0).append(ROWS)
        assert len(rows_of(three.leader("t"), "t")) == 2 * len(ROWS)


@pytest.mark.parametrize("copied", [False, True])
def test_the_first_process_stops_once_the_second_has_its_number(tmp_path: Path, copied: bool) -> None:
    with cluster(tmp_path / "a") as three:
        three.create_topic("t")
        three.leader("t").store.partition("t", 0).append(ROWS)
        until(lambda: all("t" in node.engine.topics() for node in three.nodes.values()))
        number = next(one for one in three.nodes if one != three.controller.node_id)
        first, line = three.nodes[number], three.network.lines[number]
        ended: list[StaleBrokerError] = []
        first.sessions.when_superseded(ended.append)
        folder = twin_folder(three, number, tmp_path / "b", copied=copied)
        assert isinstance(line, Line)
        with silent(line):
            twin = Twin(three, number, folder, seen=True)
            twin.node.start()
            three.nodes[number] = twin.node
            assert ended == []
        until(lambda: ended)
        assert "has registered as broker" in ended[0].message
        until(lambda: not first.node.replicas())
        with pytest.raises(NotLeaderError):
            first.store.partition("t", 0).append(ROWS)
        first.close()
        three.leader("t").store.partition("t", 0).append(ROWS)
        assert len(rows_of(three.leader("t"), "t")) == 2 * len(ROWS)
        assert twin.node.sessions.superseded is None


def test_a_node_that_is_started_anew_is_accepted_at_once(tmp_path: Path) -> None:
    with cluster(tmp_path) as three, mock.patch.object(metadata, "_SUCCESSION_S", 0.0):
        for number in (1, 2, 3):
            epoch = three.nodes[number].sessions.presence.epoch
            three.stop(number)
            three.start(number)
            assert three.nodes[number].sessions.presence.epoch > epoch
