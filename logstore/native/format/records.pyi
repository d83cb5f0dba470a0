from collections.abc import Callable
from typing import Any

from logstore.types import Buffer
from logstore.types import Record as Record

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
def check_records(section: Buffer, count: int, need_key: bool) -> None: ...
def newest_record(section: Buffer, count: int, base_timestamp: int) -> tuple[int, int]: ...
