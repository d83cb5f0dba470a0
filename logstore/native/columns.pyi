from collections.abc import Callable
from typing import Any

import pyarrow

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def chunk_table(
    sections: Any,
    columns: pyarrow.Schema,
    topic: str,
    partition: int,
    start_offset: int,
    end_offset: int | None,
) -> pyarrow.Table: ...
