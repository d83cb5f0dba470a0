from collections.abc import Callable, Sequence
from typing import Any

from logstore.format.record import EncodedRows
from logstore.types import Row

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def encode_rows(rows: Sequence[Row], now_ms: int) -> EncodedRows: ...
