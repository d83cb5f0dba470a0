"""What a store costs that is asked for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from bench import child
from bench.harness import Bench, Row, alone

QUESTION = "idle"
SIZES = (100, 300, 1_000)
KINDS = {
    True: ("idle partitions, all owned", ", from 6 s after the last record on"),
    False: (
        "partitions after their last record",
        ", from 3 s after it: recovery points, then the topics are given up",
    ),
}
"""By whether the topics are pinned, as those of a service or a broker are: name and note."""


def run(bench: Bench) -> Iterator[Row]:
    for partitions in SIZES:
        with bench.scratch() as folder:
            child.call("fill_partitions", folder=folder, partitions=partitions)
            seconds = 4.0 if bench.quick else 8.0
            for pinned, (name, note) in KINDS.items():
                shares = [
                    child.call("idle", folder=folder, seconds=seconds, pinned=pinned)["share"]
                    for _ in range(2)
                ]
                yield alone(
                    QUESTION,
                    f"{partitions:,} {name}",
                    shares,
                    unit="% of a core",
                    scale=100,
                    at_most=1.0 if partitions == 1_000 else None,
                    note=f"processor time of the process over {seconds:g} s{note}",
                )
