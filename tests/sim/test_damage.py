"""Bit flips and truncations, sampled; every one by hand."""

from __future__ import annotations

import pytest

from tests.sim.damage import check_damaged, run_flips, run_truncations, template


def test_flipped_bits() -> None:
    checks = list(run_flips())
    assert len(checks) > 400
    for check in checks:
        check()


def test_shortened_files() -> None:
    checks = list(run_truncations())
    assert len(checks) > 400
    for check in checks:
        check()


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_every_bit_and_every_length() -> None:
    for check in (*run_flips(1), *run_truncations(1)):
        check()


def test_an_undamaged_store_is_whole() -> None:
    made = template()
    assert 0 < made.recovery_point < len(made.rows)
    for name, content in made.files.items():
        check_damaged(name, content, len(made.rows))
