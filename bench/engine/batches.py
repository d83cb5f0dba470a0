"""Size of the batch against speed: ``append`` of 1, 100 and 1,000 rows, and reading them back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import logstore
from bench import ours, peers
from bench.harness import Bench, Row, Run, Side, alone, compared, rates
from bench.workload import Plain, chunks, unkeyed

QUESTION = "batch size"
THOUSAND = 1e-3
SIZES = (1, 100, 1_000)


def read_back(rows: Plain, batch: int) -> Side:
    """``records()`` over a log whose batches hold ``batch`` records."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder) as store:
            store.create_topic(ours.TOPIC, config=ours.CACHED)
            log = store.partition(ours.TOPIC, 0)
            for call in chunks(rows, batch):
                log.append(call, acks=1)

            def run() -> int:
                return sum(1 for _record in log.records(0))

            yield run

    return side


def run(bench: Bench) -> Iterator[Row]:
    for value_bytes in (100, 1024):
        for batch in SIZES:
            most = 300_000 if value_bytes == 100 else 100_000
            rows = unkeyed(min(most, bench.size(40_000, 15_000) * (1 if batch == 1 else 10)), value_bytes)
            sides = {
                "append": ours.append_rows(rows, batch),
                "read": read_back(rows, batch),
                "SQLite": peers.sqlite_append(rows, batch),
                "LMDB": peers.lmdb_append(rows, batch),
            }
            figures = rates(bench, sides, rounds=3)
            for peer in ("SQLite", "LMDB"):
                yield compared(
                    QUESTION,
                    f"append() of {batch:,} x {value_bytes} B, acks=1",
                    figures,
                    ours="append",
                    peer=peer,
                    unit="k/s",
                    scale=THOUSAND,
                    note="page cache; the peer's transaction holds as many rows",
                )
            case = f"records(), batches of {batch:,} x {value_bytes} B"
            yield alone(QUESTION, case, figures["read"], unit="k/s", scale=THOUSAND)
