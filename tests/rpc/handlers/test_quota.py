"""Quotas: never more than rate * t and a burst passes; which callers share an account; a bounded number of accounts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpc.errors import BrokerBusyError, BrokerUnavailableError
from rpc.handlers.caller import Caller
from rpc.handlers.quota import Quota
from rpc.handlers.waits import Waits
from tests.rpc.handlers.quotas import Hands, quota

ALICE = Caller("User:alice", "app")
# What happens: seconds go by, then a caller asks for so many bytes.
STEPS = st.lists(st.tuples(st.floats(0, 5), st.integers(0, 5_000)), max_size=60)


def takes(of: Quota, caller: Caller, size: int) -> bool:
    try:
        of.take(caller, size)
    except BrokerBusyError:
        return False
    return True


@given(rate=st.integers(1, 2_000), burst_s=st.floats(0.01, 3), steps=STEPS)
def test_never_more_than_the_rate_and_a_burst_passes(
    rate: int, burst_s: float, steps: list[tuple[float, int]]
) -> None:
    clock = Hands()
    tried = quota(rate, clock=clock, burst_s=burst_s)
    passed: list[tuple[float, int]] = []
    for pause_s, size in steps:
        clock.now_s += pause_s
        if takes(tried, ALICE, size):
            passed.append((clock.now_s, size))
    burst = max(rate * burst_s, 1.0, *(size for _, size in passed)) if passed else 0.0
    for first, (from_s, _) in enumerate(passed):  # between any two moments
        for until in range(first, len(passed)):
            total = sum(size for _, size in passed[first : until + 1])
            assert total <= rate * (passed[until][0] - from_s) + burst + 1e-3 + 1e-6 * total


@given(rate=st.integers(1, 2_000), sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=30))
def test_what_is_sent_again_when_the_answer_said_so_passes(rate: int, sizes: list[int]) -> None:
    clock = Hands()
    tried = quota(rate, clock=clock)
    for size in sizes:
        try:
            tried.take(ALICE, size)
        except BrokerBusyError as busy:
            clock.now_s += busy.retry_after_ms / 1000
            tried.take(ALICE, size)


@given(
    rate=st.integers(1, 2_000), steps=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5_000)), max_size=40)
)
def test_of_reads_there_passes_a_burst_and_a_batch_at_most(rate: int, steps: list[tuple[float, int]]) -> None:
    """A batch that is larger than what may be read is sent whole."""
    clock = Hands()

    async def run() -> None:
        waits = Waits()
        reading = quota(rate, clock=clock, direction="fetch", waits=waits)
        waits.end()  # a wait that is due is refused instead
        bucket = reading.bucket(ALICE)
        assert bucket is not None
        began_s, total, largest = clock.now_s, 0, 0
        for pause_s, batch in steps:
            clock.now_s += pause_s
            try:
                async with reading.reading(bucket, 10_000) as most:
                    read = max(batch, most // batch * batch)
                    bucket.charge(read)
            except (BrokerBusyError, BrokerUnavailableError):
                continue
            total, largest = total + read, max(largest, batch)
            assert total <= rate * (clock.now_s - began_s) + max(rate, 1) + largest + 1e-3 + 1e-6 * total

    asyncio.run(run())


def test_each_client_id_of_each_principal_has_its_own_account() -> None:
    tried = quota(100)
    assert takes(tried, ALICE, 100)
    assert not takes(tried, ALICE, 1)
    assert takes(tried, Caller("User:alice", "other"), 100)
    assert takes(tried, Caller("User:bob", "app"), 100)


def test_the_most_exact_rule_counts_and_a_principal_clients_share_its_quota() -> None:
    rules = "User:alice produce=50; User:alice/free produce=0; */slow produce=10 fetch=1; User:bob fetch=1"
    tried = quota(100, rules)
    assert takes(tried, Caller("User:alice", "x"), 50)
    assert not takes(tried, Caller("User:alice", "y"), 1)
    assert takes(tried, Caller("User:alice", "free"), 10**9)
    assert takes(tried, Caller("User:carol", "slow"), 10)
    assert not takes(tried, Caller("User:carol", "slow"), 1)
    assert takes(tried, Caller("User:dave", "slow"), 10)  # an account for each principal
    assert takes(tried, Caller("User:bob", "app"), 100)  # its rule says nothing of produce
    assert quota(0, "User:bob fetch=1").bucket(ALICE) is None


def test_a_request_larger_than_a_burst_passes_when_the_bucket_is_full_and_is_paid_off() -> None:
    clock = Hands()
    tried = quota(100, clock=clock)
    assert takes(tried, ALICE, 1000)
    with pytest.raises(BrokerBusyError, match="100 bytes a second") as busy:
        tried.take(ALICE, 1000)
    assert busy.value.retry_after_ms == 10_000
    clock.now_s += 9.99
    assert not takes(tried, ALICE, 1000)
    clock.now_s += 0.01
    assert takes(tried, ALICE, 1000)
    assert tried.held_back == 2


def test_accounts_are_bounded_and_a_new_name_buys_nothing_then() -> None:
    clock = Hands()
    tried = quota(100, clock=clock, most_callers=5)
    for n in range(5):
        assert takes(tried, Caller("User:alice", f"c{n}"), 100)
    assert takes(tried, Caller("User:alice", "one more"), 100)
    assert not takes(tried, Caller("User:alice", "yet another"), 1)  # those beyond share one
    assert tried.tracked == 5
    clock.now_s += 1  # all are full again: what was not used for longest makes room
    assert takes(tried, Caller("User:alice", "later"), 100)
    assert takes(tried, Caller("User:alice", "later still"), 100)
    assert tried.tracked <= 5


def test_a_stream_waits_for_its_quota_until_the_broker_stops() -> None:
    async def run() -> None:
        waits, clock = Waits(), Hands()
        tried = quota(1000, clock=clock, waits=waits)
        await tried.wait_to_take(ALICE, 1000)
        waiting = asyncio.create_task(tried.wait_to_take(ALICE, 10))
        await asyncio.sleep(0)
        clock.now_s += 0.02
        await waiting
        late = asyncio.create_task(tried.wait_to_take(ALICE, 1000))
        await asyncio.sleep(0)
        waits.end()
        with pytest.raises(BrokerUnavailableError):
            await late

    asyncio.run(run())


def test_reads_beyond_a_long_delay_are_refused_with_the_time() -> None:
    async def run() -> None:
        reading = quota(10, direction="fetch")
        bucket = reading.bucket(ALICE)
        assert bucket is not None
        async with reading.reading(bucket, 1000) as most:
            assert most == 10
            bucket.charge(1000)
        with pytest.raises(BrokerBusyError) as busy:
            async with reading.reading(bucket, 1000):
                pass
        assert busy.value.retry_after_ms > 10_000
        assert not bucket.turn.locked()

    asyncio.run(run())
