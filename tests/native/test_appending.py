"""The tables, the index rule and the tail cache of both twins, fed alike."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.log.segments import growing_table, offset_index, tail_cache
from tests.native.twins import python_twin

TABLES = (growing_table, python_twin("logstore.log.segments.growing_table"))
RULES = (offset_index, python_twin("logstore.log.segments.offset_index"))
TAILS = (tail_cache, python_twin("logstore.log.segments.tail_cache"))
INT64_MAX = 2**63 - 1


@given(
    gaps=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), max_size=60),
    kept=st.integers(0, 60),
    stored=st.integers(0, 60),
    asked=st.lists(st.integers(-5, 3000) | st.sampled_from([-(2**70), 2**70, INT64_MAX]), max_size=9),
    row=st.sampled_from([struct.Struct(">ii"), struct.Struct(">qi")]),
)
@settings(max_examples=100, deadline=None)
def test_a_growing_table(
    gaps: list[tuple[int, int]], kept: int, stored: int, asked: list[int], row: struct.Struct
) -> None:
    rows, key = [], 0
    for gap, value in gaps:
        key += gap
        rows.append((key, value))
    content = b"".join(row.pack(*item) for item in rows[:kept]) + b"\1"

    def told(module: Any) -> list[object]:
        table = module.GrowingTable(row, content)
        said: list[object] = []
        for number, item in enumerate(rows[kept:]):
            table.append(*item)
            if number == stored:
                said.append(table.unstored())
                table.mark_stored()
        said += [table.floor(key) for key in asked]
        said += [table.row(number) for number in range(-table.count, table.count)]
        return [*said, table.count, table.size_bytes, table.unstored_rows, table.unstored(), table.encoded()]

    assert told(TABLES[0]) == told(TABLES[1])


@pytest.mark.parametrize("module", TABLES)
def test_a_row_that_is_not_there(module: Any) -> None:
    table = module.GrowingTable(struct.Struct(">ii"))
    for number in (0, 1, -1):
        with pytest.raises(IndexError, match="array index out of range"):
            table.row(number)


@given(
    fed=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9000), st.integers(-1, 50)), max_size=50),
    interval=st.sampled_from([0, 1, 4096]),
)
@settings(max_examples=60, deadline=None)
def test_the_index_rule(fed: list[tuple[int, int, int]], interval: int) -> None:
    rules = [module.IndexRule(interval) for module in RULES]
    for item in fed:
        assert len({rule.feed(*item) for rule in rules}) == 1
        assert (
            len({(rule.bytes_since_entry, rule.max_timestamp_ms, rule.offset_of_max) for rule in rules}) == 1
        )


TAIL_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 1), st.integers(1, 40), st.integers(1, 3)),
        st.tuples(st.just("read"), st.integers(0, 1), st.integers(0, 200), st.integers(1, 100)),
        st.tuples(st.just("clear"), st.integers(0, 1), st.just(0), st.just(0)),
    ),
    max_size=120,
)


@given(steps=TAIL_STEPS, limit=st.sampled_from([30, 120, 10_000]), budget=st.sampled_from([60, 400, 10_000]))
@settings(max_examples=100, deadline=None)
def test_the_tails_of_two_logs(steps: list[tuple[str, int, int, int]], limit: int, budget: int) -> None:
    def told(module: Any) -> list[object]:
        shared = module.TailBudget(budget)
        tails = [module.TailCache(shared, limit), module.TailCache(shared, limit)]
        ends, positions, said = [0, 0], [0, 0], []
        for step, which, first, second in steps:
            tail = tails[which]
            if step == "add":
                base = ends[which]
                ends[which] += second
                positions[which] += first
                data = bytes([base % 256]) * first
                tail.add(base, base + second, positions[which], (data[:1], memoryview(data)[1:]), first)
            elif step == "read":
                said.append(tail.read(first, second, max(0, ends[which] - second % 4)))
            else:
                tail.clear()
            said.append((tail.used_bytes, tail.first_number, shared.used_bytes, shared.entries))
        return said

    assert told(TAILS[0]) == told(TAILS[1])


@pytest.mark.parametrize("module", TAILS)
@pytest.mark.parametrize("max_bytes", [-(2**70), -1, 0, INT64_MAX, 2**70])
def test_a_reader_may_ask_for_any_number_of_bytes(module: Any, max_bytes: int) -> None:
    tail = module.TailCache(module.TailBudget(), 1000)
    for number in range(3):
        tail.add(number, number + 1, 2 * number + 2, (b"%02d" % number,), 2)
    expected = (b"000102", 3, 6) if max_bytes > 2 else (b"00", 1, 2)
    assert tail.read(0, max_bytes, 3) == expected
