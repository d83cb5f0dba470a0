"""Brokers are killed while partitions move between real processes, under load: nothing acknowledged is lost or doubled,
and every move comes to its end, or is told and can be cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from logstore.errors import LogStoreError
from replication.cluster.duties import PROMOTE_LAG
from rpc.client.store import RemoteStore
from rpc.testing.broker import BrokerForTests
from rpc.testing.cluster import ClusterForTests
from rpc.wire.cluster import PartitionMove
from tests.beside import Beside
from tests.history.campaign import end_of, open_transactions
from tests.history.checker import check
from tests.history.events import Acked, Begun, EventFile, History, Place, Send, read_events
from tests.history.workers import IN, OUT, PARTITIONS, READERS, run
from tests.rpc.peers.world import PATIENCE_S, until
from tests.rpc.test_commands import BrokerShell

_RECOVERY_BYTES_S: Final = 400_000
_FILLED: Final = 5_000  # records of each partition, so that it takes seconds until a new replica may vote
_FILLER: Final = "." * 300
_PACE_S: Final = 0.05
_PLACES: Final[list[Place]] = [(IN, number) for number in range(PARTITIONS)]
_JOBS: Final = {"producer": "produce", "writer": "transact", "reader": "read"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterForTests]:
    monkeypatch.delenv("LOGSTORE_PATH", raising=False)
    with ClusterForTests(tmp_path / "brokers", 4, recovery_bytes_s=_RECOVERY_BYTES_S) as made:
        yield made
    BrokerForTests.end_spares()


class Load:
    """Clients of a history, each a thread, from the beginning of a block until ``end``, or the block's."""

    def __init__(self, address: str, folder: Path) -> None:
        self._folder = folder
        self._stop = threading.Event()
        works = [
            partial(self._run, job, address, name, seed) for seed, (name, job) in enumerate(_JOBS.items())
        ]
        self._beside = Beside(*works, stop=self._stop.set)

    def __enter__(self) -> Load:
        self._beside.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._beside.__exit__(*error)

    def _run(self, job: str, address: str, name: str, seed: int) -> None:
        events = EventFile(self._path(name))
        try:
            run(job, address, events, f"{name}.1", seed, self._stop, _PACE_S)
        finally:
            events.close()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.events"

    def noted(self) -> int:
        return sum(self._path(name).stat().st_size for name in _JOBS if self._path(name).exists())

    def await_progress(self) -> None:
        before = self.noted()
        until(lambda: self.noted() > before, "clients go on")

    def end(self) -> History:
        self._beside.end()
        return History({name: list(read_events(self._path(name))) for name in _JOBS})


def filled(client: RemoteStore) -> list[Any]:
    """What is there before; its events."""
    events: list[Any] = [Begun()]
    with client.producer() as producer:
        for place in _PLACES:
            values = tuple(f"{place[0]}-{place[1]}.{number}{_FILLER}" for number in range(_FILLED))
            events.append(Send(place, values))
            sent = [producer.send(place[0], value.encode(), partition=place[1]) for value in values]
            events.append(Acked(values, tuple(one.result(60.0).offset for one in sent)))
    return events


def moves(client: RemoteStore) -> list[PartitionMove]:
    """Also while the controller changes."""
    found: list[list[PartitionMove]] = []

    def look() -> bool:
        try:
            found.append(client.cluster_administration.moves())
        except LogStoreError:
            return False
        return True

    until(look, "the controller says what moves")
    return found[-1]


def await_filling(client: RemoteStore, node: int) -> None:
    """Replicas are being filled there, and lack too much to vote."""
    until(
        lambda: any(one.lags.get(node, 0) > PROMOTE_LAG for one in moves(client) if one.partition == 0),
        f"partition 0 is being moved to {node}",
    )


def members(cluster: ClusterForTests) -> list[list[int]]:
    """Of each partition, with those that are being filled; none where no broker can say."""
    try:
        found = cluster.describe()
    except LogStoreError:
        return []
    return [
        sorted(one.node_id for one in status.replicas) for topic, status in found.partitions if topic == IN
    ]


class Further:
    """Whether moves come further: steps that were not seen before, or a learner that lacks less than ever."""

    def __init__(self) -> None:
        self._steps: set[tuple[Any, ...]] = set()
        self._least: dict[tuple[int, int], int] = {}

    def note(self, moving: list[PartitionMove], now: list[list[int]]) -> bool:
        step = (tuple(map(tuple, now)), tuple((one.partition, *sorted(one.lags)) for one in moving))
        further = step not in self._steps
        self._steps.add(step)
        for one in moving:
            for node, lag in one.lags.items():
                place = (one.partition, node)
                if 0 <= lag < self._least.get(place, lag + 1):
                    self._least[place] = lag
                    further = True
        return further


def await_end(cluster: ClusterForTests, client: RemoteStore, expected: list[list[int]]) -> None:
    """As long as the moves come further, however slow the machine. Any broker is asked, one that does not know of the
    moves yet as well: what there is then counts, too."""
    further, deadline_s = Further(), 0.0
    while (moving := moves(client)) or members(cluster) != expected:
        now, now_s = members(cluster), time.monotonic()
        if further.note(moving, now):
            deadline_s = now_s + PATIENCE_S
        told = [(one.partition, one.target, dict(one.lags)) for one in moving]
        assert now_s < deadline_s, (
            f"no step within {PATIENCE_S} s towards {expected}: members {now}, moves {told}, {cluster.describe()}"
        )


@pytest.mark.slow
def test_moves_outlive_the_death_of_each_broker_that_has_a_part_in_them(
    cluster: ClusterForTests, tmp_path: Path
) -> None:
    shell, client = BrokerShell(cluster.address), cluster.connect()
    for topic in (IN, OUT):
        client.create_topic(topic, PARTITIONS)
    shell.run("cluster", "move", IN, "--to", "1,2,3", "--wait")
    cluster.await_healthy()
    before = filled(client)
    with Load(cluster.address, tmp_path) as load:
        load.await_progress()

        # The leader that partitions are filled from, which shall leave them: others lead, and fill.
        shell.run("cluster", "move", IN, "--to", "2,3,4")
        await_filling(client, 4)
        source = cluster.leader_of(IN, 0)
        cluster.kill(source)
        load.await_progress()
        cluster.restart(source)
        await_end(cluster, client, [[2, 3, 4]] * PARTITIONS)

        # The broker that is being filled: the moves are told as long as it is away; one is cancelled, the others end.
        shell.run("cluster", "move", IN, "--to", "1,2,3")
        await_filling(client, 1)
        cluster.kill(1)
        load.await_progress()
        told = [(number, (1, 2, 3)) for number in range(PARTITIONS)]
        until(lambda: [(one.partition, one.target) for one in moves(client)] == told, "the moves are told")
        shell.run("cluster", "move", IN, "-p", "0", "--cancel")
        until(lambda: [one.partition for one in moves(client)] == [1, 2], "one move is cancelled")
        cluster.restart(1)
        await_end(cluster, client, [[2, 3, 4], [1, 2, 3], [1, 2, 3]])

        # The controller, which goes from step to step: the next one goes on.
        shell.run("cluster", "move", IN, "--to", "4,1,2")
        until(lambda: len(moves(client)) == PARTITIONS, "partitions move")
        controller = cluster.describe().controller
        cluster.kill(controller)
        load.await_progress()
        cluster.restart(controller)
        await_end(cluster, client, [[1, 2, 4]] * PARTITIONS)

        cluster.await_healthy()
        history = load.end()
    history.processes["before"] = before
    until(lambda: not open_transactions(client, hanging=False), "transactions end")
    history.end = end_of(client, [READERS])
    assert check(history) == []
    assert any(isinstance(event, Acked) for event in history.processes["producer"])
