"""The processes of a campaign: ``python -m tests.history.workers JOB ADDRESS EVENTS NAME SEED PACE``.

Each works until its input ends and notes what it asks for and is told in the file EVENTS. An error is met as a program
of a user's would meet it: the client is closed and made anew. NAME is unique in a campaign, also over restarts; PACE:
seconds between two calls.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import logstore
from logstore.errors import LogStoreError, TransactionTimedOutError
from logstore.types import Record, TopicPartition
from tests.history.events import (
    Acked,
    Begun,
    Decided,
    EventFile,
    Moved,
    OffsetsCommitted,
    Place,
    Polled,
    Reading,
    Send,
)

logger = logging.getLogger(__name__)

IN: Final = "in"
OUT: Final = "out"
PARTITIONS: Final = 3
READERS: Final = "readers"
COPIERS: Final = "copiers"
SESSION_MS: Final = 6_000
TRANSACTION_MS: Final = 8_000
PATIENCE_S: Final = 30.0
_MOST: Final = 200
"""Of records in one call, more than one request takes under way."""


class Work:
    """What a job has: a client, dice, its events, and when it has to end."""

    def __init__(
        self,
        client: Any,
        events: EventFile,
        name: str,
        dice: random.Random,
        stop: threading.Event,
        pace_s: float,
    ) -> None:
        self.client, self.events, self.name, self.dice, self.stop = client, events, name, dice, stop
        self._pace_s = pace_s
        # Workers that have a pace work where retention does, too, which may be faster than they are.
        self.on_reset = "earliest" if pace_s else "error"
        self.numbers = itertools.count()

    def goes_on(self) -> bool:
        """Whether there is more to do; waits for its pace."""
        if self._pace_s:
            self.stop.wait(self._pace_s)
        return not self.stop.is_set()

    def values(self, count: int) -> tuple[str, ...]:
        """New values, unique in the campaign."""
        return tuple(f"{self.name}.{next(self.numbers)}" for _ in range(count))

    def place(self, topic: str) -> Place:
        return topic, self.dice.randrange(PARTITIONS)

    def send(
        self, sender: Any, place: Place, values: tuple[str, ...], transaction: str = ""
    ) -> Callable[[], None]:
        """Give values to a producer or a transaction, one at a time; what is called waits and notes what was said."""
        self.events.note(Send(place, values, transaction))
        given = [sender.send(place[0], value.encode(), partition=place[1]) for value in values]

        def await_all() -> None:
            offsets = [delivery.result(PATIENCE_S).offset for delivery in given]
            self.events.note(Acked(values, tuple(offsets)))

        return await_all


def produce(work: Work) -> None:
    """Idempotent sends to one or several partitions at once."""
    with work.client.producer(linger_ms=work.dice.choice((0, 5)), delivery_timeout_ms=20_000) as producer:
        work.events.note(Begun())
        while work.goes_on():
            count = work.dice.choice((1, 1, 5, _MOST))
            waits = [
                work.send(producer, work.place(IN), work.values(count))
                for _ in range(work.dice.choice((1, 3)))
            ]
            for wait in waits:
                wait()


def transact(work: Work) -> None:
    """Transactions over partitions of both topics; a quarter is aborted."""
    with work.client.producer(transactional_id=_id(work), transaction_timeout_ms=TRANSACTION_MS) as producer:
        work.events.note(Begun())
        while work.goes_on():
            name = f"{work.name}/{next(work.numbers)}"
            transaction = producer.begin()
            for topic in (IN, OUT, IN):
                work.send(transaction, work.place(topic), work.values(work.dice.choice((1, 20))), name)()
            if work.dice.random() < 0.25:
                producer.abort()
                work.events.note(Decided(name, False))
            else:
                _commit(work, producer, name)


def _id(work: Work) -> str:
    """A worker that is started again has the id of the one before it, which it fences."""
    return work.name.rpartition(".")[0]


def _commit(work: Work, producer: Any, name: str) -> None:
    try:
        producer.commit()
    except TransactionTimedOutError:
        work.events.note(Decided(name, False))
        raise
    work.events.note(Decided(name, True))


def _hooks(work: Work, forget: Callable[[], None]) -> dict[str, Callable[[list[TopicPartition]], None]]:
    """``forget``: what was read of partitions that have come or gone is no longer to be committed."""

    def moved(why: str, places: list[TopicPartition]) -> None:
        forget()
        work.events.note(Moved(why))

    return {hook: partial(moved, hook) for hook in ("on_assigned", "on_revoked", "on_lost")}


def _polled(work: Work, consumer: Any) -> list[Record]:
    records: list[Record] = consumer.poll(work.dice.choice((10, 500)), timeout_s=0.5)
    if records:
        work.events.note(
            Polled(
                tuple(
                    ((one.topic, one.partition), one.offset, (one.value or b"").decode()) for one in records
                )
            )
        )
    return records


def _points(records: list[Record]) -> tuple[tuple[Place, int], ...]:
    points: dict[Place, int] = {}
    for record in records:
        points[record.topic, record.partition] = record.offset + 1
    return tuple(points.items())


def read(work: Work) -> None:
    """A member of a group that reads both topics and commits now and then."""
    pending: dict[Place, int] = {}
    settings = {"session_timeout_ms": SESSION_MS, "on_reset": work.on_reset, **_hooks(work, pending.clear)}
    with work.client.consumer([IN, OUT], group=READERS, **settings) as consumer:
        work.events.note(Moved("joined"))
        while work.goes_on():
            pending.update(_points(_polled(work, consumer)))
            if pending and work.dice.random() < 0.3:
                points = dict(pending)
                consumer.commit({TopicPartition(*place): end for place, end in points.items()})
                work.events.note(OffsetsCommitted(READERS, tuple(points.items())))
                pending.clear()


def copy(work: Work) -> None:
    """Reads one topic and writes to the other, each poll a transaction with the group's offsets in it."""
    settings = {"session_timeout_ms": SESSION_MS, "on_reset": work.on_reset, **_hooks(work, lambda: None)}
    with (
        work.client.producer(transactional_id=_id(work), transaction_timeout_ms=TRANSACTION_MS) as producer,
        work.client.consumer(IN, group=COPIERS, **settings) as consumer,
    ):
        work.events.note(Begun())
        work.events.note(Moved("joined"))
        while work.goes_on():
            records = _polled(work, consumer)
            if records:
                _copy_batch(work, producer, consumer, records)


def _copy_batch(work: Work, producer: Any, consumer: Any, records: list[Record]) -> None:
    name = f"{work.name}/{next(work.numbers)}"
    work.events.note(Reading(name, COPIERS, tuple((record.value or b"").decode() for record in records)))
    try:
        with producer.transaction(rewind=consumer) as transaction:
            waits = []
            for number in range(PARTITIONS):
                mine = [record for record in records if record.partition == number]
                if mine:
                    waits.append(work.send(transaction, (OUT, number), work.values(len(mine)), name))
            for wait in waits:
                wait()
            transaction.send_offsets(consumer)
            if work.dice.random() < 0.1:
                raise _ChangedMindError
    except _ChangedMindError:
        work.events.note(Decided(name, False))
        work.events.note(Moved("rewound"))
    else:
        work.events.note(Decided(name, True))
        work.events.note(OffsetsCommitted(COPIERS, _points(records)))


class _ChangedMindError(Exception):
    """Abort this transaction."""


JOBS: Final[dict[str, Callable[[Work], None]]] = {
    job.__name__: job for job in (produce, transact, read, copy)
}


def run(
    job: str, address: str, events: EventFile, name: str, seed: int, stop: threading.Event, pace_s: float
) -> int:
    """Work until ``stop``; how many errors were met."""
    dice = random.Random(seed)
    errors = 0
    with logstore.connect(address, connect_timeout_s=60, request_timeout_s=10) as client:
        work = Work(client, events, name, dice, stop, pace_s)
        while not stop.is_set():
            try:
                JOBS[job](work)
            except LogStoreError as error:
                errors += 1
                logger.info("%s goes on after %s: %s", name, type(error).__name__, error)
                stop.wait(0.05)
    return errors


def main() -> int:
    job, address, path, name, seed, pace = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {name} %(message)s")
    logging.getLogger("logstore").setLevel(logging.ERROR)
    stop = threading.Event()

    def follow() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=follow, daemon=True).start()
    events = EventFile(Path(path))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    errors = run(job, address, events, name, int(seed), stop, float(pace))
    sys.stdout.write(f"ended {errors}\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
