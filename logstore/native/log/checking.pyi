from collections.abc import Callable, Sequence
from typing import Any

from logstore.config import TopicConfig
from logstore.log.append_validation import CheckedBatch
from logstore.types import Buffer

FINGERPRINT: str
PYTHON_TWINS: dict[str, Callable[..., Any]]

def split_checked(buffer: Buffer, where: str) -> list[CheckedBatch]: ...
def check_leader_append(
    batches: Sequence[CheckedBatch], config: TopicConfig, now_ms: int, where: str
) -> list[CheckedBatch]: ...
