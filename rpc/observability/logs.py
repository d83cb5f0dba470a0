"""A broker's logs: text or JSON lines, with the call that a line belongs to; and ``RequestLog``, of slow calls."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from rpc.handlers.call import Call, current_call
from rpc.servicers.service import Metadata

logger = logging.getLogger(__name__)

TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)
FIELDS: Final = "fields"
"""``logger.info(..., extra={FIELDS: {...}})``: more fields of a line."""
_MOST_PER_S: Final = 10


def configure_logging(log_format: str) -> None:
    """Of the process: to stderr, from INFO on. It stays as it is where somebody has configured it before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == JSON else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def call_fields(call: Call | None) -> dict[str, str]:
    """What a line says of the call that it belongs to."""
    if call is None:
        return {}
    caller = call.caller
    fields = {
        "request_id": caller.request_id,
        "method": call.method,
        "principal": caller.principal,
        "client_id": caller.client_id,
        "error": "" if call.error is None else type(call.error).__name__,
    }
    return {name: text for name, text in fields.items() if text}


class TextFormatter(logging.Formatter):
    """Lines for people; what callers chose is quoted, and stands on one line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        text = super().formatMessage(record)
        fields = call_fields(current_call())
        if not fields:
            return text
        return f"{text} [{' '.join(f'{name}={json.dumps(value)}' for name, value in fields.items())}]"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message; of a call: request_id, method, principal, client_id, error;
    ``exception`` with the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **call_fields(current_call()),
        }
        more = getattr(record, FIELDS, None)
        if isinstance(more, dict):
            line |= more
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
            line.setdefault("error", getattr(record.exc_info[0], "__name__", ""))
        return json.dumps(line, ensure_ascii=False, default=str)


class RequestLog:
    """An ``Observer``: tells of unary calls that worked longer than ``slow_s``, waits left out. At most ten lines a
    second: how many more there were is told with the next one."""

    def __init__(self, slow_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._slow_s = slow_s
        self._now_s = now_s
        self._second = -1
        self._told = 0
        self._left_out = 0

    def began(self, call: Call, metadata: Metadata) -> None:
        del call, metadata

    def received(self, call: Call, size: int) -> None:
        del call, size

    def sent(self, call: Call, size: int) -> None:
        del call, size

    def ended(self, call: Call) -> None:
        worked_s = call.took_s - call.waited_s
        if call.stream or worked_s <= self._slow_s:
            return
        second = int(self._now_s())
        if second != self._second:
            self._second, self._told = second, 0
        if self._told >= _MOST_PER_S:
            self._left_out += 1
            return
        self._told += 1
        left_out, self._left_out = self._left_out, 0
        others = f"; {left_out} more were not told" if left_out else ""
        fields = {"worked_s": round(worked_s, 6), "waited_s": round(call.waited_s, 6), "left_out": left_out}
        logger.warning(
            "slow: %s worked for %.3f s, and waited for %.3f s%s",
            call.method,
            worked_s,
            call.waited_s,
            others,
            extra={FIELDS: fields},
        )
