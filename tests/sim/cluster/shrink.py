"""``shrunk``: of the faults of a seed that fails, as few as still make it fail.

Chunks of faults are left out, large ones first, then single ones, until none can go. What a run breaks may change on
the way: any broken property counts. A fault that is left out takes its pause with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def shrunk(
    numbers: Sequence[int], fails: Callable[[Sequence[int]], bool], most_runs: int = 80
) -> tuple[list[int], int]:
    """``fails(numbers)``: whether a run with these faults alone fails; the whole of them does. The fewest found, and in
    how many runs."""
    left, runs = list(numbers), 0
    size = max(len(left) // 2, 1)
    while runs < most_runs:
        start, went = 0, False
        while start < len(left) and runs < most_runs:
            without = left[:start] + left[start + size :]
            runs += 1
            if fails(without):
                left, went = without, True
            else:
                start += size
        if not went:
            if size == 1:
                break
            size = max(size // 2, 1)
    return left, runs
