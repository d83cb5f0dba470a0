"""``send_many`` against the bulk appends of LMDB, RocksDB and SQLite."""

from __future__ import annotations

from collections.abc import Iterator

from bench import ours, peers
from bench.harness import Bench, Row, alone, compared, rates
from bench.workload import Plain, keyed, unkeyed

QUESTION = "send_many"
BATCH = 500
THOUSAND = 1e-3
PROMISE = "page cache, 500 a call or transaction"


def run(bench: Bench) -> Iterator[Row]:
    yield from _case(bench, "100 B, no key", unkeyed(bench.size(500_000, 200_000), 100), 1, 1.0)
    yield from _case(bench, "100 B, keys over 8 partitions", keyed(bench.size(500_000, 200_000), 100), 8, 1.0)
    yield from _case(bench, "1 KiB, no key", unkeyed(bench.size(100_000, 30_000), 1024), 1, None)
    rows = unkeyed(bench.size(500_000, 200_000), 100)
    figures = rates(
        bench,
        {
            "acks=all": ours.send_many(rows, BATCH, acks="all", defaults=True),
            "acks=1": ours.send_many(rows, BATCH, defaults=True),
        },
    )
    for acks, seen in figures.items():
        note = "topic defaults: " + ("each batch synced" if acks == "acks=all" else "synced every 100 ms")
        yield alone(QUESTION, f"100 B, no key, {acks}", seen, unit="k/s", scale=THOUSAND, note=note)


def _case(bench: Bench, case: str, rows: Plain, partitions: int, target: float | None) -> Iterator[Row]:
    figures = rates(
        bench,
        {
            "ours": ours.send_many(rows, BATCH, partitions=partitions),
            "LMDB": peers.lmdb_append(rows, BATCH),
            "LMDB put()": peers.lmdb_put(rows, BATCH),
            "RocksDB": peers.rocksdb_append(rows, BATCH),
            "SQLite": peers.sqlite_append(rows, BATCH),
        },
    )
    for peer in ("LMDB", "LMDB put()", "RocksDB", "SQLite"):
        yield compared(
            QUESTION,
            f"{case}, acks=1",
            figures,
            ours="ours",
            peer=peer,
            unit="k/s",
            scale=THOUSAND,
            at_least=target if peer.startswith("LMDB") else None,
            note=f"{PROMISE}; LMDB takes ready keys in one putmulti()" if peer == "LMDB" else PROMISE,
        )
