"""A cleaning that crashes or is refused at any call: the log is the old one or the new one, never a mix."""

from __future__ import annotations

import pytest

from logstore.errors import LogStoreError
from logstore.log.inspection.inspect import PartitionFolder
from logstore.log.inspection.verify import PartitionFacts, Totals, verify_partition
from logstore.log.producers.row_counts import FILE_NAME
from logstore.log.replica_log import ReplicaLog
from logstore.seams.faults import FaultKind, Operation, SimulatedCrash
from logstore.seams.memory_fs import MemoryFileSystem
from tests.log.cleanings import RETENTION_MS, clean, cleaning, end_transaction, pairs, put
from tests.log.logs import FOLDER, NOW_MS, Desk, records

Rows = list[tuple[int, bytes | None, bytes | None]]
LATER_MS = NOW_MS + 2 * RETENTION_MS


def written() -> tuple[Desk, ReplicaLog, int]:
    """A log whose next cleaning drops a tombstone together with what it deletes, moves an abort marker, and
    merges segments; the offset from which that cleaning starts."""
    desk = Desk(index_interval_bytes=60, tail_cache_bytes=0)
    log = desk.open()
    put(log, (b"gone", b"1"), (b"a", b"1"))
    put(log, (b"a", b"aborted"), producer_id=7, transactional=True)
    log.roll_idle()
    put(log, (b"gone", None), (b"b", b"1"))
    log.roll_idle()
    end_transaction(log, 7, commit=False)
    put(log, (b"b", b"2"))
    log.roll_idle()
    start = clean(desk, log, segment_bytes=1, end_offset=5, delete_retention_ms=0).cleaned_to
    put(log, (b"a", b"2"), (b"c", b"1"))
    put(log, (b"d", b"1"))
    log.roll_idle()
    put(log, (b"z", b"end"))
    log.checkpoint()
    return desk, log, start


def rows(log: ReplicaLog) -> Rows:
    return pairs(records(log))


def sides(largest: int) -> tuple[set[tuple[object, ...]], int]:
    """What may be seen before, between the groups and after the cleaning; and how many calls that makes."""
    desk, log, start = written()
    seen = {tuple(rows(log))}
    begun = desk.fs.faults.calls
    one = cleaning(desk, log, start_offset=start, now_ms=LATER_MS, largest_bytes=largest)
    while one.step(0) is None:
        pass
    calls = desk.fs.faults.calls - begun
    desk, log, start = written()
    one = cleaning(desk, log, start_offset=start, now_ms=LATER_MS, largest_bytes=largest)
    while one.step(0) is None:
        seen.add(tuple(rows(log)))
    seen.add(tuple(rows(log)))
    return seen, calls


def reopened(fs: MemoryFileSystem, point: int) -> ReplicaLog:
    return Desk(fs, index_interval_bytes=60, tail_cache_bytes=0).open(recovery_point=point, same_boot=False)


def check_whole(
    log: ReplicaLog,
    fs: MemoryFileSystem,
    seen: set[tuple[object, ...]],
    *,
    refused: frozenset[str] = frozenset(),
) -> None:
    """``refused``: what may be left until the next start."""
    assert tuple(rows(log)) in seen
    names = set(fs.listdir(FOLDER)) - refused
    assert [name for name in names if name.endswith((".cleaned", ".swap", ".tmp"))] == []
    facts = PartitionFacts(clean=True, gaps_allowed=True)
    faults = verify_partition(fs, PartitionFolder("t", 0, FOLDER), facts, Totals())
    kinds = {fault.kind for fault in faults if fault.path.rpartition("/")[2] not in refused}
    assert kinds <= {"metadata"}  # this log is a bare one


@pytest.mark.parametrize("largest", [1 << 30, 330])
def test_a_crash_at_any_call_leaves_the_old_or_the_new(largest: int) -> None:
    seen, calls = sides(largest)
    assert len(seen) == 2
    ends = set()
    for call in range(1, calls + 1):
        desk, log, start = written()
        point = log.recovery_point
        desk.fs.faults.at(desk.fs.faults.calls + call, FaultKind.CRASH)
        one = cleaning(desk, log, start_offset=start, now_ms=LATER_MS, largest_bytes=largest)
        with pytest.raises(SimulatedCrash):
            one.step(1e9)
        for state in (*desk.fs.crash_states(24), desk.fs.process_crash()):
            survivor = reopened(state, point)
            check_whole(survivor, state, seen)
            ends.add(tuple(rows(survivor)))
    assert ends == seen


@pytest.mark.slow
def test_a_crash_in_the_recovery_of_a_swap() -> None:
    seen, calls = sides(1 << 30)
    tried = 0
    for call in range(calls // 2, calls + 1):
        desk, log, start = written()
        point = log.recovery_point
        desk.fs.faults.at(desk.fs.faults.calls + call, FaultKind.CRASH)
        with pytest.raises(SimulatedCrash):
            cleaning(desk, log, start_offset=start, now_ms=LATER_MS).step(1e9)
        state = desk.fs.process_crash()
        if call % 6 and not any(name.endswith(".swap") for name in state.listdir(FOLDER)):
            continue
        again = 1
        while True:
            twin = state.clone()
            twin.faults.at(again, FaultKind.CRASH)
            try:
                reopened(twin, point)
                break
            except SimulatedCrash:
                pass
            for outcome in twin.crash_states(8):
                check_whole(reopened(outcome, point), outcome, seen)
                tried += 1
            again += 2
    assert tried > 50


@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.ENOSPC, FaultKind.SHORT_WRITE])
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("largest", [1 << 30, 330])
def test_a_disk_that_refuses_any_call(kind: FaultKind, forever: bool, largest: int) -> None:
    seen, calls = sides(largest)
    fired = 0
    for call in range(1, calls + 1):
        desk, log, start = written()
        point = log.recovery_point
        desk.fs.faults.at(desk.fs.faults.calls + call, kind, forever)
        failed = False
        try:
            cleaning(desk, log, start_offset=start, now_ms=LATER_MS, largest_bytes=largest).step(1e9)
        except LogStoreError:
            failed = True
        fired += desk.fs.faults.fired > 0
        desk.fs.faults.clear()
        assert failed or tuple(rows(log)) in seen
        if not log.poisoned:
            assert tuple(rows(log)) in seen
            before = desk.fs.process_crash() if call % 3 == 0 else None
            if before is None:
                clean(desk, log, start_offset=start, now_ms=LATER_MS, largest_bytes=largest)
                # What the disk refused of the counts of aborted transactions stays until they change.
                check_whole(log, desk.fs, seen, refused=frozenset({f"{FILE_NAME}.tmp"}))
                put(log, (b"after", b"1"))
                continue
            check_whole(reopened(before, point), before, seen)
            continue
        state = desk.fs.process_crash()
        check_whole(reopened(state, point), state, seen)
    assert fired >= 5


@pytest.mark.parametrize("largest", [1 << 30, 330])
def test_after_an_interrupt_at_any_call_the_log_goes_on(largest: int) -> None:
    seen, calls = sides(largest)
    new = min(seen, key=len)
    for call in range(1, calls + 1):
        desk, log, start = written()
        due = desk.fs.faults.calls + call

        def observe(operation: Operation, due: int = due) -> None:
            if operation.number == due:
                raise KeyboardInterrupt

        desk.fs.faults.observer = observe
        with pytest.raises(KeyboardInterrupt):
            cleaning(desk, log, start_offset=start, now_ms=LATER_MS, largest_bytes=largest).step(1e9)
        assert tuple(rows(log)) in seen
        put(log, (b"y", b"more"))
        clean(desk, log, start_offset=start, now_ms=LATER_MS, largest_bytes=largest)
        log.checkpoint()
        whole = rows(log)
        assert whole[: len(new)] == list(new)
        assert whole[len(new) :] == [(whole[-1][0], b"y", b"more")]
        left = frozenset({f"{FILE_NAME}.tmp"})  # goes when that file is written next
        check_whole(log, desk.fs, {tuple(whole)}, refused=left)
        check_whole(reopened(desk.fs, log.recovery_point), desk.fs, {tuple(whole)}, refused=left)
