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
    headers, large = with_headers(plain, 1), keyed(count // 10, 1024)
    sides = {
        "poll, keys, 100 B": ours.poll(keys, partitions=8),
        "iteration, keys, 100 B": ours.iterate(keys, partitions=8),
        "poll, header, 100 B": ours.poll(headers),
        "poll, keys, 1 KiB": ours.poll(large),
        "records(), no key, 100 B": ours.records(plain),
        "records(), keys, 100 B": ours.records(keys),
        "records(), header, 100 B": ours.records(headers),
        "to_arrow(), no key, 100 B": ours.arrow(plain),
        "to_arrow(), keys, 100 B": ours.arrow(keys),
        "to_arrow(), header, 100 B": ours.arrow(headers),
        "to_arrow(), keys, 1 KiB": ours.arrow(large),
        "SQLite": peers.sqlite_scan(plain),
        "LMDB": peers.lmdb_scan(plain),
        "RocksDB": peers.rocksdb_scan(plain),
    }
    targets = {
        "poll, keys, 100 B": 3000,
        "poll, header, 100 B": 2000,
        "poll, keys, 1 KiB": 700,
        "records(), keys, 100 B": 4000,
        "records(), header, 100 B": 2000,
        "to_arrow(), no key, 100 B": 10_000,
        "to_arrow(), keys, 100 B": 10_000,
        "to_arrow(), header, 100 B": 4000,
        "to_arrow(), keys, 1 KiB": 1000,
    }
    figures = rates(bench, sides)
    for name in sides:
        if name in ("SQLite", "LMDB", "RocksDB"):
            continue
        yield alone(
            QUESTION,
            name,
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
            ours="records(), no key, 100 B",
            peer=peer,
            unit="k/s",
            scale=THOUSAND,
            at_least=0.8 if peer == "LMDB" else None,
            note="full scan; peers check no checksum of each row",
        )
