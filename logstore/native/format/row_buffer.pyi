from collections.abc import Callable, Iterable, Iterator
from typing import Any

from logstore.format.batch import BatchHeader

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

class RowBuffer:
    def append(self, row: Any) -> None: ...
    def extend(self, rows: Iterable[Any]) -> None: ...
    def part(self, start: int, end: int) -> RowBuffer: ...
    def __len__(self) -> int: ...
    def __getitem__(self, place: Any) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def encode(
        self,
        now_ms: int,
        codec: str = "none",
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> tuple[bytes, BatchHeader]: ...
