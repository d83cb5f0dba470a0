"""``send`` one record at a time, every delivery kept, against one INSERT at a time."""

from __future__ import annotations

from collections.abc import Iterator

from bench import ours, peers
from bench.harness import Bench, Row, alone, compared, rates
from bench.workload import keyed, unkeyed, with_headers

QUESTION = "send, one at a time"
THOUSAND = 1e-3
KEPT = "deliveries kept, garbage collector on"


def run(bench: Bench) -> Iterator[Row]:
    count = bench.size(500_000, 150_000)
    rows = unkeyed(count, 100)
    sides = {
        "plain": ours.send(rows),
        "SQLite": peers.sqlite_one_at_a_time(rows, 500),
        "header": ours.send(with_headers(rows, 1)),
        "keyed": ours.send(keyed(count, 100), partitions=8),
        "all": ours.send(rows, acks="all", defaults=True),
    }
    figures = rates(bench, sides)
    case = "100 B, no key, acks=1"
    yield alone(QUESTION, case, figures["plain"], unit="k/s", scale=THOUSAND, at_least=1500, note=KEPT)
    yield compared(
        QUESTION,
        case,
        figures,
        ours="plain",
        peer="SQLite",
        unit="k/s",
        scale=THOUSAND,
        at_least=1.0,
        note=f"page cache; SQLite: INSERT each, COMMIT every 500; {KEPT}",
    )
    for name, what, target in (
        ("header", "100 B, one header, acks=1", 800),
        ("keyed", "100 B, keys over 8 partitions, acks=1", 1200),
        ("all", "100 B, no key, acks=all", None),
    ):
        note = f"each batch synced; {KEPT}" if name == "all" else KEPT
        yield alone(QUESTION, what, figures[name], unit="k/s", scale=THOUSAND, at_least=target, note=note)
