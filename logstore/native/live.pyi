from collections.abc import Callable
from typing import Any

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def write_slot(
    fd: int,
    place: int,
    known: tuple[bytes, bytes] | None,
    log_start: int,
    high_watermark: int,
    last_stable: int,
    log_end: int,
    segment_base: int,
    end_position: int,
    leader_epoch: int,
) -> tuple[int, bytes, bytes] | None: ...
