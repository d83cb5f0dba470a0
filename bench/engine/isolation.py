"""Reading with ``read_committed`` against ``read_uncommitted``: a log without transactions, with committed
ones, and with every tenth aborted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import logstore
from bench import ours
from bench.harness import Bench, Row, Run, Side, compared, rates
from bench.workload import Plain, chunks, unkeyed
from logstore.format.batch import encode_batch
from logstore.types import Isolation

QUESTION = "read_committed"
THOUSAND = 1e-3
BATCH = 500
BATCHES_EACH = 4  # of a transaction
PRODUCER_ID = 7
KINDS = {"no transactions": (False, 0), "committed": (True, 0), "1 in 10 aborted": (True, 10)}


def fill(log: logstore.PartitionLog, rows: Plain, transactions: bool, abort_every: int) -> None:
    """Ready batches, and a marker after every few; ``abort_every``: 10 aborts every tenth transaction."""
    parts = chunks(rows, BATCH)
    now_ms = 1_700_000_000_000
    for number, part in enumerate(parts):
        if not transactions:
            log.append_batch(encode_batch(part, now_ms=now_ms), acks=1)
            continue
        data = encode_batch(
            part,
            now_ms=now_ms,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=number * BATCH,
            transactional=True,
        )
        log.append_batch(data, acks=1)
        if number % BATCHES_EACH == BATCHES_EACH - 1 or number == len(parts) - 1:
            aborted = abort_every > 0 and number // BATCHES_EACH % abort_every == abort_every - 1
            log.end_transaction(PRODUCER_ID, 0, commit=not aborted)
    log.flush()


def read(rows: Plain, kind: str, isolation: Isolation, *, arrow: bool) -> Side:
    """The whole log; units are the records given out."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder) as store:
            store.create_topic(ours.TOPIC, config={"flush.ms": "3600000"})
            log = store.partition(ours.TOPIC, 0)
            fill(log, rows, *KINDS[kind])

            def run() -> int:
                if arrow:
                    return int(log.to_arrow(0, isolation=isolation).num_rows)
                return sum(1 for _record in log.records(0, isolation=isolation))

            yield run

    return side


def run(bench: Bench) -> Iterator[Row]:
    rows = unkeyed(bench.size(200_000, 60_000), 100)
    for arrow, verb in ((False, "records()"), (True, "to_arrow()")):
        for kind in KINDS:
            sides = {
                "committed": read(rows, kind, "read_committed", arrow=arrow),
                "uncommitted": read(rows, kind, "read_uncommitted", arrow=arrow),
            }
            yield compared(
                QUESTION,
                f"{verb}, {kind}",
                rates(bench, sides, rounds=3),
                ours="committed",
                peer="uncommitted",
                unit="k/s",
                scale=THOUSAND,
                note=f"transactions of {BATCH * BATCHES_EACH:,} records of 100 B; records given out a second",
            )
