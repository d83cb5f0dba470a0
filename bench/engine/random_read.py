"""Reads at random offsets: flat as the log grows, and beside the peers' point look-ups."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import logstore
from bench import ours, peers
from bench.harness import Bench, Row, alone, compared, percentile, spread, timed_calls
from bench.workload import ready_batches, unkeyed

QUESTION = "random read by offset"
MICROSECONDS = 1e6
SMALL_BYTES, LARGE_BYTES = 100 << 20, 1 << 30
SEGMENT_BYTES = 64 << 20


@contextmanager
def log_of(folder: str, total_bytes: int) -> Iterator[logstore.PartitionLog]:
    """A partition of about ``total_bytes``, 1 KiB records in 16 KiB batches, segments of 64 MiB."""
    batches = ready_batches(total_bytes, 1024, 16 << 10)
    with logstore.open(folder) as store:
        store.create_topic(ours.TOPIC, config=ours.CACHED | {"segment.bytes": str(SEGMENT_BYTES)})
        log = store.partition(ours.TOPIC, 0)
        for batch in batches:
            log.append_batch(batch, acks=1)
        log.flush()
        yield log


def reader(log: logstore.PartitionLog) -> Callable[[], object]:
    """The whole batch that holds the offset, as bytes."""
    pick, end = random.Random(3), log.high_watermark
    return lambda: log.read(pick.randrange(end), 1)


def one_record(log: logstore.PartitionLog) -> Callable[[], object]:
    """The one record, decoded."""
    pick, end = random.Random(3), log.high_watermark

    def call() -> object:
        offset = pick.randrange(end)
        return list(log.records(offset, offset + 1))

    return call


@contextmanager
def sqlite_point(folder: str, count: int) -> Iterator[Callable[[], object]]:
    database = peers.open_sqlite(folder, durable=False)
    database.execute("BEGIN")
    database.executemany("INSERT INTO log (key, value) VALUES (?, ?)", unkeyed(count, 1024))
    database.execute("COMMIT")
    pick = random.Random(3)
    query = "SELECT key, value FROM log WHERE offset = ?"
    yield lambda: database.execute(query, (pick.randrange(count) + 1,)).fetchone()
    database.close()


@contextmanager
def lmdb_point(folder: str, count: int) -> Iterator[Callable[[], object]]:
    environment = peers.open_lmdb(folder, durable=False)
    with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
        rows = unkeyed(count, 1024)
        cursor.putmulti([(peers.offset_key(at), row[1]) for at, row in enumerate(rows)], append=True)
    pick = random.Random(3)

    def call() -> object:
        with environment.begin() as transaction:
            return transaction.get(peers.offset_key(pick.randrange(count)))

    yield call
    environment.close()


def run(bench: Bench) -> Iterator[Row]:
    with ExitStack() as sides:

        def folder() -> str:
            return sides.enter_context(bench.scratch())

        small = sides.enter_context(log_of(folder(), SMALL_BYTES))
        large = sides.enter_context(log_of(folder(), LARGE_BYTES))
        calls = {
            "small": reader(small),
            "large": reader(large),
            "one small": one_record(small),
            "one large": one_record(large),
            "SQLite": sides.enter_context(sqlite_point(folder(), SMALL_BYTES >> 10)),
            "LMDB": sides.enter_context(lmdb_point(folder(), SMALL_BYTES >> 10)),
        }
        halves, tails = _distributions(calls, bench)
    note = "warm; 1 KiB records in 16 KiB batches, segments of 64 MiB"
    yield compared(
        QUESTION,
        "read(), 1 GB log, p50",
        halves,
        ours="large",
        peer="small",
        unit="us",
        scale=MICROSECONDS,
        at_most=1.25,
        note=f"peer: ourselves, 100 MB log (flat is 1.0); {note}",
    )
    for figures, name, case, target in (
        (halves, "large", "read(), 1 GB log, p50", 60),
        (tails, "large", "read(), 1 GB log, p99", None),
        (halves, "one large", "records(n, n + 1), 1 GB log, p50", None),
        (tails, "one large", "records(n, n + 1), 1 GB log, p99", None),
    ):
        seen = figures[name]
        yield alone(QUESTION, case, seen, unit="us", scale=MICROSECONDS, at_most=target, note=note)
    for peer in ("SQLite", "LMDB"):
        yield compared(
            QUESTION,
            "records(n, n + 1), 100 MB log, p50",
            halves,
            ours="one small",
            peer=peer,
            unit="us",
            scale=MICROSECONDS,
            note="the batch's CRC is checked and its records decoded; peers fetch one row",
        )


def _distributions(
    calls: dict[str, Callable[[], object]], bench: Bench
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """p50 and p99 of each side, one figure a round; the first round warms up."""
    halves: dict[str, list[float]] = {name: [] for name in calls}
    tails: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(bench.rounds + 1):
        for name, call in calls.items():
            took = timed_calls(call, bench.size(5000, 2000))
            if number:
                halves[name].append(spread(took).median)
                tails[name].append(percentile(took, 99))
    return halves, tails
