from collections.abc import Callable
from typing import Any

from logstore.format.arrow_rows import ArrowRows

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def rows_digest(rows: ArrowRows, seed: int) -> int: ...
