"""``crash_test`` finds a broken promise, and none where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.store import LogStore
from logstore.testing import CrashTestError, crash_test


def promised(store: LogStore, notes: list[Any]) -> None:
    store.create_topic("t", exist_ok=True)
    with store.producer() as producer:
        for number in range(5):
            offset = producer.send("t", b"%d" % number).result().offset
            notes.append((offset, number))


def kept(store: LogStore, notes: list[Any]) -> None:
    if not notes:
        return
    with store.consumer("t", until_end=True) as consumer:
        found = {record.offset: int(record.value or b"") for record in consumer}
    for offset, number in notes:
        assert found.get(offset) == number, f"record {number} was promised at offset {offset}"


def test_what_was_acknowledged_survives() -> None:
    report = crash_test(promised, kept, seeds=range(60))
    assert report.runs == 60
    assert 3 < report.kills < 30
    assert report.calls > 30


def unsynced(store: LogStore, notes: list[Any]) -> None:
    """Takes acks=1 for a promise."""
    store.create_topic("t", exist_ok=True)
    with store.producer(acks=1) as producer:
        notes.extend((producer.send("t", b"%d" % number).result().offset, number) for number in range(5))


def test_a_promise_that_does_not_hold_is_found_and_its_seed_repeats_it() -> None:
    with pytest.raises(CrashTestError, match=r"after a power loss before call \d+") as caught:
        crash_test(unsynced, kept, seeds=range(200))
    with pytest.raises(CrashTestError) as again:
        crash_test(unsynced, kept, seeds=[caught.value.seed])
    assert again.value.seed == caught.value.seed


def test_a_program_that_fails_by_itself_is_told_so() -> None:
    def fails(store: LogStore, notes: list[Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash_test(fails, kept)
    with pytest.raises(ValueError, match="without a seed"):
        crash_test(promised, kept, seeds=[])
