"""What is remembered of cleanings: results, waits that grow, horizons, totals."""

from __future__ import annotations

from logstore.errors import StorageError
from logstore.log.cleaning.cleanable import NEVER
from logstore.log.cleaning.cleaning import CleanResult
from logstore.upkeep.cleaning_ledger import LONGEST_RETRY_S, SHORTEST_HORIZON_MS, CleaningLedger

PLACE = ("id", 3)


def result(horizon_ms: int = -1) -> CleanResult:
    return CleanResult(
        cleaned_to=70,
        bytes_before=900,
        bytes_after=300,
        records_before=9,
        records_after=3,
        segments_before=4,
        segments_after=2,
        next_horizon_ms=horizon_ms,
    )


def test_waits_double_from_a_minute_to_an_hour_and_end_with_a_success() -> None:
    ledger = CleaningLedger()
    waits = [ledger.failed(PLACE, StorageError("no"), 100.0).retry_at_s - 100.0 for _ in range(40)]
    assert waits[:7] == [60, 120, 240, 480, 960, 1920, 3600]
    assert waits[-1] == LONGEST_RETRY_S
    trouble = ledger.trouble(PLACE)
    assert trouble is not None
    assert (trouble.message, trouble.failures, ledger.quarantined) == ("StorageError: no", 40, 1)
    ledger.finished(PLACE, result(), finished_ms=5, took_s=0.25)
    assert ledger.trouble(PLACE) is None
    assert ledger.failed(PLACE, StorageError("no"), 0.0).retry_at_s == 60
    ledger.forgive(PLACE)
    assert ledger.quarantined == 0


def test_the_last_result_and_the_totals() -> None:
    ledger = CleaningLedger()
    ledger.finished(PLACE, result(), finished_ms=5, took_s=0.25)
    ledger.finished(PLACE, result(), finished_ms=6, took_s=0.5)
    last = ledger.last(PLACE)
    assert last is not None
    assert (last.finished_ms, last.took_ms, last.cleaned_to, last.records_after) == (6, 500, 70, 3)
    assert ledger.last(("id", 4)) is None
    metrics = ledger.metrics()
    assert metrics["logstore_cleanings_total"] == 2
    assert metrics["logstore_cleaner_read_bytes_total"] == 1800
    assert metrics["logstore_cleaner_kept_records_total"] == 6


def test_a_horizon_is_unknown_until_a_cleaning_tells_and_never_right_behind_it() -> None:
    ledger, point = CleaningLedger(), result().cleaned_to

    def known(unknown_ms: int) -> int:
        return ledger.horizon_ms(PLACE, point, lambda: None, unknown_ms)

    assert known(500) == 500
    assert known(900) == 500, "the first question counts"
    for told, due in ((NEVER, NEVER), (10**9, 10**9), (7, 1000 + SHORTEST_HORIZON_MS)):
        assert ledger.finished(PLACE, result(told), finished_ms=1000, took_s=0) == due
        assert known(900) == due


def test_the_mark_is_asked_once_for_each_point_that_another_process_reached() -> None:
    ledger, asked = CleaningLedger(), []

    def read() -> int:
        asked.append(1)
        return 70 + len(asked)

    assert [ledger.horizon_ms(PLACE, point, read, 5) for point in (3, 3, 8, 8)] == [71, 71, 72, 72]


def test_a_deleted_topic_is_forgotten() -> None:
    ledger = CleaningLedger()
    ledger.finished(PLACE, result(), finished_ms=5, took_s=0)
    ledger.failed(("id", 1), StorageError("no"), 0.0)
    ledger.failed(("other", 1), StorageError("no"), 0.0)
    ledger.forget("id")
    assert (ledger.last(PLACE), ledger.quarantined) == (None, 1)
