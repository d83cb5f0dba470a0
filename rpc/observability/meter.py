"""``Meter``: numbers of a broker's calls. Counted in the event loop without a lock; scrapes look from their thread."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from rpc.handlers.call import Call
from rpc.servicers.service import Metadata

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets; one more has none."""
CANCELLED: Final = "Cancelled"
"""Stands for the error of a call that the client gave up."""


@dataclass(slots=True)
class MethodNumbers:
    """Of one method since the start. ``buckets``: unary calls by the time that they were at work, waits left out;
    ``errors``: by name, a small number of names."""

    began: int = 0
    ended: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    worked_s: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    errors: Counter[str] = field(default_factory=Counter)


class Meter:
    """An ``Observer``. As many methods as the contract has: a call of another never gets here."""

    def __init__(self) -> None:
        self._methods: dict[str, MethodNumbers] = {}

    def began(self, call: Call, metadata: Metadata) -> None:
        del metadata
        found = self._methods.get(call.method)
        if found is None:
            found = self._methods[call.method] = MethodNumbers()
        found.began += 1

    def received(self, call: Call, size: int) -> None:
        self._methods[call.method].received_bytes += size

    def sent(self, call: Call, size: int) -> None:
        self._methods[call.method].sent_bytes += size

    def ended(self, call: Call) -> None:
        numbers = self._methods[call.method]
        numbers.ended += 1
        if call.cancelled:
            numbers.errors[CANCELLED] += 1
        elif call.error is not None:
            numbers.errors[type(call.error).__name__] += 1
        if not call.stream:
            worked_s = max(call.took_s - call.waited_s, 0.0)
            numbers.worked_s += worked_s
            numbers.buckets[bisect_left(BOUNDS_S, worked_s)] += 1

    def methods(self) -> dict[str, MethodNumbers]:
        """By "package.Service/Method". From any thread: each number is of some moment of now."""
        return dict(self._methods)
