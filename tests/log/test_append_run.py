"""``append_run``: what it writes at once is what single appends would have written; both twins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import (
    DiskFullError,
    OutOfOrderSequenceError,
    PartitionPoisonedError,
    ProducerFencedError,
    StorageError,
    TransactionStateError,
)
from logstore.format.batch import encode_batch
from logstore.log import append_path
from logstore.log.append_validation import CheckedBatch
from logstore.log.log_offsets import Appended
from logstore.log.owned_log import OwnedLog
from logstore.seams.faults import FaultKind
from tests.log.logs import NOW_MS, Desk, batch, checked, values
from tests.native.twins import python_twin

TWINS = [append_path.AppendPath.append_run, python_twin("logstore.log.append_path").AppendPath.append_run]

# Of a batch: the size of its value, how much newer than the one before, and whether its producer has an id.
BATCHES = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 400), st.booleans()), max_size=40)


def batches_of(shapes: list[tuple[int, int, bool]], numbered: bool) -> list[CheckedBatch]:
    made: list[CheckedBatch] = []
    at_ms, sequence = NOW_MS, 0
    for size, later_ms, has_id in shapes:
        at_ms += later_ms
        rows = [(None, b"%d" % len(made) + bytes(size)), (None, b"")]
        known: dict[str, Any] = {}
        if numbered and has_id:
            known = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            sequence += len(rows)
        made += checked(encode_batch(rows, now_ms=at_ms, **known))
    return made


def stored(desk: Desk, log: OwnedLog) -> list[object]:
    offsets = log.bounds()
    read = values(log)
    log.sync()
    segments = [
        (one.base_offset, one.size, one.next_offset, one.index_bytes) for one in log.segments.segments
    ]
    files = [(name, desk.content(int(name[:20]))) for name in desk.names()]
    return [offsets, read, segments, files, desk.events, desk.published[-1:]]


def append_all(twin: Any, log: OwnedLog, batches: list[CheckedBatch]) -> list[Appended]:
    placed: list[Appended] = []
    while len(placed) < len(batches):
        run = [] if twin is None else twin(log, batches[len(placed) :])
        placed += run or [log.append([batches[len(placed)]])]
    return placed


@given(BATCHES, st.booleans(), st.sampled_from([5_000, 20_000, 1 << 30]), st.sampled_from([60, 1 << 20]))
def test_a_run_leaves_what_single_appends_leave(
    shapes: list[tuple[int, int, bool]], numbered: bool, segment_bytes: int, index_bytes: int
) -> None:
    batches = batches_of(shapes, numbered)
    seen = []
    for twin in (None, *TWINS):
        desk = Desk(
            segment_bytes=segment_bytes,
            segment_ms=2_000,
            segment_index_bytes=index_bytes,
            index_interval_bytes=2_000,
        )
        log = desk.open()
        seen.append([append_all(twin, log, batches), stored(desk, log)])
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]


def opened(desk: Desk) -> OwnedLog:
    log = desk.open()
    log.append(checked(batch(b"first")))
    return log


@pytest.mark.parametrize("twin", TWINS)
def test_one_write_for_all(twin: Any) -> None:
    desk = Desk()
    log = opened(desk)
    writes: list[str] = []
    desk.fs.faults.observer = lambda op: writes.append(op.path) if op.name == "pwritev" else None
    many = checked(*[batch(b"%d" % number, bytes(number * 100)) for number in range(300)])
    ends = [1 + 2 * (number + 1) for number in range(128)]
    assert twin(log, many) == [(end - 2, end) for end in ends]
    assert len([path for path in writes if path.endswith(".log")]) == 1
    assert twin(log, many[:1]) == []
    assert log.log_end_offset == 257


@pytest.mark.parametrize("twin", TWINS)
def test_after_a_failed_write_none_is_in(twin: Any) -> None:
    desk = Desk()
    log = opened(desk)
    before = desk.content(0)
    run = checked(batch(b"a"), batch(b"b"), batch(bytes(5_000)))
    for kind, wanted in ((FaultKind.ENOSPC, DiskFullError), (FaultKind.EIO, StorageError)):
        desk.fs.faults.on("pwritev", kind)
        with pytest.raises(wanted):
            twin(log, run)
        assert (log.log_end_offset, desk.content(0), values(log)) == (1, before, [b"first"])
    desk.fs.faults.on("pwritev", FaultKind.SHORT_WRITE)
    with pytest.raises(DiskFullError):
        twin(log, run)
    assert (log.log_end_offset, desk.content(0), values(log)) == (1, before, [b"first"])
    assert twin(log, run) == [(1, 2), (2, 3), (3, 4)]
    desk.fs.faults.on("pwritev", FaultKind.SHORT_WRITE)
    desk.fs.faults.on("truncate", FaultKind.EIO)
    with pytest.raises(PartitionPoisonedError):
        twin(log, run)
    assert twin(log, run) == []  # ``append`` says why
    with pytest.raises(PartitionPoisonedError):
        log.append(run)


def numbered(*numbers: tuple[int, int, int], transactional: bool = False) -> list[CheckedBatch]:
    """A batch of two records for each (producer id, epoch, base sequence)."""
    rows = [(None, b"a"), (None, b"b")]
    return [
        one
        for producer_id, epoch, sequence in numbers
        for one in checked(
            encode_batch(
                rows,
                now_ms=NOW_MS,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )
    ]


@pytest.mark.parametrize("twin", TWINS)
def test_batches_of_one_producer_in_order_are_a_run(twin: Any) -> None:
    log = opened(Desk())
    assert twin(log, numbered((7, 0, 0), (7, 0, 2), (7, 0, 4))) == [(1, 3), (3, 5), (5, 7)]
    entry = log.producers.entry(7)
    assert entry is not None
    assert [one[:4] for one in entry.batches] == [(0, 1, 1, 2), (2, 3, 3, 4), (4, 5, 5, 6)]
    most = 2**31
    log = opened(Desk())
    assert len(twin(log, numbered((7, 0, most - 4), (7, 0, most - 2), (7, 0, 0)))) == 3  # around the circle
    mixed = [*numbered((7, 0, 2), (7, 0, 4)), *numbered((7, 0, 6), transactional=True)]
    assert len(twin(log, mixed)) == 2
    for behind in ((8, 0, 8), (7, 1, 0), (7, 0, 10), (7, 0, 6), (-1, -1, -1)):
        assert twin(log, numbered((7, 0, 6), behind)) == []
    assert len(twin(log, numbered((8, 0, 0), (8, 0, 2), (-1, -1, -1)))) == 2


@pytest.mark.parametrize("twin", TWINS)
def test_a_run_that_is_stored_or_out_of_order(twin: Any) -> None:
    log = opened(Desk())
    batches = numbered((7, 0, 0), (7, 0, 2), (7, 0, 4))
    assert len(twin(log, batches[:2])) == 2
    assert twin(log, batches) == []  # ``append`` says where the first is
    assert log.append(batches[:1]) == (1, 3)
    with pytest.raises(OutOfOrderSequenceError):
        twin(log, numbered((7, 0, 6), (7, 0, 8)))
    assert len(twin(log, numbered((7, 1, 0), (7, 1, 2)))) == 2
    with pytest.raises(ProducerFencedError):
        twin(log, numbered((7, 0, 4), (7, 0, 6)))
    assert log.log_end_offset == 9
    assert len(twin(log, numbered((9, 0, 0), (9, 0, 2), transactional=True))) == 2
    with pytest.raises(TransactionStateError):
        twin(log, numbered((9, 0, 4), (9, 0, 6)))
    assert log.producers.first_unstable == 9


@pytest.mark.parametrize("twin", TWINS)
def test_a_failed_run_of_a_producer_is_not_remembered(twin: Any) -> None:
    desk = Desk()
    log = opened(desk)
    batches = numbered((7, 0, 0), (7, 0, 2))
    desk.fs.faults.on("pwritev", FaultKind.ENOSPC)
    with pytest.raises(DiskFullError):
        twin(log, batches)
    assert log.producers.entry(7) is None
    assert twin(log, batches) == [(1, 3), (3, 5)]


@pytest.mark.parametrize("twin", TWINS)
def test_nothing_of_a_log_that_has_no_segment_yet(twin: Any) -> None:
    log = Desk().open()
    assert twin(log, checked(batch(b"a"), batch(b"b"))) == []
