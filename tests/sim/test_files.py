"""Single bits and lengths of every kind of file, sampled; every one by hand."""

from __future__ import annotations

import pytest

from tests.sim.files import (
    STORE_BYTES,
    check_damaged,
    kinds_of_files,
    reference,
    run_file_checks,
    run_file_flips,
    run_file_lengths,
)

FLIPS, LENGTHS = 1_601, 401  # one of so many


def test_a_sample() -> None:
    counts = run_file_checks([*run_file_flips(FLIPS), *run_file_lengths(LENGTHS)])
    assert counts.violations == []
    assert counts.flips > 300
    assert counts.lengths > 150
    assert counts.data > 20
    assert counts.errors > 300


def test_an_undamaged_store_is_whole() -> None:
    made = reference()
    for path, content in made.files.items():
        assert check_damaged(path, content) == "data"
    assert made.recovery_point < made.model.ledger.end


def test_the_store_is_large_enough_and_has_all_kinds_of_files() -> None:
    assert sum(map(len, reference().files.values())) >= STORE_BYTES
    assert kinds_of_files() >= {
        "log",
        "index",
        "timeindex",
        "txnindex",
        "snapshot",
        "swap",
        "cleaned",
        "json",
    }
    assert kinds_of_files() >= {"leader-epoch-checkpoint", "metadata"}


def test_shares_add_up_to_the_whole() -> None:
    whole = {check.args for check in run_file_lengths(1)}
    parts = [check.args for seed in range(50) for check in run_file_lengths(50, seed)]
    assert len(parts) == len(whole)
    assert set(parts) == whole


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(32))
def test_every_bit_and_every_length(seed: int) -> None:
    counts = run_file_checks([*run_file_flips(32, seed), *run_file_lengths(32, seed)])
    assert counts.violations == []
