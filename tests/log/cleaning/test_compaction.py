"""Batches held against the map: the way by offset and the way by key decide the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptBatchError
from logstore.format.batch import HEADER_SIZE, encode_batch, pack_batch, read_header, records_section
from logstore.format.record_spans import key_column
from logstore.log.cleaning.compaction import AbortedRanges, Action, Compaction, CompactionRules, Decision
from logstore.log.cleaning.key_offsets import KeyOffsets
from tests.log.cleanings import clean, put
from tests.log.logs import NOW_MS, Desk

ROW = st.tuples(
    st.sampled_from([b"a", b"b", b"c", b"dd", None]),
    st.none() | st.sampled_from([b"", b"1", b"2" * 70]),
    st.just(()),
    st.sampled_from([NOW_MS, NOW_MS + 5, NOW_MS - 5]),
)
BATCH = st.tuples(st.lists(ROW, min_size=1, max_size=80), st.sampled_from(["none", "gzip"]))


def encoded(batches: list[tuple[list[tuple[object, ...]], str]]) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    for rows, codec in batches:
        found.append(encode_batch(rows, now_ms=NOW_MS, base_offset=offset, codec=codec, leader_epoch=0))  # type: ignore[arg-type]
        offset += len(rows)
    return found


def map_of(log: list[bytes], start: int, end: int) -> KeyOffsets:
    keys = KeyOffsets(1 << 20, start)
    for data in log:
        header = read_header(data)
        column = key_column(records_section(data, 0, header), header.records_count)
        rows = [
            (key, header.base_offset + delta, delta in column.nulls)
            for key, delta in zip(column.keys, column.deltas, strict=True)
            if key is not None and start <= header.base_offset + delta < end
        ]
        nulls = [number for number, row in enumerate(rows) if row[2]]
        keys.add([row[0] for row in rows], [row[1] for row in rows], min(header.next_offset, end), nulls)
    keys.end_offset = end
    return keys


def decisions(log: list[bytes], keys: KeyOffsets, now_ms: int) -> list[Decision]:
    rules = CompactionRules(now_ms=now_ms, delete_retention_ms=1000, active_producers={})
    judge = Compaction(rules, keys, AbortedRanges([]))
    return [judge.decide(read_header(data), memoryview(data)) for data in log]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(batches=st.lists(BATCH, min_size=1, max_size=5), data=st.data())
def test_both_ways_decide_the_same(
    batches: list[tuple[list[tuple[object, ...]], str]], data: st.DataObject
) -> None:
    log = encoded(batches)
    total = sum(len(rows) for rows, _ in batches)
    start = data.draw(st.sampled_from([0, 0, total // 3]))
    end = data.draw(st.sampled_from([total, total, max(start, total - 1)]))
    by_key, by_offset = map_of(log, start, end), map_of(log, start, end)
    list(by_offset.settle())
    for now_ms in (NOW_MS, NOW_MS + 10_000):
        first = decisions(log, by_key, now_ms)
        assert decisions(log, by_offset, now_ms) == first
        # And once more over what it made, where offsets are missing and horizons are stamped.
        log = [
            decision.data if decision.action is Action.WRITE else one
            for one, decision in zip(log, first, strict=True)
            if decision.action is not Action.DROP
        ]


def test_a_record_past_its_batchs_last_offset_is_named() -> None:
    desk = Desk(index_interval_bytes=100)
    log = desk.open()
    put(
        log, (b"a", b"1"), (b"b", b"1" * 53), (b"c", b"1")
    )  # the middle one is as long as a batch without records
    log.roll_idle()
    put(log, (b"a", b"2"))
    segment = log.segments.segments[0]
    data = bytes(segment.bytes_at(0, segment.size))
    header, section = read_header(data), data[HEADER_SIZE:]
    middle = key_column(section, 3).bounds[1:3]
    rest = section[: middle[0]] + section[middle[1] :]
    bad = pack_batch(header._replace(last_offset_delta=1, records_count=2), rest)
    short = pack_batch(header._replace(last_offset_delta=0, records_count=0, base_offset=2), b"")
    assert len(bad + short) == segment.size
    desk.pool.forget_file(segment.path())
    file = desk.fs.open(segment.path(), "rw")
    file.pwritev([bad + short], 0)
    file.close()
    with pytest.raises(CorruptBatchError, match="offset 2 of a record is past its batch's last, 1"):
        clean(desk, log)
