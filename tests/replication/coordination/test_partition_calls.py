"""The way to a partition's leader: markers, producers and ends, from whichever node, while leaders move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from logstore.config import TopicConfig
from logstore.directory.catalogue import Catalogue, encode_uuid
from logstore.errors import (
    InvalidRecordError,
    LogStoreError,
    NotAvailableYetError,
    OutcomeUnknownError,
    ProducerBusyError,
    TransactionStateError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.groups.views import MemberSession
from logstore.log.log_offsets import LogOffsets
from logstore.log.producers.producer_state import Marker, ProducerEntry, RememberedBatch
from logstore.partition.partition import wait_all
from logstore.seams.clock import ManualClock
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.coordination.call_json import error_of, fields_of
from replication.coordination.id_locks import NodeIdLocks
from replication.coordination.liveness import NodeLiveness
from replication.coordination.offset_ends import LeaderEnds
from replication.coordination.partition_calls import MarkerRequest, PartitionCalls
from replication.coordination.routed_partition import RoutedPartition, Router
from replication.coordination.routing import Routing
from replication.coordination.transaction_runtime import ClusterTransactionRuntime
from replication.errors import LeaderNotReadyError, NotLeaderError, PeerUnavailableError
from replication.memory_network import MemoryNetwork
from tests.coordination.memory_runtime import DecidedAppend
from tests.replication.cluster.world import NodeView

TOPIC_ID = encode_uuid(b"t" * 16)
CATALOGUE = Catalogue(store_id=encode_uuid(b"s" * 16)).with_topic(
    "t", topic_id=TOPIC_ID, partitions=2, created_ms=1
)
MARKER = Marker(7, 3, 0, True, 1_700_000_000_000)
PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]


class FakePartition:
    """Of one node; ``world.leaders`` says whether it leads."""

    def __init__(self, world: World, node: int, place: TopicPartition) -> None:
        self._world, self._node, self._place = world, node, place

    def _check(self) -> None:
        leader = self._world.leaders[self._place]
        if leader != self._node:
            raise NotLeaderError("not this node", leader_id=leader)

    def append_marker(self, marker: Marker, *, once: bool, open_since: int, wait: bool) -> DecidedAppend:
        self._check()
        if open_since >= 0:
            raise TransactionStateError("not open", hint="look again")
        self._world.marked.append((self._node, self._place, marker, once))
        return DecidedAppend()

    def producer_entries(self, producer_ids: Sequence[int]) -> dict[int, ProducerEntry]:
        self._check()
        batch = RememberedBatch(4, 9, 100, 105, 1)
        return {one: ProducerEntry(one, 2, [batch], 5, 90) for one in producer_ids if one == 7}

    def reader(self) -> FakePartition:
        self._check()
        return self

    def bounds(self) -> LogOffsets:
        return LogOffsets(0, self._world.end, self._world.end, self._world.end + 2, 1)


class World:
    """Three nodes, each with its calls and router. ``guess``: what nodes believe of leaders."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.leaders = {PLACES[0]: 1, PLACES[1]: 2}
        self.guess = dict(self.leaders)
        self.marked: list[tuple[int, TopicPartition, Marker, bool]] = []
        self.end = 10
        self.clock = ManualClock()
        self.catalogues = dict.fromkeys((1, 2, 3), CATALOGUE)
        self.calls = {node: self._calls(node) for node in (1, 2, 3)}
        self.pauses = 0
        self.on_pause: list[Any] = []

    def _calls(self, node: int) -> PartitionCalls:
        made = PartitionCalls(
            self.network.line(node),
            lambda: self.catalogues[node],
            lambda topic, number: FakePartition(self, node, TopicPartition(topic, number)),  # type: ignore[arg-type,return-value]
            lambda topic, number: number == 1,
            self._mark_offsets,
        )
        made.serve()
        return made

    def router(self, node: int, *, threads: bool = False) -> Router:
        view = NodeView(self.clock, lock_timeout_s=5.0, threads=threads)
        routing = Routing(node, view, lambda place: self.guess[place], self._pause)
        return Router(routing, self.calls[node])

    def _mark_offsets(self, request: MarkerRequest) -> None:
        raise AssertionError("no offsets here")

    def _pause(self, seconds: float) -> None:
        self.pauses += 1
        self.clock.advance(max(int(seconds * 1000), 1))
        if self.on_pause:
            self.on_pause.pop(0)()

    def partitions(self, node: int, *, threads: bool = False) -> list[RoutedPartition]:
        router = self.router(node, threads=threads)
        return [RoutedPartition(router, place, TOPIC_ID, TopicConfig()) for place in PLACES]


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("node", [1, 3])
def test_markers_reach_the_leaders(node: int, threads: bool) -> None:
    world = World()
    appends = [
        one.append_marker(MARKER, once=True, wait=True) for one in world.partitions(node, threads=threads)
    ]
    assert world.marked == []  # written when they are waited for
    wait_all(appends)
    assert [one.error for one in appends] == [None, None]
    assert sorted(world.marked) == [(1, PLACES[0], MARKER, True), (2, PLACES[1], MARKER, True)]
    told: list[LogStoreError | None] = []
    appends[0].then(told.append)
    assert told == [None]


def test_a_marker_follows_a_leader_that_moved() -> None:
    world = World()
    world.leaders[PLACES[0]] = 3
    append = world.partitions(1)[0].append_marker(MARKER, once=True)
    wait_all([append])
    assert append.error is None
    assert world.marked == [(3, PLACES[0], MARKER, True)]
    assert world.pauses == 1


def test_a_marker_waits_for_a_leader_if_it_may() -> None:
    world = World()
    world.guess[PLACES[0]] = -1
    hasty = world.partitions(2)[0].append_marker(MARKER, once=True, wait=False)
    wait_all([hasty])
    assert isinstance(hasty.error, NotLeaderError)
    assert world.pauses == 0
    world.network.cut(2, 1)
    world.guess[PLACES[0]] = 1
    world.on_pause = [lambda: None, world.network.heal]
    patient = world.partitions(2)[0].append_marker(MARKER, once=True)
    wait_all([patient])
    assert patient.error is None
    assert world.pauses == 2
    world.network.cut(2, 1)
    late = world.partitions(2)[0].append_marker(MARKER, once=True)
    wait_all([late])
    assert isinstance(late.error, PeerUnavailableError)


def test_a_node_that_does_not_know_the_topic_yet_is_asked_again() -> None:
    world = World()
    world.catalogues[1] = Catalogue(store_id=CATALOGUE.store_id)
    world.on_pause = [lambda: world.catalogues.update({1: CATALOGUE})]
    append = world.partitions(3)[0].append_marker(MARKER, once=True)
    wait_all([append])
    assert append.error is None


def test_refusals_come_back_by_name() -> None:
    world = World()
    append = world.partitions(3)[0].append_marker(MARKER, open_since=4)
    wait_all([append])
    assert isinstance(append.error, TransactionStateError)
    assert (append.error.message, append.error.advice) == ("not open", "look again")
    found = error_of({"name": "NoSuchError", "message": "m", "hint": "", "numbers": {}})
    assert isinstance(found, OutcomeUnknownError)
    with pytest.raises(InvalidRecordError):
        fields_of(b"no json")


@pytest.mark.parametrize("node", [1, 2])
def test_producers_and_keys_are_asked_of_the_leader(node: int) -> None:
    world = World()
    one, two = world.partitions(node)
    (entry,) = one.producer_entries([6, 7]).values()
    assert (entry.epoch, entry.last_sequence, entry.coordinator_epoch, entry.transaction_start) == (
        2,
        9,
        5,
        90,
    )
    world.leaders[PLACES[1]] = 3
    assert two.producer_entries([6]) == {}
    assert [world.router(node).is_keyed(place) for place in PLACES] == [False, True]
    with pytest.raises(NotAvailableYetError):
        one.append([])


def test_ends_are_asked_once_until_an_offset_passes_them() -> None:
    world = World()
    asked: list[int] = []
    calls = world.calls[3]
    ends_of = calls.ends
    confirmed: list[bool] = []

    def asking(node: int, *args: Any, **kwargs: Any) -> Any:
        asked.append(node)
        confirmed.append(kwargs["confirmed"])
        return ends_of(node, *args, **kwargs)

    calls.ends = asking  # type: ignore[method-assign]
    caught_up: list[bool] = []
    ends = LeaderEnds(
        3, lambda: CATALOGUE, calls, lambda place: world.guess[place], lambda: caught_up.append(True)
    )

    def of(offset: int, *places: TopicPartition) -> dict[TopicPartition, int]:
        seen = ends.of({place: OffsetAndMetadata(offset) for place in places or PLACES})
        assert ends.still(seen).keys() == {"t"}
        return seen.ends

    assert of(5) == {PLACES[0]: 12, PLACES[1]: 12}
    assert sorted(asked) == [1, 2]
    assert of(10) == {PLACES[0]: 10, PLACES[1]: 10}
    assert len(asked) == 2
    world.end = 20
    assert of(11, PLACES[0]) == {PLACES[0]: 22}
    assert not any(confirmed)
    assert of(30, PLACES[0]) == {PLACES[0]: 22}
    assert confirmed[-2:] == [False, True]  # an end before the offset is no deposed leader's
    world.network.cut(3, 2)
    assert of(99, PLACES[1]) == {PLACES[1]: 99}  # its reader has been there
    with pytest.raises(UnknownTopicError):
        of(1, TopicPartition("no", 0))
    with pytest.raises(UnknownPartitionError):
        of(1, TopicPartition("t", 9))
    assert caught_up == [True, True]


def test_a_topic_is_gone_only_once_the_controller_says_so() -> None:
    world = World()
    now = [Catalogue(store_id=CATALOGUE.store_id)]

    def catch_up() -> None:
        now[0] = CATALOGUE

    runtime = ClusterTransactionRuntime(
        lambda: now[0], catch_up, world.router(1), NodeIdLocks(), lambda: 1, lambda: None
    )
    assert runtime.partition("t", 1).where == "t-1"
    with pytest.raises(UnknownTopicError):
        runtime.partition("gone", 0)
    with pytest.raises(UnknownPartitionError):
        runtime.partition("t", 2)

    def unreachable() -> None:
        raise LeaderNotReadyError("nobody is the controller")

    runtime.look_for_changes = unreachable
    with pytest.raises(LeaderNotReadyError):
        runtime.partition("gone", 0)


def test_members_that_nothing_is_heard_of_live_for_a_session_under_each_coordinator() -> None:
    clock, era = ManualClock(), [4]
    liveness = NodeLiveness(clock, lambda: era[0])
    mine = liveness.begin("mine")

    def session(name: str, left_ms: int = -1) -> MemberSession:
        return MemberSession("g", name, None, mine, 1_000, 0, left_ms)

    def dead() -> dict[str, list[str]]:
        return liveness.dead([session("a"), session("b")], {"g"})

    assert dead() == {}
    clock.advance(900)
    assert dead() == {}
    era[0] = 5  # this node has become the coordinator anew
    clock.advance(900)
    assert dead() == {}
    clock.advance(1_100)
    assert dead() == {"g": ["a", "b"]}
    assert liveness.dead([session("a")], {"other"}) == {}
    left = session("left", clock.wall_ms() - 1_001)
    assert liveness.dead([left], {"g"}) == {"g": ["left"]}


def test_an_ids_lock_is_one_openings() -> None:
    locks = NodeIdLocks()
    one, other = locks.of("x"), locks.of("x")
    assert one.try_take()
    assert one.try_take()
    assert locks.is_held("x")
    assert not other.try_take()
    with pytest.raises(ProducerBusyError):
        other.take(0.01)
    one.release()
    one.release()
    other.take(0.0)
    assert not one.try_take()
