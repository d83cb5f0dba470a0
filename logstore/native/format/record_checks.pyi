from collections.abc import Callable
from typing import Any

from logstore.types import Buffer

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def check_records(section: Buffer, count: int, need_key: bool) -> None: ...
def newest_record(section: Buffer, count: int, base_timestamp: int) -> tuple[int, int]: ...
