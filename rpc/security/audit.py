"""``AuditLog``: who did what on what, through which connection, and whether it was allowed: the logger
``logstore.audit``.

Refusals are warnings, administration and log-ins are told. Names that come from callers are quoted, so that they cannot
forge a line; credentials are never among them.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from rpc.handlers.caller import Caller, Operation, Resource

logger = logging.getLogger("logstore.audit")

_BURST: Final = 100
_PER_S: Final = 20.0
_MAX_TEXT: Final = 300


class AuditLog:
    """Thread-safe. Refusals are bounded to ``burst`` at once and ``per_s`` in the long run: how many were left out is
    told with the next one."""

    def __init__(
        self,
        *,
        burst: int = _BURST,
        per_s: float = _PER_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst = float(burst)
        self._per_s = per_s
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._room = self._burst
        self._seen_s = monotonic_s()
        self._left_out = 0

    def denied(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        self._refuse("denied", f"{_asked(operation, resource, name)} {_by(caller)}")

    def refused(self, connection: str, reason: str) -> None:
        """Credentials that were not taken."""
        self._refuse("refused", f"reason={_quoted(reason)} connection={_quoted(connection)}")

    def allowed(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        logger.info("allowed %s %s", _asked(operation, resource, name), _by(caller))

    def changed(self, caller: Caller, what: str) -> None:
        """Rules or users."""
        logger.info("changed %s %s", what, _by(caller))

    def logged_in(self, principal: str, connection: str) -> None:
        logger.info("logged-in principal=%s connection=%s", _quoted(principal), _quoted(connection))

    def _refuse(self, kind: str, text: str) -> None:
        with self._lock:
            now_s = self._monotonic_s()
            self._room = min(self._room + (now_s - self._seen_s) * self._per_s, self._burst)
            self._seen_s = now_s
            if self._room < 1:
                self._left_out += 1
                return
            self._room -= 1
            left_out, self._left_out = self._left_out, 0
        more = f" left-out={left_out}" if left_out else ""
        logger.warning("%s %s%s", kind, text, more)


def _asked(operation: Operation, resource: Resource, name: str) -> str:
    return f"operation={operation} resource={resource} name={_quoted(name)}"


def _by(caller: Caller) -> str:
    return (
        f"principal={_quoted(caller.principal)} connection={_quoted(caller.connection)} "
        f"client={_quoted(caller.client_id)} request={_quoted(caller.request_id)}"
    )


def _quoted(text: str) -> str:
    """One line of ASCII, whatever is in it."""
    return json.dumps(text[:_MAX_TEXT])
