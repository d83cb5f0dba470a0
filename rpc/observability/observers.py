"""``Observers``: several observers of calls as one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rpc.handlers.call import Call
from rpc.servicers.service import Metadata, Observer


class Observers:
    """An ``Observer``; they are told in order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def began(self, call: Call, metadata: Metadata) -> None:
        for one in self._observers:
            one.began(call, metadata)

    def received(self, call: Call, size: int) -> None:
        for one in self._observers:
            one.received(call, size)

    def sent(self, call: Call, size: int) -> None:
        for one in self._observers:
            one.sent(call, size)

    def ended(self, call: Call) -> None:
        for one in self._observers:
            one.ended(call)


def is_traced() -> bool:
    """Whether the process has loaded opentelemetry, so that it may have a tracer provider: to load it for nothing would
    take a tenth of a broker's start."""
    return "opentelemetry" in sys.modules
