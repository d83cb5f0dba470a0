"""Producers, transactions, copiers and groups at a broker under faults, and a check of the history: real processes.

    python -m tests.history.campaign --seed 1 --faults 30
    python -m tests.history.campaign --cluster --seed 1

runs one seed: so many faults in an order that the seed draws, each once work has gone on behind the one before. It
prints what was done and the anomalies that were found, and ends with 1 if there are any. ``--seeds N`` goes on with the
seeds after it. The order of events of real processes is not the seed's: a seed that failed once need not again, so the
events and the store are kept where ``--keep FOLDER`` says.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import logstore
from logstore.types import TopicPartition
from rpc.testing.broker import BrokerForTests
from rpc.testing.cluster import ClusterForTests
from tests.history.checker import Anomaly, check
from tests.history.cluster_faults import CLUSTER_FAULTS
from tests.history.crew import Crew, await_condition
from tests.history.events import End, History, Place, Polled
from tests.history.facts import facts_of
from tests.history.faults import FAULTS
from tests.history.workers import COPIERS, IN, OUT, PARTITIONS, READERS

ROLES: Final = {
    "producer-a": "produce",
    "producer-b": "produce",
    "writer": "transact",
    "copier-a": "copy",
    "copier-b": "copy",
    "reader-a": "read",
    "reader-b": "read",
}
_PLACES: Final[list[Place]] = [(topic, number) for topic in (IN, OUT) for number in range(PARTITIONS)]


class Outcome(NamedTuple):
    """One seed. ``values``: how many were sent, by whether they are in, out, or in doubt; ``errors``: that workers
    met."""

    seed: int
    faults: Counter[str]
    values: Counter[str]
    transactions: int
    polled: int
    errors: int
    anomalies: list[Anomaly]

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed}: {self.values['in']} values in, {self.values['out']} out, {self.values['unknown']} in "
            f"doubt; {self.transactions} transactions; {self.polled} records polled; {self.errors} errors met; "
            f"faults: {faults}; anomalies: {len(self.anomalies)}"
        )


class Stage(NamedTuple):
    """What the faults happen to. ``open``: makes it in a folder; it has an ``address``, and is closed;
    ``finds_hanging``: whether it can be asked for transactions that hang in partitions."""

    open: Callable[[Path], Any]
    faults: Mapping[str, Callable[[Any, Crew, random.Random], None]]
    finds_hanging: bool = True


def _broker(folder: Path) -> BrokerForTests:
    return BrokerForTests(folder, lease_timeout_s=6.0, drain_s=3.0)


def _cluster(folder: Path) -> ClusterForTests:
    return ClusterForTests(folder, lease_timeout_s=6.0, drain_s=3.0)


BROKER: Final = Stage(_broker, FAULTS)
CLUSTER: Final = Stage(_cluster, CLUSTER_FAULTS, finds_hanging=False)


def run_seed(
    seed: int,
    faults: Sequence[str],
    keep: Path | None = None,
    stage: Stage = BROKER,
    jobs: Collection[str] = frozenset(ROLES.values()),
) -> Outcome:
    """``jobs``: of the workers that take part. AssertionError: work does not go on behind a fault, or a process does
    not end in order."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        if keep is not None:
            stack.callback(_keep, folder, keep)
        stack.callback(BrokerForTests.end_spares)
        broker = stage.open(folder / "data")
        stack.callback(broker.close)
        with logstore.connect(broker.address) as client:
            config = {"segment.bytes": str(dice.choice((50_000, 1_000_000)))}
            for topic in (IN, OUT):
                client.create_topic(topic, PARTITIONS, config)
        roles = {base: job for base, job in ROLES.items() if job in jobs}
        crew = Crew(roles, broker.address, folder, seed)
        stack.callback(crew.dispose)
        crew.start()
        for name in faults:
            crew.await_progress()
            stage.faults[name](broker, crew, dice)
        crew.await_progress()
        history = _finish(broker.address, crew, hanging=stage.finds_hanging)
        return _outcome(seed, Counter(faults), history, crew)


def _keep(folder: Path, target: Path) -> None:
    """The events and the store, which is at rest."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)


def drawn(seed: int, count: int, kinds: Collection[str] = FAULTS) -> list[str]:
    """All kinds of faults in turn, in an order of the seed's."""
    dice = random.Random(seed)
    order: list[str] = []
    while len(order) < count:
        order += dice.sample(list(kinds), len(kinds))
    return order[:count]


def _finish(address: str, crew: Crew, *, hanging: bool) -> History:
    """Let what writes end, what copies catch up, and read what is there."""
    crew.end("produce", "transact")
    left = partial(open_transactions, hanging=hanging)
    groups = [group for job, group in (("read", READERS), ("copy", COPIERS)) if crew.of(job)]
    with logstore.connect(address) as client:
        if crew.of("transact", "copy"):
            await_condition(lambda: not left(client), lambda: f"transactions {left(client)} do not end")
        if crew.of("copy"):
            await_condition(
                lambda: not _behind(client), lambda: f"the copiers do not catch up with {_behind(client)}"
            )
        crew.end("copy", "read")
        if crew.of("copy"):
            await_condition(lambda: not left(client), lambda: f"transactions {left(client)} do not end")
        drained = ((IN, COPIERS),) if crew.of("copy") else ()
        return History(crew.events(), end_of(client, groups, drained))


def end_of(client: Any, groups: Collection[str], drained: tuple[tuple[str, str], ...] = ()) -> End:
    """What is there when all has ended. ``groups``: those whose offsets count."""
    records = tuple((place, tuple(_records(client, place))) for place in _PLACES)
    return End(records, tuple((group, _offsets(client, group)) for group in groups), drained=drained)


def open_transactions(client: Any, *, hanging: bool) -> list[str]:
    """Transactional ids whose transaction has no end yet, and those that hang in partitions."""
    ended = ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT")
    listed = [one.transactional_id for one in client.admin.list_transactions() if one.state not in ended]
    return listed + ([str(one) for one in client.admin.find_hanging()] if hanging else [])


def _behind(client: Any) -> list[Place]:
    """Partitions of the input whose last record the copiers have not behind them."""
    committed = dict(_offsets(client, COPIERS))
    behind = []
    for place in _PLACES:
        if place[0] == IN:
            last = max((offset for offset, _ in _records(client, place)), default=-1)
            if committed.get(place, 0) <= last:
                behind.append(place)
    return behind


def _records(client: Any, place: Place) -> Iterator[tuple[int, str]]:
    with client.consumer([TopicPartition(*place)], until_end=True) as consumer:
        for record in consumer:
            yield record.offset, record.value.decode()


def _offsets(client: Any, group: str) -> tuple[tuple[Place, int], ...]:
    return tuple(
        ((where.topic, where.partition), point.offset)
        for where, point in client.committed_offsets(group).items()
    )


def _outcome(seed: int, faults: Counter[str], history: History, crew: Crew) -> Outcome:
    facts = facts_of(history)
    polled = sum(
        len(event.records)
        for events in history.processes.values()
        for event in events
        if isinstance(event, Polled)
    )
    return Outcome(
        seed=seed,
        faults=faults,
        values=Counter(facts.outcome(written) for written in facts.written.values()),
        transactions=len(facts.decided),
        polled=polled,
        errors=sum(member.errors for member in crew.members.values()),
        anomalies=check(history),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults at a broker, and a check of what its clients saw.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--cluster", action="store_true", help="three brokers instead of one")
    parser.add_argument("--faults", type=int, help="of each seed; one of each kind if not given")
    parser.add_argument(
        "--only", choices=sorted({*FAULTS, *CLUSTER_FAULTS}), action="append", help="these faults alone"
    )
    parser.add_argument(
        "--job", choices=sorted(set(ROLES.values())), action="append", help="workers of these jobs alone"
    )
    parser.add_argument("--keep", type=Path, help="folder for the events of each seed")
    options = parser.parse_args()
    stage = CLUSTER if options.cluster else BROKER
    count = len(stage.faults) if options.faults is None else options.faults
    wrong = 0
    for seed in range(options.seed, options.seed + options.seeds):
        faults = drawn(seed, count, stage.faults)
        if options.only:
            faults = [options.only[number % len(options.only)] for number in range(count)]
        keep = None if options.keep is None else options.keep / str(seed)
        outcome = run_seed(seed, faults, keep, stage, options.job or frozenset(ROLES.values()))
        sys.stdout.write(f"{outcome}\n")
        for anomaly in outcome.anomalies[:20]:
            sys.stdout.write(f"  {anomaly}\n")
        sys.stdout.flush()
        wrong += len(outcome.anomalies)
    sys.stdout.write(f"{options.seeds} seeds: {wrong or 'no'} anomalies\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
