"""Append of ready batches, CRC checked, to the page cache, against the bare ``writev`` of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import logstore
from bench import ours, peers
from bench.harness import Bench, Row, Run, Side, compared, rates
from bench.workload import BATCH_BYTES, ready_batches

QUESTION = "append of ready batches"
MB = 1e-6


def append_batches(batches: Sequence[bytes]) -> Side:
    """``PartitionLog.append_batch``; units are bytes."""

    @contextmanager
    def side(folder: str) -> Iterator[Run]:
        with logstore.open(folder) as store:
            store.create_topic(ours.TOPIC, config=ours.CACHED)
            log = store.partition(ours.TOPIC, 0)
            log.append_batch(batches[0], acks=1)  # takes the topic and makes the first segment

            def run() -> int:
                done = 0
                for batch in batches:
                    log.append_batch(batch, acks=1)
                    done += len(batch)
                return done

            yield run

    return side


def run(bench: Bench) -> Iterator[Row]:
    for value_bytes in (100, 1024):
        for batch_bytes, target in ((BATCH_BYTES, 0.6), (4096, None)):
            total = bench.size(256 << 20, 64 << 20) * batch_bytes // BATCH_BYTES
            batches = ready_batches(max(total, 16 << 20), value_bytes, batch_bytes)
            parts = [(batch[:16], memoryview(batch)[16:]) for batch in batches]
            figures = rates(bench, {"ours": append_batches(batches), "writev": peers.bare_writev(parts)})
            yield compared(
                QUESTION,
                f"{batch_bytes // 1024} KiB of {value_bytes} B records, acks=1",
                figures,
                ours="ours",
                peer="writev",
                unit="MB/s",
                scale=MB,
                at_least=target,
                note="page cache, nothing synced",
            )
