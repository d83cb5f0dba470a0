"""Hunt all plants, or those whose names hold a word, and print how each was caught: `python -m tests.plants [WORD]`.

Exits with 1 when one was not caught within its number of runs, or when a hunt finds something in the engine as it is.
"""

from __future__ import annotations

import logging
import sys
import time

from tests.plants.all_plants import PLANTS
from tests.plants.plant import finding


def main(words: list[str]) -> int:
    logging.disable(logging.CRITICAL)  # the engine's complaints are wanted here
    chosen = [plant for plant in PLANTS.values() if all(word in plant.name for word in words)]
    failures = 0
    for plant in chosen:
        began_s = time.monotonic()
        caught = plant.hunt()
        took = f"{time.monotonic() - began_s:5.1f} s"
        if caught is None:
            failures += 1
            print(f"{plant.name:45} NOT CAUGHT in {plant.most_runs} runs  {took}", flush=True)
        else:
            print(
                f"{plant.name:45} {caught.runs:3} of {plant.most_runs:3}  {took}  {caught.by}: {caught.how[:90]}",
                flush=True,
            )
    for name, run in {run.name: run for plant in chosen for run in plant.chosen()}.items():
        if found := finding(run):
            failures += 1
            print(f"without a plant {name} finds: {found}", flush=True)
    print(f"{len(chosen)} plants, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
