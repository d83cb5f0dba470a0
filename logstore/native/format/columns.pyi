from collections.abc import Callable, Iterator
from typing import Any

import pyarrow

from logstore.types import Buffer

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

class TableBuilder:
    READ_BYTES: int

    def __init__(
        self,
        columns: pyarrow.Schema,
        topic: str,
        partition: int,
        check: bool,
        max_decompressed_bytes: int,
        chunk_bytes: int,
        end_offset: int | None = None,
    ) -> None: ...
    def add(self, buffer: Buffer, start_offset: int, end_offset: int | None) -> None: ...
    def batches(
        self, buffer: Buffer, start_offset: int, end_offset: int | None
    ) -> Iterator[pyarrow.RecordBatch]: ...
    def rest(self) -> Iterator[pyarrow.RecordBatch]: ...
    def table(self) -> pyarrow.Table: ...
