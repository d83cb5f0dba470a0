"""Reading all of it: consumers, ``records()`` and Arrow against the peers' scans."""

from __future__ import annotations

from collections.abc import Iterator

from bench import ours, peers
from bench.harness import Bench, Row, alone, compared, rates
from bench.workload import keyed, unkeyed, with_headers

QUESTION = "consume"
THOUSAND = 1e-3
WARM = "files in the page cache, CRC checked"


def run(bench: Bench) -> Iterator[Row]:
    count = bench.size(300_000, 100_000)
    plain, keys = unkeyed(count, 100), keyed(count, 100)
    sides = {
        "poll, keys": ours.poll(keys, partitions=8),
        "iteration, keys": ours.iterate(keys, partitions=8),
        "poll, header": ours.poll(with_headers(plain, 1)),
        "records(), no key": ours.records(plain),
        "records(), keys": ours.records(keys),
        "to_arrow(), no key": ours.arrow(plain),
        "to_arrow(), keys": ours.arrow(keys),
        "SQLite": peers.sqlite_scan(plain),
        "LMDB": peers.lmdb_scan(plain),
        "RocksDB": peers.rocksdb_scan(plain),
    }
    targets = {"poll, keys": 1000, "poll, header": 600, "to_arrow(), no key": 3000, "to_arrow(), keys": 3000}
    figures = rates(bench, sides)
    for name in sides:
        if name in ("SQLite", "LMDB", "RocksDB"):
            continue
        yield alone(
            QUESTION,
            f"{name}, 100 B",
            figures[name],
            unit="k/s",
            scale=THOUSAND,
            at_least=targets.get(name),
            note=f"{WARM}{', 500 a poll' if name.startswith('poll') else ''}",
        )
    for peer in ("SQLite", "LMDB", "RocksDB"):
        yield compared(
            QUESTION,
            "records(), no key, 100 B",
            figures,
            ours="records(), no key",
            peer=peer,
            unit="k/s",
            scale=THOUSAND,
            note="full scan; peers check no checksum of each row",
        )
