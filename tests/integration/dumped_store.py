"""A store with all that Kafka's dump tool can look into: codecs, epochs, transactions, snapshots, a cleaned topic."""

from __future__ import annotations

from pathlib import Path

import logstore
from logstore import LogStore
from logstore.format.batch import encode_batch
from logstore.types import Row

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIG = {"segment.bytes": "4096", "index.interval.bytes": "256"}
TXN, SQUEEZED = "txn", "squeezed"
NOW_MS = 1_700_000_000_000


def make(root: Path) -> None:
    """Several segments of each topic, an epoch change, times out of order."""
    for epoch in range(2):
        with logstore.open(root) as store:
            for codec in CODECS:
                if epoch == 0:
                    store.create_topic(codec, config=CONFIG)
                _fill(store, codec, epoch)
    with logstore.open(root) as store:
        config = CONFIG | {"segment.ms": str(10**13)}  # markers have the time of today
        store.create_topic(TXN, config=config)
        store.create_topic(SQUEEZED, config=config | {"cleanup.policy": "compact"})
        Producers(store, TXN).run(rounds=60)
        squeezed = Producers(store, SQUEEZED)
        squeezed.run(rounds=30)
        for key in range(6):
            store.partition(SQUEEZED, 0).append([(b"key %d" % key, None)] * 3)
        store.admin.compact(SQUEEZED, roll=True)
        squeezed.run(rounds=5)


def _fill(store: LogStore, codec: str, epoch: int) -> None:
    with store.producer(compression=codec, linger_ms=0) as producer:
        for number in range(40):
            time_ms = NOW_MS + epoch * 1_000_000 + number * 10 - (number % 3) * 25
            rows: list[Row] = [
                (b"key %d" % n, b"value " * 5, [("leg", b"x"), ("none", None)], time_ms - n) for n in range(5)
            ]
            producer.send_many(codec, rows).result(30)


class Producers:
    """Three producers across one another: two of transactions, every third of them aborted, and a plain one."""

    def __init__(self, store: LogStore, topic: str) -> None:
        self._log = store.partition(topic, 0)
        self._sequences = {7: 0, 8: 0, 9: 0}

    def run(self, rounds: int) -> None:
        for number in range(rounds):
            for producer_id in (7, 8, 9, 7):
                self._send(producer_id, number)
            self._log.end_transaction(7, 0, commit=number % 3 != 0, coordinator_epoch=2)
            self._log.end_transaction(8, 0, commit=number % 3 != 1)

    def _send(self, producer_id: int, number: int) -> None:
        rows: list[Row] = [
            (b"key %d" % ((number + n) % 20), b"%d of %d" % (number, producer_id)) for n in range(3)
        ]
        data = encode_batch(
            rows,
            now_ms=NOW_MS + number,
            codec="zstd" if producer_id == 8 else "none",
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self._sequences[producer_id],
            transactional=producer_id != 9,
        )
        self._sequences[producer_id] += len(rows)
        self._log.append_batch(data)
