"""Seeds of the whole cluster: ``python -m tests.sim.cluster --seed N [--seeds M] [--nodes 3|5] [--shrink]``."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.sim.cluster.coverage import STATES, table
from tests.sim.cluster.run import Outcome, run_seed
from tests.sim.cluster.shrink import shrunk


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--nodes", type=int, choices=(3, 5))
    parser.add_argument("--only", help="numbers of the faults that are left, with commas between")
    parser.add_argument("--shrink", action="store_true", help="of a seed that fails, find the fewest faults")
    parser.add_argument("--trace", help="a file for the trace of the last seed")
    parser.add_argument("--witnessed", action="store_true", help="with traps, and a client that springs them")
    parser.add_argument("--go-on", action="store_true", help="with the next seed after one that fails")
    given = parser.parse_args(words)
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    hits: Counter[tuple[str, str]] = Counter()
    failed = looks = turns = 0
    began_s = time.monotonic()
    for seed in range(given.seed, given.seed + given.seeds):
        lines: list[str] | None = [] if given.trace else None
        only = None if given.only is None else [int(one) for one in given.only.split(",") if one]
        outcome = run_seed(seed, nodes=given.nodes, only=only, lines=lines, witnessed=given.witnessed)
        counts += outcome.counts
        hits += outcome.hits
        looks, turns = looks + outcome.looks, turns + outcome.turns
        if given.trace and lines is not None:
            with open(given.trace, "w", encoding="utf-8") as file:
                file.writelines(lines)
        if outcome.broken:
            failed += 1
            sys.stdout.write(f"seed {seed} ({outcome.nodes} nodes): {outcome.broken}\n")
            if given.shrink:
                sys.stdout.write(
                    "\n".join(_smaller(seed, given.nodes, only, outcome, witnessed=given.witnessed)) + "\n"
                )
            if not given.go_on:
                break
        elif given.seeds == 1:
            sys.stdout.write(
                f"seed {seed} ({outcome.nodes} nodes): no property broken, trace {outcome.trace}\n"
            )
    took_s = time.monotonic() - began_s
    sys.stdout.write(
        f"seeds {given.seed} to {seed}: {failed} failed; {looks:,} looks at replicas, {turns:,} turns, {took_s:.0f} s\n"
    )
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"  {name}: {count:,}\n")
    sys.stdout.write("\n".join(table(hits, STATES)) + "\n")
    return 1 if failed else 0


def _smaller(
    seed: int, nodes: int | None, only: list[int] | None, outcome: Outcome, *, witnessed: bool
) -> list[str]:
    """How to see it with fewer faults."""
    numbers = list(range(len(outcome.faults))) if only is None else only

    def run(some: Sequence[int]) -> Outcome:
        return run_seed(seed, nodes=nodes, only=some, witnessed=witnessed)

    left, runs = shrunk(numbers, lambda some: bool(run(some).broken))
    told = run(left)
    words = f"--seed {seed} --only {','.join(map(str, left)) or ','}" + (f" --nodes {nodes}" if nodes else "")
    words += " --witnessed" if witnessed else ""
    return [
        f"{len(left)} of {len(numbers)} faults, after {runs} runs: {told.broken}",
        *(f"  {fault}" for fault in told.faults),
        f"  python -m tests.sim.cluster {words}",
    ]


if __name__ == "__main__":
    sys.exit(main())
