"""A sync that fails at each kind of file: a share of all of them here, all behind the long marker."""

from __future__ import annotations

import pytest

from tests.interleave import failed_sync
from tests.interleave.failed_sync import SWEPT, Failure

QUICK = ("append", "commit_offsets", "commit_transaction", "trim", "create")


@pytest.mark.parametrize("action", QUICK)
def test_no_promise_rests_on_a_sync_that_failed(action: str) -> None:
    fired = [failed_sync.run(failure) for failure in failed_sync.failures(action)]
    assert all(fired)


def first_of_each_kind(action: str) -> list[Failure]:
    return list({failure.kind: failure for failure in reversed(list(failed_sync.failures(action)))}.values())


def test_a_store_whose_checkpoints_fail_is_left_sound() -> None:
    """Logs, indexes, transaction indexes, snapshots and states, of internal topics, too."""
    found = first_of_each_kind("leave")
    synced = [failure.path.removesuffix(".tmp") for failure in found if failure.call == "sync"]
    suffixes = {path.rpartition(".")[2] for path in synced}
    assert suffixes >= {"log", "index", "timeindex", "txnindex", "snapshot", "json"}
    for name in ("__consumer_offsets", "__transaction_state"):
        assert any(name in failure.path for failure in found)
    for failure in found[::3]:
        failed_sync.run(failure)


@pytest.mark.long
@pytest.mark.parametrize("action", SWEPT)
def test_no_promise_rests_on_any_sync_that_failed(action: str) -> None:
    for failure in failed_sync.failures(action):
        failed_sync.run(failure)
