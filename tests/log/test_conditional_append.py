"""``append(..., expected_offset=)``: only if the log ends where the caller thinks it does."""

from __future__ import annotations

import threading

import pytest

import logstore
from logstore.errors import OffsetMismatchError
from logstore.seams.faults import FaultKind
from logstore.seams.memory_fs import MemoryFileSystem


def test_a_wrong_expectation_writes_nothing_and_names_both_ends() -> None:
    with logstore.open(":memory:") as store:
        store.create_topic("t")
        log = store.partition("t", 0)
        assert log.append([(None, b"a")], expected_offset=0).offset == 0
        with pytest.raises(OffsetMismatchError, match="ends at offset 1, expected was 0") as caught:
            log.append([(None, b"b")], expected_offset=0)
        assert (caught.value.expected_offset, caught.value.end_offset) == (0, 1)
        assert [record.value for record in log.records(0)] == [b"a"]


def test_of_many_threads_with_one_expectation_exactly_one_wins() -> None:
    with logstore.open(":memory:") as store:
        store.create_topic("t")
        log = store.partition("t", 0)
        log.append([(None, b"first")])
        start = threading.Barrier(8)
        outcomes: list[object] = []

        def race(number: int) -> None:
            start.wait()
            try:
                log.append([(None, b"%d" % number)], expected_offset=1)
                outcomes.append(number)
            except OffsetMismatchError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [outcome for outcome in outcomes if isinstance(outcome, int)]
        assert len(outcomes) == 8
        assert [record.value for record in log.records(1)] == [b"%d" % winners[0]]
        assert len(winners) == 1


def test_what_won_is_visible_when_the_loser_is_told() -> None:
    """The winner's records are in the log and not synced yet: a caller that decides again must see them."""
    with logstore.open(":memory:") as store:
        store.create_topic("t", config={"flush.ms": "3600000"})
        log = store.partition("t", 0)
        log.append([(None, b"winner")], acks=1)
        assert (log.high_watermark, log.log_end_offset) == (0, 1)
        with pytest.raises(OffsetMismatchError) as caught:
            log.append([(None, b"loser")], expected_offset=0)
        assert log.high_watermark == caught.value.end_offset == 1
        assert log.append([(None, b"again")], expected_offset=log.high_watermark).offset == 1


def test_a_winner_that_cannot_be_synced_is_named_beside_the_conflict() -> None:
    fs = MemoryFileSystem()
    with logstore.open("/store", fs=fs) as store:
        store.create_topic("t", config={"flush.ms": "3600000"})
        log = store.partition("t", 0)
        log.append([(None, b"winner")], acks=1)
        fs.faults.on("sync", FaultKind.EIO)
        with pytest.raises(OffsetMismatchError) as caught:
            log.append([(None, b"loser")], expected_offset=0)
        assert any("is not visible" in note for note in caught.value.__notes__)
        fs.faults.clear()


def test_threads_that_book_against_each_other_meet_few_conflicts() -> None:
    """Each conflict is another thread's booking: fewer than threads a booking, however long a sync takes."""
    threads, bookings = 8, 10
    conflicts = [0] * threads
    with logstore.open(":memory:") as store:
        store.create_topic("t")
        log = store.partition("t", 0)

        def book(number: int) -> None:
            for _ in range(bookings):
                while True:
                    try:
                        log.append([(None, b"event")], expected_offset=log.high_watermark)
                        break
                    except OffsetMismatchError:
                        conflicts[number] += 1

        workers = [threading.Thread(target=book, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert log.high_watermark == threads * bookings
    assert sum(conflicts) < threads * threads * bookings
