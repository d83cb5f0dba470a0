"""A part of the differential fuzz, and that it would tell a difference."""

from __future__ import annotations

import random

import pytest

from logstore.format import record
from tests.native import fuzz


def test_some_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--count", "150", "--seed", "7"]) == 0
    assert "150 each of sections, lists of rows and Arrow batches: no difference" in capsys.readouterr().out


def test_raw_bytes() -> None:
    dice = random.Random(5)
    for _ in range(300):
        fuzz.compare_bytes(dice.randbytes(dice.randint(0, 60)))


def test_a_difference_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "newest_record", lambda *arguments: (0, 0))
    assert fuzz.main(["--count", "50"]) == 1
    assert "newest_record of " in capsys.readouterr().out
