from collections.abc import Callable
from typing import Any

from logstore.types import Buffer, Record

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def decode_rows(
    section: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    topic: str,
    partition: int,
    log_append_ms: int | None,
) -> list[Record]: ...
