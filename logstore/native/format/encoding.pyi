from collections.abc import Callable, Sequence
from typing import Any

from logstore.format.batch import BatchHeader
from logstore.format.record import EncodedRows
from logstore.types import Buffer, Row

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def encode_rows(rows: Sequence[Row], now_ms: int) -> EncodedRows: ...
def encode_with_header(
    rows: Sequence[Row],
    now_ms: int,
    codec: str = "none",
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> tuple[bytes, BatchHeader]: ...
def stamped(buffer: Buffer, base_offset: int, leader_epoch: int) -> bytes: ...
