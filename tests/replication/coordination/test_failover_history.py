"""Groups and transactions under load while nodes are stopped, killed, cut off: what was acknowledged is there, once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from logstore.errors import (
    LogStoreError,
    OutcomeUnknownError,
    ProducerFencedError,
    RetriableError,
    TransactionAbortedError,
)
from logstore.machine import TransactionalWriter
from logstore.types import OffsetAndMetadata, TopicPartition
from replication.coordination.backend import ClusterBackend
from tests.beside import Beside
from tests.replication.cluster_nodes import Cluster, cluster, until
from tests.replication.coordination.test_cluster_coordinators import (
    PLACES,
    SOURCE,
    Client,
    batch_of,
    with_topics,
)

Answer = TypeVar("Answer")


class Worker:
    """Copies numbers in transactions, each with the offset that it read up to, and opens its id anew when it must. What
    it was told of each transaction is in ``committed`` and ``aborted``."""

    def __init__(self, three: Cluster, name: str, over: threading.Event) -> None:
        self.client = Client(three)
        self.name = name
        self._over = over
        self.committed: list[int] = []
        self.aborted: list[int] = []

    def run(self) -> None:
        number = 0
        self.writer = self._open()
        while not self._over.is_set():
            number += 1
            (self.committed if self._copy(number) else self.aborted).append(number)

    def _open(self) -> TransactionalWriter:
        lease = self.client.coordinator(lambda engine: engine.init_transactions(self.name, 60_000))
        return TransactionalWriter(lease.producer_id, lease.epoch)

    def _call(self, work: Callable[[ClusterBackend], Answer]) -> Answer:
        return self.client.coordinator(work)

    def _lease(self, engine: ClusterBackend) -> object:
        return engine.resume_transactions(self.name, 60_000, *self.writer)

    def _copy(self, number: int) -> bool:
        writer = self.writer

        def begin(engine: ClusterBackend) -> None:
            lease = engine.resume_transactions(self.name, 60_000, *writer)
            lease.begin(writer)
            lease.add_partitions(PLACES, offsets=True, writer=writer)

        def offsets(engine: ClusterBackend) -> None:
            lease = engine.resume_transactions(self.name, 60_000, *writer)
            lease.send_offsets(self.name, {SOURCE: OffsetAndMetadata(number % 10)}, writer=writer)

        def commit(engine: ClusterBackend) -> TransactionalWriter:
            lease = engine.resume_transactions(self.name, 60_000, *writer)
            try:
                lease.end(commit=True, writer=writer)
            except OutcomeUnknownError as error:
                raise _AgainError(error.message) from error
            return TransactionalWriter(lease.producer_id, lease.epoch)

        try:
            self._call(begin)
            for place in PLACES:
                value = b"%s-%d-%d" % (self.name.encode(), number, place.partition)
                self.client.produce(place, batch_of(_Identity(writer), value))
            self._call(offsets)
            self.writer = self._call(commit)
        except (TransactionAbortedError, ProducerFencedError):
            self.writer = self._open()
            return False
        return True


class _AgainError(RetriableError):
    """Asked again: whether it is decided, and the rest of it."""


class _Identity:
    def __init__(self, writer: TransactionalWriter) -> None:
        self.producer_id, self.epoch = writer


class Committer:
    """Commits rising offsets of one group."""

    def __init__(self, three: Cluster, group: str, over: threading.Event) -> None:
        self.client = Client(three)
        self.group = group
        self._over = over
        self.acknowledged = -1

    def run(self) -> None:
        for offset in range(1, 100_000):
            if self._over.is_set():
                return
            place = {TopicPartition("in", 0): OffsetAndMetadata(min(offset // 10, 10), metadata=str(offset))}
            self.client.coordinator(lambda engine, place=place: engine.commit_offsets(self.group, place))  # type: ignore[misc]
            self.acknowledged = offset


def stop_roughly(three: Cluster, number: int) -> None:
    """As a killed process: nothing is handed over, and the network is gone first."""
    three.network.lines[number].close()
    node = three.nodes.pop(number)
    try:
        node.close()
    except LogStoreError:
        pass  # what cannot be made durable without the others is theirs to know


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6)])
def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    over = threading.Event()
    with cluster(tmp_path) as three:
        with_topics(three)
        workers = [Worker(three, f"w{number}", over) for number in range(2)]
        committers = [Committer(three, f"g{number}", over) for number in range(2)]
        with Beside(*[one.run for one in (*workers, *committers)], stop=over.set) as beside:
            for _ in range(4):
                over.wait(0.5 + dice.random())
                number = dice.choice(sorted(three.nodes))
                what = dice.choice(("stop", "kill", "cut"))
                if what == "cut":
                    for other in set(three.nodes) - {number}:
                        three.network.cut(number, other)
                    over.wait(1.0 + dice.random())
                    three.network.heal()
                    continue
                if what == "stop":
                    three.nodes[number].hand_over()
                    three.stop(number)
                else:
                    stop_roughly(three, number)
                over.wait(0.3 + dice.random())
                three.start(number)
            until(
                lambda: (
                    beside.has_failed
                    or all(
                        len(one.committed) > 3 if isinstance(one, Worker) else one.acknowledged > 10
                        for one in (*workers, *committers)
                    )
                )
            )
        _check(three, workers, committers)


def _check(three: Cluster, workers: list[Worker], committers: list[Committer]) -> None:
    client = Client(three)
    wanted = sorted(
        b"%s-%d-%d" % (worker.name.encode(), number, place.partition)
        for worker in workers
        for number in worker.committed
        for place in PLACES
    )
    until(lambda: client.committed("out", 3) == wanted)
    for worker in workers:
        found = client.coordinator(lambda engine, name=worker.name: engine.committed_offsets(name))  # type: ignore[misc]
        assert SOURCE in found, f"{worker.name} has committed {worker.committed}"
        assert found[SOURCE].offset == worker.committed[-1] % 10
    for one in committers:
        found = client.coordinator(lambda engine, name=one.group: engine.committed_offsets(name))  # type: ignore[misc]
        assert SOURCE in found, f"{one.group} was told of {one.acknowledged}"
        assert int(found[SOURCE].metadata) in (one.acknowledged, one.acknowledged + 1)
