"""An import killed at random times and resumed by name: the log holds the input, once and in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.killed_importer import difference, run_import, write_input


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kills"), [(1, 6), pytest.param(2, 30, marks=pytest.mark.long)])
def test_the_log_equals_the_input_after_random_kills(tmp_path: Path, seed: int, kills: int) -> None:
    done = run_import(tmp_path, seed, kills)
    print(done)
    assert done.landed == kills, "the input was long enough, and each kill came in time"
    assert done.resumed > 0


def test_the_comparison_finds_what_is_lost_doubled_moved_or_foreign(tmp_path: Path) -> None:
    rows = write_input(tmp_path / "f", 4_000, 7)
    right = [[row for row in rows if (row[0] or b"N0")[-1] % 2 == half] for half in (0, 1)]
    assert difference(rows, right) is None
    keyed = next(number for number, row in enumerate(right[0]) if row[0] is not None)
    again = next(
        number for number, row in enumerate(right[0]) if number > keyed and row[0] == right[0][keyed][0]
    )
    swapped = list(right[0])
    swapped[keyed], swapped[again] = swapped[again], swapped[keyed]
    planted = {
        "there 0 times": [right[0][1:], right[1]],
        "there 2 times": [[right[0][0], *right[0]], right[1]],
        "comes after": [swapped, right[1]],
        "is in partitions": [right[0][:again] + right[0][again + 1 :], [*right[1], right[0][again]]],
        "not in the input": [[*right[0], (b"N1", b"never sent")], right[1]],
    }
    for words, found in planted.items():
        assert words in str(difference(rows, found)), words
