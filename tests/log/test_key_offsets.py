"""The last offset of every key, within a bound."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.log.key_offsets import ENTRY_BYTES, KeyOffsets, keys_in


def test_the_last_offset_of_a_key_and_none() -> None:
    keys = KeyOffsets(1 << 20, 7)
    assert keys.end_offset == 7
    assert keys.add([b"a", b"b", b"a"], [7, 8, 9], 10)
    assert keys.newest([b"b", b"a", b"c", None]) == [8, 9, -1, -1]
    assert (keys.end_offset, len(keys), keys.used_bytes) == (10, 2, 2 * (ENTRY_BYTES + 1))


def test_what_a_setting_holds() -> None:
    assert keys_in(64 << 20, 16) == 493_447
    assert keys_in(1, 16) == 1


@settings(derandomize=True, deadline=None)
@given(
    limit=st.integers(0, 1500),
    batches=st.lists(st.lists(st.binary(max_size=2), min_size=1, max_size=9), max_size=9),
)
def test_a_full_map_covers_a_prefix_exactly(limit: int, batches: list[list[bytes]]) -> None:
    keys, offset = KeyOffsets(limit, 0), 0
    flat = [key for batch in batches for key in batch]
    for batch in batches:
        if not keys.add(batch, range(offset, offset + len(batch)), offset + len(batch)):
            break
        offset += len(batch)
    end = keys.end_offset
    assert keys.full == (end < len(flat))
    assert end > 0 or not flat
    model = {key: at for at, key in enumerate(flat[:end])}
    assert keys.newest(list(model)) == list(model.values())
    assert len(keys) == len(model)
    size = sum(ENTRY_BYTES + len(key) for key in model)
    assert keys.used_bytes == size
    assert size <= limit or len(model) <= 1
