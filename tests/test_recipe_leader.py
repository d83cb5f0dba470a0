"""Leader election, as `logstore/GUIDES.md` has it: one leads, and one that lost its partition is fenced."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import logstore
from tests.recipes import blocks, recipe

DEADLINE_S = 60.0


def candidate(store: logstore.LogStore, **settings: Any) -> Any:
    names: dict[str, Any] = {"logstore": logstore}
    exec(blocks("Leader election")[0], names)
    return names["Candidate"](store, "scheduler", **settings)


def until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end_s, "it did not come to pass"


def test_it_runs_as_it_stands(tmp_path: Path) -> None:
    program = tmp_path / "recipe.py"
    program.write_text("import logstore\n" + recipe("Leader election"))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_one_of_many_leads_and_the_next_takes_over() -> None:
    with logstore.open(":memory:") as store:
        store.create_topic("scheduler")
        waiting = [candidate(store) for _ in range(4)]
        terms: list[int] = []
        while waiting:
            until(lambda: sum(one.step(timeout_s=0.005) for one in waiting) > 0)
            leaders = [one for one in waiting if one.confirm()]
            assert len(leaders) == 1
            terms.append(leaders[0].term)
            leaders[0].close()
            waiting.remove(leaders[0])
        assert terms == sorted(set(terms))


def test_a_leader_that_does_not_poll_is_fenced() -> None:
    """Its heart beats on, but it hangs in its work: another one leads, and what it confirms is refused."""
    with logstore.open(":memory:") as store:
        store.create_topic("scheduler")
        stuck = candidate(store, max_poll_interval_ms=300)
        until(lambda: bool(stuck.step(timeout_s=0.005)))
        other = candidate(store)
        until(lambda: bool(other.step(timeout_s=0.005)))
        assert other.confirm()
        assert not stuck.confirm()
        assert stuck.term is None
        assert other.confirm()
        stuck.close()
        other.close()
