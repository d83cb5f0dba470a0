from collections.abc import Sequence

from logstore.format.record_spans import KeyColumn

FINGERPRINT: str

def key_column(section: bytes, count: int) -> KeyColumn: ...
def record_bounds(section: bytes, count: int) -> tuple[Sequence[int], bool]: ...
