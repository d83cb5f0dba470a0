"""Quotas for tests, on a clock that is moved by hand."""

from __future__ import annotations

from dataclasses import dataclass

from rpc.handlers.quota import Quota
from rpc.handlers.waits import Waits
from rpc.quota_rules import Direction, QuotaRules, parse_overrides


@dataclass
class Hands:
    """A clock."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def quota(
    rate: int = 0,
    overrides: str = "",
    *,
    clock: Hands | None = None,
    burst_s: float = 1.0,
    most_callers: int = 100,
    direction: Direction = "produce",
    waits: Waits | None = None,
) -> Quota:
    rules = QuotaRules({"produce": rate, "fetch": rate}, parse_overrides(overrides))
    return Quota(direction, rules, burst_s, most_callers, waits or Waits(), clock or Hands())


def unlimited() -> Quota:
    return quota()
