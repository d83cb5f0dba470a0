"""A fixed share of all interleavings of pairs of actions; `.ci/run` has a larger one, the command all of them."""

from __future__ import annotations

import pytest

from tests.interleave import matrix
from tests.interleave.actions import FIRSTS
from tests.interleave.matrix import Case

SHARES = 240  # of which the suite runs one


@pytest.mark.parametrize("first", sorted(FIRSTS))
def test_no_promise_is_broken_in_a_share_of_the_interleavings(first: str) -> None:
    cases = list(matrix.share(matrix.cases(first), 0, SHARES))
    outcomes = [matrix.run(case) for case in cases]
    assert len(outcomes) == len(cases)


@pytest.mark.parametrize("process", ["same", "other"])
def test_an_append_during_a_sync_is_no_part_of_it(process: str) -> None:
    assert matrix.run(Case("append", "look", process, 2, "before"), second_s=60) == "acted"
    assert matrix.run(Case("append", "append", "same", 2, "before")) in ("acted", "waited")


def test_a_case_is_named_so_that_it_can_be_run_again() -> None:
    case = Case("compact", "commit_offsets", "other", 17, "after")
    assert Case.parse(str(case)) == case
