"""A full device, a pipe that nobody reads, no stdout: help, version, lists and records end as documented."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Shell
from tests.cli.failing_streams import CASES, Outcome, run_cases


def is_right(case: str, outcome: Outcome) -> bool:
    if "Traceback" in outcome.errors or "Exception ignored" in outcome.errors:
        return False
    if case == "closed pipe":
        return outcome.code == 141
    if "--json" in outcome.words:
        return outcome.code == 1 and "message" in json.loads(outcome.errors.splitlines()[-1])["error"]
    return outcome.code == 1 and (
        "No space left" in outcome.errors or "cannot write to stdout" in outcome.errors
    )


@pytest.mark.parametrize("unbuffered", [False, True], ids=["buffered", "PYTHONUNBUFFERED"])
@pytest.mark.parametrize("case", CASES)
def test_help_version_and_lists(filled: Shell, case: str, unbuffered: bool) -> None:
    calls = [["--help"], ["--version"], ["topic", "--help"], ["--json", "topic", "list"], ["topic", "list"]]
    calls += [["consume", "t", "-e"], ["log", "dump", "t"], ["topic", "describe", "t"]]
    check(case, run_cases(filled.store, case, calls, unbuffered=unbuffered))


def check(case: str, outcomes: list[Outcome]) -> None:
    assert outcomes
    wrong = [outcome for outcome in outcomes if not is_right(case, outcome)]
    assert not wrong, "\n".join(map(str, wrong))
