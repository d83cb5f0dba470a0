"""The table of faults against what the nodes that they hit were doing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.sim.cluster.world import STATES

__all__ = ["STATES", "table"]


def table(hits: Counter[tuple[str, str]], states: Sequence[str]) -> list[str]:
    lines = [f"| fault | {' | '.join(states)} |", f"|---|{'---:|' * len(states)}"]
    for fault in sorted({fault for fault, _ in hits}):
        cells = " | ".join(f"{hits[fault, state]:,}" for state in states)
        lines.append(f"| {fault} | {cells} |")
    return lines
