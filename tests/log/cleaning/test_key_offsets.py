"""The last offset of every key, within a bound."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.log.cleaning.key_offsets import ENTRY_BYTES, LIVE, LIVE_TOMBSTONE, KeyOffsets, keys_in


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


@settings(derandomize=True, deadline=None)
@given(
    limit=st.sampled_from([0, 400, 1 << 20]),
    start=st.integers(0, 3),
    batches=st.lists(
        st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.booleans()), min_size=1, max_size=9),
        max_size=9,
    ),
)
def test_which_offsets_are_live(limit: int, start: int, batches: list[list[tuple[bytes, bool]]]) -> None:
    keys, offset = KeyOffsets(limit, start), start
    flat = [row for batch in batches for row in batch]
    for batch in batches:
        nulls = [number for number, (_, null) in enumerate(batch) if null]
        found = [key for key, _ in batch]
        if not keys.add(found, range(offset, offset + len(batch)), offset + len(batch), nulls):
            break
        offset += len(batch)
    end = keys.end_offset
    assert keys.live(start, end - 1) is None
    for _ in keys.settle():
        assert keys.live(start, end - 1) is None
    model = {key: (at, null) for at, (key, null) in enumerate(flat[: end - start], start)}
    assert keys.newest([*model, b"other"]) == [at for at, _ in model.values()] + [-1]
    room = keys.used_bytes + end - start <= limit
    if end > start:
        last = {at: LIVE_TOMBSTONE if null else LIVE for at, null in model.values()}
        wanted = bytearray(last.get(at, 0) for at in range(start, end))
        assert keys.live(start, end - 1) == (wanted if room else None)
        assert keys.live(end - 1, end - 1) == (wanted[-1:] if room else None)
        assert keys.live(start, end) is keys.live(start - 1, start) is None
    for _ in keys.release():
        assert keys.live(start, end - 1) is None
    assert len(keys) == 0


def test_the_table_is_made_and_given_back_in_steps() -> None:
    keys = KeyOffsets(10 << 20, 0)
    keys.add([b"%05d" % number for number in range(20_000)], range(20_000), 20_000)
    assert sum(1 for _ in keys.settle()) == 40
    assert keys.live(19_998, 19_999) == bytearray([LIVE, LIVE])
    assert sum(1 for _ in keys.release()) == 40
