"""``Call``: a caller's call while it is under way, as logs, metrics and traces see it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from logstore.errors import LogStoreError
from rpc.handlers.caller import Caller

NO_CALLER: Final = Caller("")
"""Of a call whose caller is not known yet, or was refused."""


@dataclass(slots=True, eq=False)
class Call:
    """``method``: "package.Service/Method"; ``began_s``: of ``time.perf_counter``; ``waited_s``: how much of its time
    it waited for news or for a quota; ``cancelled``: the client gave it up, or the broker's stop did."""

    method: str
    began_s: float
    stream: bool = False
    caller: Caller = NO_CALLER
    waited_s: float = 0.0
    took_s: float = 0.0
    error: LogStoreError | None = None
    cancelled: bool = False
    ended: bool = False


_CURRENT: Final[ContextVar[Call | None]] = ContextVar("logstore-call", default=None)


def begin(call: Call) -> None:
    """The task at work, and those that it starts, work for this call."""
    _CURRENT.set(call)


def current_call() -> Call | None:
    """The call that the running task works for; None: for none that is still under way."""
    call = _CURRENT.get()
    return None if call is None or call.ended else call
