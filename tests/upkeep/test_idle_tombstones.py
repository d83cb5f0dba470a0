"""Tombstones, markers and aborted data of a compacted topic that no process writes any more go in their time."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.format.batch import iter_headers
from logstore.log.cleaning.cleaning import Cleaning
from logstore.store import LogStore
from tests.upkeep.test_cleaner import Desk

SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "segment.ms": "1000",
    "delete.retention.ms": "2000",
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "0",
    "producer.id.expiration.ms": "100000",
}


def engine(*parts: Any) -> Cleaning:
    return Cleaning(*parts)


def opened(desk: Desk, **settings: Any) -> LogStore:
    store = desk.open(cleaner_duty=1.0, **settings)
    store._cleaning.kit.make = engine
    return store


def fill(store: LogStore) -> None:
    """Committed and aborted transactions, tombstones for some keys, and two segments of one key behind them."""
    store.create_topic("t", 1, SETTINGS)
    with store.producer(transactional_id="x", clock=store._clock) as producer:
        for number in range(9):
            with producer.transaction() as tx:
                tx.send_many("t", [(b"k%d" % key, b"%d" % number) for key in range(5)])
                if number % 3 == 2:
                    tx.abort()
        with producer.transaction() as tx:
            tx.send_many("t", [(b"k%d" % key, None) for key in range(4)])
    for _ in range(2):
        store.partition("t", 0).append([(b"k9", b"z" * 900)])


def rows(store: LogStore, isolation: str = "read_committed") -> list[tuple[bytes | None, bytes | None]]:
    log = store.partition("t", 0)
    found = log.records(log.log_start_offset, isolation=isolation)  # type: ignore[arg-type]
    return [(record.key, record.value and record.value[:2]) for record in found]


def left(store: LogStore) -> list[Any]:
    """Headers of all batches that still say something: records, a producer, a marker."""
    data = b"".join(
        segment.bytes_at(0, segment.size) for segment in store._registry.get("t").reader(0).segments.segments
    )
    return [header for _, header in iter_headers(data) if header.records_count or header.producer_id >= 0]


WANTED = [(b"k4", b"7"), (b"k9", b"zz")]


def is_bare(store: LogStore) -> bool:
    """No tombstone, aborted record or empty batch is left, and of ten markers the one whose record is."""
    kinds = [(header.is_control, header.records_count) for header in left(store)]
    return kinds == [(False, 1), (True, 1), (False, 1)] and rows(store, "read_uncommitted") == WANTED


@pytest.mark.parametrize("life", ["one process", "given up", "another process", "a process a minute"])
def test_they_go_without_any_further_write(life: str) -> None:
    desk = Desk()
    settings = {"lock_idle_release_s": 10.0} if life == "given up" else {}
    store = opened(desk, **settings)
    fill(store)
    assert (b"k0", None) in rows(store)
    if life == "another process":
        desk.run(store, 1_500)
        assert (b"k0", None) in rows(store), "a cleaning has stamped them, and their time has not come"
        store.close()
        store = opened(desk)
    if life == "a process a minute":
        for _ in range(12):
            store.close()
            desk.clock.advance(30_000)
            store = opened(desk)
    else:
        desk.run(store, 400_000)
    assert rows(store) == WANTED
    assert is_bare(store), left(store)
    store.close()
    with opened(desk) as again:
        again.partition("t", 0).append([(b"k9", b"aa")])
        assert rows(again) == [*WANTED, (b"k9", b"aa")]
