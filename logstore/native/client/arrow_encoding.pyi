from collections.abc import Callable
from typing import Any

from logstore.client.arrow_encoder import Encoded, Limits, Spread
from logstore.format.arrow_rows import ArrowRows

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def encode_arrow(rows: ArrowRows, where: str, spread: Spread, limits: Limits, now_ms: int) -> Encoded: ...
