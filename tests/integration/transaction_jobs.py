"""What the tests of transactions run in other processes: ``python -m tests.integration.transaction_jobs JOB ...``."""

from __future__ import annotations

import sys
from collections.abc import Callable

from logstore.errors import LogStoreError, ProducerFencedError
from logstore.store import LogStore
from logstore.types import TopicPartition
from tests.workers import say


def stay_open(root: str, transactional_id: str) -> None:
    """Open a transaction with two records and an offset; then commit at "commit", end at the end of input."""
    with LogStore(root, lock_idle_release_s=0.3) as store:
        producer = store.producer(transactional_id=transactional_id)
        tx = producer.begin()
        for partition in (0, 1):
            tx.send("out", b"%s %d" % (transactional_id.encode(), partition), partition=partition).result(30)
        tx.commit_offsets("g", {TopicPartition("in", 0): 5})
        say("open")
        for line in sys.stdin:
            if line.strip() == "commit":
                try:
                    tx.commit()
                    say("committed")
                except ProducerFencedError as error:
                    say("fenced", error)
    say("closed")


JOBS: dict[str, Callable[..., None]] = {"stay_open": stay_open}

if __name__ == "__main__":
    try:
        JOBS[sys.argv[1]](*sys.argv[2:])
    except LogStoreError as error:
        say("failed", type(error).__name__, error)
        raise
