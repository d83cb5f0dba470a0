from collections.abc import Callable, Iterator
from typing import Any

from logstore.format.batch import BatchHeader
from logstore.types import Buffer

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def data_batches(
    buffer: Buffer, start_offset: int, end_offset: int | None, check: bool
) -> Iterator[tuple[int, BatchHeader]]: ...
def may_be_transactional(buffer: Buffer) -> bool: ...
def whole_batches(
    buffer: Buffer, *, limit_offset: int | None = None, position: int = 0, gapless: bool = False
) -> tuple[int, int, int]: ...
