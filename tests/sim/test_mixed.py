"""Producers, transactions, cleaning, erasure and deletion: under crashes everywhere, and in random schedules."""

from __future__ import annotations

import pytest

from tests.sim.exhaustive import workloads
from tests.sim.ledger_workload import ALPHABET, Clean, End, Erase, Send
from tests.sim.mixed import CRITICAL, MixedSchedule, mixed_explorer, run_mixed, torn_tail
from tests.sim.schedules import Totals, run_schedules

SEEDS, CHUNK = 400, 100
SHORT = (Send(1, "ab"), End(1, commit=False), Clean())
# Seeds that once found a bug; schedules change with the simulator, so that what they do now may differ.
FOUND = {
    7: "a reader after a power loss believed a torn row of the newest transaction index",
    236: "recovery asked a torn index where producers go on, and took the torn end of the log for damage",
}


def check(totals: Totals, seeds: int) -> None:
    assert [f"seed {outcome.seed}: {outcome.violation}" for outcome in totals.violations] == []
    assert totals.schedules == seeds
    assert totals.amid > seeds // 4
    assert totals.recrashed > seeds // 10
    assert totals.kills > seeds // 10


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_mixed_schedules(start: int) -> None:
    check(run_schedules(range(start, start + CHUNK), MixedSchedule), CHUNK)


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_something(seed: int) -> None:
    assert run_mixed(seed).violation is None


@pytest.mark.slow
def test_single_calls_and_the_critical_ones() -> None:
    chosen = [*workloads(1, ALPHABET), *CRITICAL]
    counts = mixed_explorer(limit=6, recrash_every=150).explore(chosen)
    assert counts.workloads == len(chosen)
    assert counts.distinct > 500
    assert counts.crashed_recoveries > 100


@pytest.mark.slow
def test_up_to_three_calls_about_an_aborted_transaction() -> None:
    counts = mixed_explorer(limit=5, recrash_every=1_000).explore(workloads(3, SHORT))
    assert counts.workloads == 1 + 3 + 9 + 27
    assert counts.distinct > 400


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("chunk", range(40))
def test_up_to_three_calls(chunk: int) -> None:
    mixed_explorer(limit=40).explore(list(workloads(3, ALPHABET))[chunk::40])


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("start", range(SEEDS, 200_000, 5_000))
def test_many_mixed_schedules(start: int) -> None:
    check(run_schedules(range(start, start + 5_000), MixedSchedule), 5_000)


@pytest.mark.parametrize("seed", range(40))
def test_keys_are_erased_from_torn_tails(seed: int) -> None:
    torn_tail(seed)


def test_the_same_seed_gives_the_same_trace() -> None:
    for seed in range(10):
        assert run_mixed(seed, trace=True).trace == run_mixed(seed, trace=True).trace


def test_every_call_comes_up() -> None:
    calls = {line.partition("(")[0] for seed in range(60) for line in run_mixed(seed).trace}
    assert calls >= {
        *("Put", "Send", "Resend", "Gap", "NewId", "End", "Import", "Clean", "Slice", "Erase", "Recreate"),
        *("Watch", "Flush", "Read", "Reopen", "Trim", "Tick"),
    }
    assert Erase("a") in ALPHABET
