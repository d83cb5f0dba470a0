"""A streaming copy by Spark, exactly once, whose driver and Python workers are killed and started again.

    python -m tests.integration.killed_stream --records 100000 --kills 20 --start 0 [--brokers | --cluster]

copies so many records in one query, until so many kills have landed inside a batch, prints what came of it, and ends
with 1 if the output is not the input, once and in order. Kills take turns: at a random moment of a batch; of the
Python workers alone, after which Spark goes on or the query fails; at points that wait for the kill (stream_job.py):
before the commit is decided, between the decision and the markers, and after all was done but Spark's own note.
With ``--brokers`` both topics are at a broker, which is killed in its turn; what lies between a decision and its
markers is the broker's then. With ``--cluster`` they are on three brokers, of which the leader of a partition is
killed, and started again while the stream goes on. A kill counts if it landed inside a batch: the checkpoint has the
batch's offsets and no commit of it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import logstore
from rpc.client.store import RemoteStore
from rpc.testing.broker import BrokerForTests
from rpc.testing.cluster import ClusterForTests
from tests.integration.killed_copier import difference
from tests.integration.spark_driver import Driver, WrongStreamError, progress, stage
from tests.integration.stream_job import BROKERS, PAUSE, POINTS, Copy, command

KINDS: Final = ("decided", "unnoted", "random", "open", "workers", "random")
KINDS_AT_BROKERS: Final = ("unnoted", "broker", "open", "random", "workers", "broker", "random")
_LEASE_S: Final = 20.0  # longer than the look at what a kill has cut
KEYS: Final = 11
_LONGEST_S: Final = 0.5  # from what was waited for to the kill
_BATCHES_AHEAD: Final = 2  # at most, that a driver finishes before it is killed


class Stream(NamedTuple):
    """What came of one seed. ``landed``: kills inside a batch; ``at``: how far the batch was; ``missed``: kills
    between two batches; ``retried``, ``failed``: what Spark did when its workers were killed; ``aborted``: records
    of transactions that a kill cut short."""

    seed: int
    records: int
    batches: int
    landed: int
    at: dict[str, int]
    missed: int
    retried: int
    failed: int
    aborted: int


class KilledCluster:
    """Three brokers in the place of one; a restart kills the leader of a partition that is written."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._brokers = ClusterForTests(folder, lease_timeout_s=_LEASE_S)
        self._dice = dice
        self._restart: threading.Thread | None = None
        self.address = self._brokers.address
        self.connect = self._brokers.connect

    def restart(self) -> None:
        """Kill, and start again a while later, beside what goes on meanwhile."""
        self._join()
        topic = self._dice.choice(("out", "__transaction_state", "out"))
        node = self._brokers.leader_of(topic, 0)
        if node < 0:
            node = self._dice.choice(list(self._brokers.nodes))
        self._brokers.kill(node)
        self._restart = threading.Thread(target=self._start_later, args=(node,))
        self._restart.start()

    def _start_later(self, node: int) -> None:
        time.sleep(1 + self._dice.random())  # the time without that broker is the fault
        self._brokers.restart(node)

    def _join(self) -> None:
        if self._restart is not None:
            self._restart.join()
            self._brokers.await_healthy()

    def stopped(self) -> Path:
        """All of them end in order; the directory of one, which has all."""
        self._join()
        self._brokers.await_healthy()
        self._brokers.close()
        return self._brokers.folder / "node-1"

    def close(self) -> None:
        if self._restart is not None:
            self._restart.join()
        self._brokers.close()


class Kills:
    """Kills of one query, one driver after the other."""

    def __init__(
        self,
        root: Path,
        folder: Path,
        most: int,
        copy: Copy,
        seed: int,
        broker: BrokerForTests | KilledCluster | None,
    ) -> None:
        self.dice = random.Random(f"kills {seed}")
        self.at: Counter[str] = Counter()
        self.missed = self.retried = self.failed = 0
        self._seed = seed
        self._root, self._folder = root, folder
        self._checkpoint = copy.checkpoint(folder)
        self._broker = broker
        place = root if broker is None else Path(f"{BROKERS}{broker.address}")
        self._command = command(place, folder, most, [copy])
        self._drivers = 0

    @property
    def landed(self) -> int:
        return sum(self.at.values())

    def start(self, env: dict[str, str] | None = None) -> Driver:
        self._drivers += 1
        return Driver(self._command, self._folder / f"driver-{self._drivers}.err", env or {})

    def one(self, kind: str) -> bool:
        """Start a driver and kill it; False: it came to its end before. ``WrongStreamError``."""
        wanted = progress(self._checkpoint).noted + 1 + self.dice.randint(0, _BATCHES_AHEAD)
        paused = self._folder / f"paused-{self._drivers}"
        driver = self.start({PAUSE: f"{kind}:{wanted}:{paused}"} if kind in POINTS else {})
        failed = self.failed
        try:
            if kind in POINTS:
                driver.wait_for(paused.exists, f"the point {kind} of batch {wanted}")
            else:
                self._into(driver, wanted)
            if kind == "workers" and not driver.ended:
                self._kill_others(driver, kind, lambda: driver.kill_workers(self.dice))
            elif kind == "broker" and self._broker is not None and not driver.ended:
                self._kill_others(driver, kind, self._broker.restart)
            ended = driver.ended
        finally:
            driver.kill(self.dice)
        if not ended:
            self._count(kind)
        elif self.failed > failed:
            return True  # the next driver is the retry
        elif driver.returncode:
            raise WrongStreamError(f"seed {self._seed}: a driver failed before its kill: {driver.errors()}")
        return not ended

    def _into(self, driver: Driver, batch: int) -> None:
        """Into the batch: a moment after it was begun, or after its first task has a file."""
        driver.wait_for(lambda: progress(self._checkpoint).begun >= batch, f"the batch {batch}")
        if self._broker is None and self.dice.random() < 0.5:
            staging = self._root / ".staging"
            driver.wait_for(
                lambda: any(staging.glob("*.staged")) or progress(self._checkpoint).noted >= batch,
                f"a file of batch {batch}",
            )
        time.sleep(self.dice.random() * _LONGEST_S)

    def _kill_others(self, driver: Driver, kind: str, kill: Callable[[], object]) -> None:
        """Workers or the broker. Then calls are made again, Spark retries the task, or the query fails; unless it does
        the driver's own turn comes later."""
        before = progress(self._checkpoint)
        kill()
        inside = before.begun > progress(self._checkpoint).noted
        self.at[kind] += inside
        self.missed += not inside
        told = f"what becomes of batch {before.begun} after {kind} was killed"
        if driver.wait_for(lambda: progress(self._checkpoint).noted > before.begun, told):
            self.retried += inside
            self._into(driver, before.begun + 2)
        elif driver.returncode:
            self.failed += 1

    def _count(self, kind: str) -> None:
        found = progress(self._checkpoint)
        if not found.inside:
            self.missed += 1
            return
        address = self._broker.address if isinstance(self._broker, KilledCluster) else None
        reached = stage(self._root, self._checkpoint, found.begun, address)
        if kind in POINTS and reached != kind:
            raise WrongStreamError(
                f"seed {self._seed}: killed at the point {kind}, batch {found.begun} is {reached}"
            )
        self.at[reached] += 1


def run_stream(folder: Path, seed: int, records: int, kills: int, *, at_brokers: bool = False) -> Stream:
    """Copy with so many landed kills, or fewer if the input ends before. ``WrongStreamError``."""
    dice = random.Random(seed)
    root = folder / "store"
    partitions, copy = dice.choice((2, 3)), Copy("in", "out", keep=dice.random() < 0.5)
    fill(root, "in", partitions, records)
    with logstore.open(root) as store:
        segment = str(dice.choice((50_000, 400_000, 4_000_000)))
        store.create_topic("out", partitions, {"segment.bytes": segment})
    broker = BrokerForTests(root, lease_timeout_s=_LEASE_S) if at_brokers else None
    try:
        done = Kills(root, folder, max(1, records // (3 * kills + 6)), copy, seed, broker)
        _kill_and_finish(done, KINDS if broker is None else KINDS_AT_BROKERS, kills, copy.checkpoint(folder))
        if broker is not None:
            _wait_for_the_end(broker)
    finally:
        if broker is not None:
            broker.close()
    aborted = compare(seed, root, [copy])
    batches = progress(copy.checkpoint(folder)).noted + 1
    return Stream(
        seed, records, batches, done.landed, dict(done.at), done.missed, done.retried, done.failed, aborted
    )


def run_at_cluster(folder: Path, seed: int, records: int, kills: int) -> Stream:
    """As ``run_stream``, with both topics on three brokers. ``WrongStreamError``."""
    dice = random.Random(seed)
    partitions, copy = dice.choice((2, 3)), Copy("in", "out", keep=dice.random() < 0.5)
    cluster = KilledCluster(folder / "cluster", dice)
    try:
        store = cluster.connect()
        for topic in ("in", "out"):
            store.create_topic(topic, partitions)
        send(store, "in", records)
        done = Kills(folder / "cluster", folder, max(1, records // (3 * kills + 6)), copy, seed, cluster)
        _kill_and_finish(done, KINDS_AT_BROKERS, kills, copy.checkpoint(folder))
        _wait_for_the_end(cluster)
        root = cluster.stopped()
    finally:
        cluster.close()
    aborted = compare(seed, root, [copy])
    batches = progress(copy.checkpoint(folder)).noted + 1
    return Stream(
        seed, records, batches, done.landed, dict(done.at), done.missed, done.retried, done.failed, aborted
    )


def _kill_and_finish(done: Kills, kinds: tuple[str, ...], kills: int, checkpoint: Path) -> None:
    for turn in range(3 * kills):
        if done.landed >= kills or not done.one(kinds[turn % len(kinds)]):
            break
        print(f"{done.landed} landed, {dict(done.at)}", flush=True)
    last = done.start()
    try:
        if last.wait(checkpoint):
            raise WrongStreamError(f"the last run failed: {last.errors()}")
    finally:
        last.kill(done.dice)


def _wait_for_the_end(broker: BrokerForTests | KilledCluster) -> None:
    """What a killed task was writing ends once the broker has missed it."""
    store = broker.connect()
    deadline_s = time.monotonic() + 3 * _LEASE_S
    while open_ones := [one for one in store.admin.list_transactions() if one.state == "ONGOING"]:
        if time.monotonic() > deadline_s:
            raise WrongStreamError(f"transactions of the killed go on: {open_ones}")
        time.sleep(0.05)


def fill(root: Path, topic: str, partitions: int, records: int) -> None:
    with logstore.open(root) as store:
        store.create_topic(topic, partitions)
        send(store, topic, records)


def send(store: logstore.LogStore | RemoteStore, topic: str, records: int) -> None:
    with store.producer() as producer:
        rows = [(b"%d" % (number % KEYS), b"%s %d" % (topic.encode(), number)) for number in range(records)]
        producer.send_many(topic, rows).result()


def compare(seed: int, root: Path, copies: list[Copy]) -> int:
    """``WrongStreamError`` unless each target is its sources, once and in order, nothing is staged and no transaction
    is open; records that are there and do not count."""
    uncounted = 0
    with logstore.open(root, mode="r") as store:
        for target in sorted({copy.target for copy in copies}):
            due: Rows = {}
            for copy in copies:
                if copy.target == target:
                    due |= _rows(store, copy.source, copy.keep)[0]
            keep = any(copy.keep for copy in copies if copy.target == target)
            found, hidden = _rows(store, target, keep)
            uncounted += hidden
            for key in sorted(due | found, key=str):
                fault = difference(due.get(key, []), found.get(key, []))
                if fault is not None:
                    raise WrongStreamError(f"seed {seed}: topic {target}, {key}: {fault}")
        open_ones = [found for found in store.admin.list_transactions() if found.state not in _ENDED]
    if open_ones:
        raise WrongStreamError(f"seed {seed}: transactions are not ended: {open_ones}")
    left = sorted(path.name for path in (root / ".staging").glob("*"))
    if left:
        raise WrongStreamError(f"seed {seed}: staging files stay: {left}")
    return uncounted


_ENDED: Final = ("COMPLETE_COMMIT", "COMPLETE_ABORT", "EMPTY")
Rows = dict[tuple[bytes, ...], list[tuple[bytes | None, bytes]]]


def _rows(store: logstore.LogStore, topic: str, keep: bool) -> tuple[Rows, int]:
    """What has an order of its own: the rows of a partition if partitions are kept, else those of a key from one
    source (a value begins with it); and how many records there are that do not count."""
    found: Rows = {}
    where: dict[bytes, int] = {}
    counted = total = 0
    for number in range(store.topic(topic).partitions):
        log = store.partition(topic, number)
        for record in log.records(0, isolation="read_committed"):
            key, value = record.key or b"", record.value or b""
            if not keep and where.setdefault(key, number) != number:
                raise WrongStreamError(f"topic {topic}: key {key!r} is in two partitions")
            place = (b"%d" % number,) if keep else (key, value.partition(b" ")[0])
            found.setdefault(place, []).append((key, value))
            counted += 1
        total += sum(1 for _ in log.records(0, isolation="read_uncommitted"))
    return found, total - counted


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a streaming copy and compare what it wrote.")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20, help="kills that have to land inside a batch")
    parser.add_argument("--start", type=int, default=0, help="the seed")
    parser.add_argument("--brokers", action="store_true", help="both topics at a broker, killed as well")
    parser.add_argument("--cluster", action="store_true", help="both topics on three brokers, leaders killed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            where, seed, records, kills = Path(folder), options.start, options.records, options.kills
            if options.cluster:
                done = run_at_cluster(where, seed, records, kills)
            else:
                done = run_stream(where, seed, records, kills, at_brokers=options.brokers)
        except WrongStreamError as error:
            print("wrong:", error, flush=True)
            return 1
    print(done)
    print(f"{done.landed} kills landed inside a batch: no difference found")
    return 0 if done.landed >= options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
