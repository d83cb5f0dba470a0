"""Two of three brokers stand still for longer than an election takes, with many partitions: when do all serve again?

    python -m tests.history.paused_majority --partitions 300 --pauses 5

A record goes to each partition all the time, while two brokers are stopped (SIGSTOP), the one that leads the metadata
among them, and go on later (SIGCONT). What is told of each pause: seconds from its end until the first record that was
sent after it is acknowledged, until half of the partitions have acknowledged one, and until all of them have. In the
end each partition is read: it ends with 1 where an acknowledged record is lost, is there twice, or is out of order.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from logstore.errors import LogStoreError
from rpc.client.store import RemoteStore
from rpc.testing.broker import BrokerForTests
from rpc.testing.cluster import ClusterForTests
from tests.beside import Beside

TOPIC: Final = "t"
PAUSE_S: Final = 4.0
"""Longer than an election takes, and than a connection to a peer may be silent."""
_ROUND_S: Final = 1.0
_PATIENCE_S: Final = 90.0


class Service(NamedTuple):
    """Seconds from the end of a pause until records that were sent after it are acknowledged: a first one, one of each
    of half the partitions, one of each of all."""

    first_s: float
    half_s: float
    all_s: float


class Found(NamedTuple):
    """``in_doubt``: records whose answer was an error; ``lost``, ``doubled``, ``disordered``: of those acknowledged."""

    services: list[Service]
    acknowledged: int
    in_doubt: int
    lost: int
    doubled: int
    disordered: int

    @property
    def is_good(self) -> bool:
        return self.lost == self.doubled == self.disordered == 0 and self.acknowledged > 0


class Rounds:
    """Sends a numbered record to each partition, round after round, in a block and until its end."""

    def __init__(self, client: RemoteStore, partitions: int) -> None:
        self._producer = client.producer(acks="all", linger_ms=5, delivery_timeout_ms=60_000)
        self._partitions = partitions
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._round = 0
        self.acknowledged: list[tuple[int, int, float]] = []  # partition, round, when
        self.in_doubt = 0
        self._beside = Beside(self._run, stop=self._stop.set)

    def _run(self) -> None:
        while not self._stop.wait(_ROUND_S):
            with self._lock:
                self._round += 1
                number = self._round
            for partition in range(self._partitions):
                try:
                    self._send(partition, number)
                except LogStoreError:
                    with self._lock:
                        self.in_doubt += 1

    def _send(self, partition: int, number: int) -> None:
        def done(delivery: Any) -> None:
            now_s, failed = time.monotonic(), delivery.exception() is not None
            with self._lock:
                if failed:
                    self.in_doubt += 1
                else:
                    self.acknowledged.append((partition, number, now_s))

        self._producer.send(TOPIC, b"%d" % number, partition=partition).add_callback(done)

    def next_round(self) -> int:
        """What is sent from now on is of this round, or a later one."""
        with self._lock:
            return self._round + 1

    def first_acknowledged(self, since: int) -> dict[int, float]:
        """By partition, when the first record of such a round was."""
        found: dict[int, float] = {}
        with self._lock:
            for partition, number, at_s in self.acknowledged:
                if number >= since:
                    found.setdefault(partition, at_s)
        return found

    def await_all(self, since: int) -> dict[int, float]:
        """Once each partition has acknowledged a record of such a round. AssertionError."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while len(found := self.first_acknowledged(since)) < self._partitions:
            assert time.monotonic() < deadline_s, (
                f"{self._partitions - len(found)} of {self._partitions} partitions acknowledge nothing within "
                f"{_PATIENCE_S:g} s"
            )
            time.sleep(0.01)
        return found

    def __enter__(self) -> Rounds:
        self._beside.start()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._beside.__exit__(*error)
        finally:
            self._producer.close()


def paused(cluster: ClusterForTests, rounds: Rounds, dice: random.Random, pause_s: float) -> Service:
    controller = cluster.describe().controller
    others = [node for node in cluster.nodes if node != controller]
    stopped = [controller, dice.choice(others)]
    for node in stopped:
        cluster.brokers[node].pause()
    time.sleep(pause_s)  # the pause is the fault
    since = rounds.next_round()
    began_s = time.monotonic()
    for node in stopped:
        cluster.brokers[node].resume()
    took = sorted(at_s - began_s for at_s in rounds.await_all(since).values())
    return Service(took[0], took[len(took) // 2], took[-1])


def compared(found: Mapping[int, list[int]], rounds: Rounds, services: list[Service]) -> Found:
    """``found``: numbers as they stand in each partition."""
    times = {partition: Counter(numbers) for partition, numbers in found.items()}
    return Found(
        services,
        acknowledged=len(rounds.acknowledged),
        in_doubt=rounds.in_doubt,
        lost=sum(number not in times[partition] for partition, number, _ in rounds.acknowledged),
        doubled=sum(count > 1 for counts in times.values() for count in counts.values()),
        disordered=sum(after < before for numbers in found.values() for before, after in pairwise(numbers)),
    )


def run(folder: Path, partitions: int, pauses: int, *, seed: int = 0, pause_s: float = PAUSE_S) -> Found:
    """AssertionError: a partition does not come back."""
    with contextlib.ExitStack() as stack:
        stack.callback(BrokerForTests.end_spares)
        cluster = stack.enter_context(ClusterForTests(folder))
        client = cluster.connect()
        client.create_topic(TOPIC, partitions)
        cluster.await_healthy()
        dice = random.Random(seed)
        services = []
        with Rounds(cluster.connect(), partitions) as rounds:
            for _ in range(pauses):
                rounds.await_all(rounds.next_round())
                services.append(paused(cluster, rounds, dice, pause_s))
        found = {
            number: [int(record.value or b"") for record in client.partition(TOPIC, number).records(0)]
            for number in range(partitions)
        }
        return compared(found, rounds, services)


def main() -> int:
    parser = argparse.ArgumentParser(description="Stop two of three brokers, and see when service returns.")
    parser.add_argument("--partitions", type=int, default=300)
    parser.add_argument("--pauses", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=PAUSE_S, help="of each pause")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), given.partitions, given.pauses, seed=given.seed, pause_s=given.seconds)
    for one in found.services:
        sys.stdout.write(
            f"after a pause of {given.seconds:g} s: first {one.first_s:.2f} s, half of {given.partitions} partitions "
            f"{one.half_s:.2f} s, all {one.all_s:.2f} s\n"
        )
    sys.stdout.write(
        f"{found.acknowledged} acknowledged, {found.in_doubt} in doubt; lost {found.lost}, doubled {found.doubled}, "
        f"out of order {found.disordered}\n"
    )
    return 0 if found.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
