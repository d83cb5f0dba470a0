"""What a leader that is cut off must not say: that there is nothing, where another one may have it by now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from logstore.api.records import FetchRequest, FetchResult, ListedOffset
from logstore.errors import LogStoreError, OffsetOutOfRangeError
from logstore.types import TopicPartition
from replication.cluster_node import ClusterNode
from replication.coordination.backend import ClusterBackend
from replication.errors import LeaderNotReadyError, NotLeaderError
from tests.replication.cluster_nodes import Cluster, cluster, until

PLACE = TopicPartition("t", 0)
FAR = 1_000


def _fetched(engine: ClusterBackend, *, reverse: bool) -> FetchResult:
    request = FetchRequest(*PLACE, FAR, -1, 1 << 20, reverse)
    ((found,), _) = engine.collect([request], "read_committed", 1, 1 << 20)
    if found.error is not None:
        raise found.error
    return found


def _refused(work: Callable[[ClusterBackend], object]) -> Callable[[ClusterBackend], object]:
    """Whether it is refused because of its offset."""

    def asked(engine: ClusterBackend) -> object:
        try:
            return work(engine)
        except OffsetOutOfRangeError:
            return "refused"

    return asked


ASKED: dict[str, tuple[object, Callable[[ClusterBackend], object]]] = {
    "fetch": ("refused", _refused(lambda engine: _fetched(engine, reverse=False))),
    "fetch backwards": (b"", lambda engine: bytes(_fetched(engine, reverse=True).batches)),
    "latest": (
        {PLACE: False},
        lambda engine: {
            place: one.offset is None
            for place, one in engine.list_offsets([PLACE], "latest", "read_committed").items()
        },
    ),
    "at a time": (
        {PLACE: ListedOffset(None)},
        lambda engine: engine.list_offsets([PLACE], 1, "read_committed"),
    ),
    "max_timestamp": (
        {PLACE: ListedOffset(None)},
        lambda engine: engine.list_offsets([PLACE], "max_timestamp", "read_committed"),
    ),
    "delete_records": ("refused", _refused(lambda engine: engine.delete_records({PLACE: FAR}))),
    "producers": ({}, lambda engine: engine.parts.calls.producers_here(PLACE, [7])),
    "keys": (False, lambda engine: engine.parts.calls.keyed_here(PLACE)),
    "open transactions": (None, lambda engine: engine.parts.calls.open_here(PLACE)),
    "ends": (
        True,
        lambda engine: (
            not isinstance(engine.parts.calls.ends_here([PLACE], confirmed=True)[0], LogStoreError)
        ),
    ),
}
"""Of a partition without records: the answer of its leader, and the question."""


def test_a_leader_that_is_cut_off_does_not_say_that_there_is_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        three.controller.store.create_topic("t")
        for name, (answer, ask) in ASKED.items():
            leader = _answering(three, ask, answer)
            for number in three.nodes:
                three.network.cut(leader.node_id, number)
            try:
                assert ask(leader.engine) != answer, name
            except (NotLeaderError, LeaderNotReadyError):
                pass  # another one may have some by now
            three.network.heal()


def _answering(three: Cluster, ask: Callable[[ClusterBackend], object], answer: object) -> ClusterNode:
    """The leader, once it gives the answer."""
    found: list[ClusterNode] = []

    def look() -> bool:
        found[:] = [three.leader("t")]
        try:
            return ask(found[0].engine) == answer
        except (NotLeaderError, LeaderNotReadyError):
            return False

    until(look)
    return found[0]
