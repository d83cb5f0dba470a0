"""``append(..., expected_offset=)``: only if the log ends where the caller thinks it does."""

from __future__ import annotations

import threading

import pytest

import logstore
from logstore.errors import OffsetMismatchError


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
