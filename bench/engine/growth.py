"""Cost as the work grows: nanoseconds a record at three sizes, and the largest against the smallest."""

from __future__ import annotations

from collections.abc import Iterator

from bench import ours
from bench.harness import Bench, Row, alone, compared, rates
from bench.workload import unkeyed

QUESTION = "growth"
NANOSECONDS = 1e9


def run(bench: Bench) -> Iterator[Row]:
    small = bench.size(30_000, 20_000)
    sizes = (small, small * 6, small * 36)
    rows = {size: unkeyed(size, 100) for size in sizes}
    for verb, side in (("send_many", ours.send_many), ("poll", None)):
        sides = {f"{size}": side(rows[size], 500) if side else ours.poll(rows[size]) for size in sizes}
        seen = rates(bench, sides, rounds=3)
        costs = {name: [1 / rate for rate in figures] for name, figures in seen.items()}
        for size in sizes[:-1]:
            case = f"{verb}, {size:,} records"
            yield alone(QUESTION, case, costs[f"{size}"], unit="ns a record", scale=NANOSECONDS)
        yield compared(
            QUESTION,
            f"{verb}, {sizes[-1]:,} records",
            costs,
            ours=f"{sizes[-1]}",
            peer=f"{sizes[0]}",
            unit="ns a record",
            scale=NANOSECONDS,
            note=f"peer: ourselves with {sizes[0]:,}; flat is 1.0",
        )
