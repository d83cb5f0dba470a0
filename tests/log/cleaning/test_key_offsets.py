"""The last offset of every key, within a bound."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.format.record import encode_rows
from logstore.format.record_spans import key_column
from logstore.log.cleaning import key_table
from logstore.log.cleaning.key_offsets import ENTRY_BYTES, KeyOffsets
from logstore.log.cleaning.key_table import LIVE, LIVE_TOMBSTONE, KeyTable
from logstore.native import native_status
from tests.native.twins import python_twin

TWINS = [KeyTable, python_twin(key_table.__name__).KeyTable]


def map_on(table: type[KeyTable], limit: int, start: int) -> KeyOffsets:
    """A map on either twin's table."""
    keys = KeyOffsets(limit, start)
    keys._table = table()
    return keys


@pytest.mark.parametrize("table", TWINS)
def test_the_last_offset_of_a_key_and_none(table: type[KeyTable]) -> None:
    keys = map_on(table, 1 << 20, 7)
    assert keys.end_offset == 7
    assert keys.add([b"a", b"b", b"a"], [7, 8, 9], 10)
    assert keys.newest([b"b", b"a", b"c", None]) == [8, 9, -1, -1]
    assert (keys.end_offset, len(keys), keys.used_bytes) == (10, 2, 2 * (table.ENTRY_BYTES + 1))


def test_what_an_entry_is_counted_with() -> None:
    assert (24 if native_status().compiled else 120) == ENTRY_BYTES


@pytest.mark.parametrize("table", TWINS)
@settings(derandomize=True, deadline=None)
@given(
    limit=st.integers(0, 1500),
    batches=st.lists(st.lists(st.binary(max_size=2), min_size=1, max_size=9), max_size=9),
)
def test_a_full_map_covers_a_prefix_exactly(
    table: type[KeyTable], limit: int, batches: list[list[bytes]]
) -> None:
    keys, offset = map_on(table, limit, 0), 0
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
    size = sum(table.ENTRY_BYTES + len(key) for key in model)
    assert keys.used_bytes == size
    assert size <= limit or len(model) <= 1


@pytest.mark.parametrize("table", TWINS)
@settings(derandomize=True, deadline=None)
@given(
    limit=st.sampled_from([0, 400, 1 << 20]),
    start=st.integers(0, 3),
    batches=st.lists(
        st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.booleans()), min_size=1, max_size=9),
        max_size=9,
    ),
)
def test_which_offsets_are_live(
    table: type[KeyTable], limit: int, start: int, batches: list[list[tuple[bytes, bool]]]
) -> None:
    keys, offset = map_on(table, limit, start), start
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


@pytest.mark.parametrize("table", TWINS)
def test_the_table_is_made_and_given_back_in_steps(table: type[KeyTable]) -> None:
    keys = map_on(table, 100 << 20, 0)
    keys.add([b"%060d" % number for number in range(20_000)], range(20_000), 20_000)
    assert sum(1 for _ in keys.settle()) == 40
    assert keys.live(19_998, 19_999) == bytearray([LIVE, LIVE])
    assert sum(1 for _ in keys.release()) >= 2
    assert (len(keys), keys.used_bytes, keys.newest([b"%060d" % 7])) == (0, 0, [-1])


some_key = (
    st.binary(max_size=3)
    | st.sampled_from([253, 254, 255, 256, 40_000, 70_000, 140_000]).map(lambda length: b"k" * length)
    | st.integers(0, 3000).map(lambda number: b"key-%d" % number)
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    limit=st.sampled_from([0, 500, 100_000, 1 << 30]),
    many=st.integers(0, 3000),
    calls=st.lists(st.tuples(st.lists(some_key, max_size=40), st.booleans()), max_size=8),
)
def test_both_twins_are_a_dictionary(limit: int, many: int, calls: list[tuple[list[bytes], bool]]) -> None:
    """Exact answers, also where keys differ in their last byte alone, are long, or were entered many times."""
    for table in TWINS:
        asked: list[tuple[list[bytes], Any, list[int]]] = []
        if many:
            asked.append(([b"key-%d" % (number % 2000) for number in range(many)], range(many), []))
        offset = many
        for keys, gaps in calls:
            offsets = (
                list(range(offset, offset + 2 * len(keys), 2)) if gaps else range(offset, offset + len(keys))
            )
            asked.append((keys, offsets, list(range(0, len(keys), 3))))
            offset += 2 * len(keys)
        found = table()
        model: dict[bytes, tuple[int, bool]] = {}
        for keys, offsets, nulls in asked:
            entered = found.enter(keys, offsets, nulls, limit)
            for number in range(entered):
                model[keys[number]] = (offsets[number], number in nulls)
            if entered < len(keys):
                assert keys[entered] not in model
                assert found.used_bytes + table.ENTRY_BYTES + len(keys[entered]) > limit
                break
        names = [None, *model, *(key + b"\0" for key in model), b"absent"]
        assert found.newest(names) == [model[key][0] if key in model else -1 for key in names]
        assert len(found) == len(model)
        assert found.used_bytes == sum(table.ENTRY_BYTES + len(key) for key in model)
        live = bytearray(offset + 1)
        assert sum(1 for _ in found.mark(live, 0)) == (len(model) + 499) // 500
        wanted = bytearray(offset + 1)
        for at, null in model.values():
            wanted[at] = LIVE_TOMBSTONE if null else LIVE
        assert live == wanted


@pytest.mark.parametrize("table", TWINS)
def test_keys_and_offsets_that_do_not_go_together_are_refused(table: type[KeyTable]) -> None:
    with pytest.raises(ValueError, match=r"shorter|longer|offsets"):
        table().enter([b"a", b"b"], [1], (), 1 << 20)


@pytest.mark.parametrize("table", TWINS)
def test_keys_are_entered_as_they_lie_in_a_section(table: type[KeyTable]) -> None:
    """The same answers as for the same keys as objects, of every length that a hash or an entry has a step at."""
    names = [b"k" * size for size in (*range(20), 253, 254, 255, 256, 70_000)] * 2
    section = encode_rows([(name, b"v") for name in names], 0).records
    column = key_column(section, len(names))
    raw, objects = table(), table()
    assert raw.enter(column.keys[:9], range(9), (3,), 1 << 20) == 9  # type: ignore[arg-type]
    assert raw.enter(column.keys[9:], range(9, len(names)), (), 1 << 20) == len(names) - 9  # type: ignore[arg-type]
    assert objects.enter(names, range(len(names)), (3,), 1 << 20) == len(names)
    assert raw.newest(names) == objects.newest(column.keys) == [number % 25 + 25 for number in range(50)]
    assert (len(raw), raw.used_bytes) == (len(objects), objects.used_bytes)
    assert raw.newest(key_column(encode_rows([(None, b"v")], 0).records, 1).keys) == [-1]
