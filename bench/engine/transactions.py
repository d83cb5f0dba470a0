"""What transactions cost a copy: read, write and commit offsets in one, against the same without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import logstore
from bench import ours
from bench.harness import Bench, Row, Run, Side, compared, rates
from bench.workload import unkeyed

QUESTION = "cost of transactions"
THOUSAND = 1e-3
WITH, WITHOUT = "transactional", "plain"
TARGET = "copy"


def copying(records: int, each: int, *, transactional: bool) -> Side:
    """A copy of ``records`` records of 100 B in portions of ``each``; both sides make every portion and its offsets
    durable before the next one, so that a crash costs either at most a portion, the plain one doubled."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder) as store:
            store.create_topic(ours.TOPIC)
            store.create_topic(TARGET)
            with store.producer() as producer:
                producer.send_many(ours.TOPIC, unkeyed(records, 100)).result(60)
            groups = count()
            with store.producer(transactional_id="copy" if transactional else None) as producer:

                def run() -> int:
                    done = 0
                    group = f"copy-{next(groups)}"
                    with store.consumer(ours.TOPIC, group=group, until_end=True) as consumer:
                        while found := consumer.poll(each, timeout_s=30):
                            rows = [(record.key, record.value) for record in found]
                            if transactional:
                                with producer.transaction(rewind=consumer) as tx:
                                    tx.send_many(TARGET, rows)
                                    tx.send_offsets(consumer)
                            else:
                                producer.send_many(TARGET, rows).result(60)
                                consumer.commit()
                            done += len(found)
                    return done

                yield run

    return side


def run(bench: Bench) -> Iterator[Row]:
    for each, target in ((100, None), (1_000, 0.5), (10_000, None)):
        records = bench.size(20 * each, 8 * each) if each > 100 else bench.size(6_000, 2_000)
        sides = {
            WITH: copying(records, each, transactional=True),
            WITHOUT: copying(records, each, transactional=False),
        }
        yield compared(
            QUESTION,
            f"copy, {each} records a transaction, 100 B",
            rates(bench, sides),
            ours=WITH,
            peer=WITHOUT,
            unit="k/s",
            scale=THOUSAND,
            at_least=target,
            note="peer: the same copy with plain sends and commits, each portion synced",
        )
