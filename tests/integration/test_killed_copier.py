"""A copy in transactions, killed at random times: its output is its input, once and in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.killed_copier import difference, run_copy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "records", "kills"), [(3, 20_000, 4), pytest.param(4, 100_000, 100, marks=pytest.mark.long)]
)
def test_the_output_equals_the_input_after_random_kills(
    tmp_path: Path, seed: int, records: int, kills: int
) -> None:
    done = run_copy(tmp_path, seed, records, kills)
    print(done)
    assert done.landed == kills, "the input was long enough, and each kill came in time"


def test_the_comparison_finds_what_is_lost_doubled_moved_or_foreign() -> None:
    right = [(b"k", b"%d" % number) for number in range(50)]
    assert difference(right, [*right]) is None
    planted = {
        "49 records, 50 are due": right[:-1],
        "51 records, 50 are due": [*right, right[-1]],
        "record 7 is": [*right[:7], right[8], right[7], *right[9:]],
        "record 20 is": [*right[:20], (b"k", b"never sent"), *right[21:]],
    }
    for words, found in planted.items():
        assert words in str(difference(right, found)), words
