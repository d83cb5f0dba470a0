"""A producer's name: one holder at a time, in any thread and process, and what opening it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.api.groups import JoinRequest
from logstore.directory.named_producers import LAST_EPOCH
from logstore.errors import (
    InvalidArgumentError,
    ProducerBusyError,
    ReadOnlyStoreError,
    UnknownTopicError,
)
from logstore.store import LogStore
from tests.child import child

REPOSITORY = Path(__file__).resolve().parent.parent

HOLD = """
import sys
from logstore.store import LogStore
store = LogStore(sys.argv[1])
lease = store.backend.init_producer("import")
print(lease.epoch, flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStore]:
    with LogStore(":memory:" if request.param == "memory" else tmp_path / "s") as opened:
        yield opened


def test_a_name_is_held_until_it_is_released(store: LogStore) -> None:
    backend = store.backend
    first = backend.init_producer("import")
    with pytest.raises(ProducerBusyError, match=f"'import' is open: pid {os.getpid()} on "):
        backend.init_producer("import")
    with pytest.raises(ProducerBusyError):
        store.admin.delete_producer("import")
    other = backend.init_producer("other")
    first.release()
    first.release()
    again = backend.init_producer("import")
    assert (again.producer_id, again.epoch) == (first.producer_id, 1)
    assert other.producer_id != again.producer_id
    again.release()
    other.release()


def test_a_group_of_the_same_name_is_no_holder(store: LogStore) -> None:
    member = store.backend.join_group("import", JoinRequest(topics=frozenset()))
    store.backend.init_producer("import").release()
    member.leave()


def test_names_are_listed_and_deleted(store: LogStore) -> None:
    lease = store.backend.init_producer("b")
    store.backend.init_producer("a").release()
    a, b = store.admin.list_producers()
    assert (a.name, a.epoch, a.holder) == ("a", 0, None)
    assert b.producer_ids == (lease.producer_id,)
    assert f"pid {os.getpid()}" in str(b.holder)
    lease.release()
    store.admin.delete_producer("b")
    assert [one.name for one in store.admin.list_producers()] == ["a"]
    with pytest.raises(InvalidArgumentError, match="no producer 'b'"):
        store.admin.delete_producer("b")
    fresh = store.backend.init_producer("b")
    assert (fresh.epoch, fresh.producer_id != lease.producer_id) == (0, True)
    fresh.release()


def test_an_era_has_an_id_that_stays(store: LogStore) -> None:
    lease = store.backend.init_producer("import")
    ids = [lease.producer_id_of(era) for era in (0, 1, 2)]
    assert len(set(ids)) == 3
    assert [lease.producer_id_of(era) for era in (0, 1, 2)] == ids
    lease.release()
    again = store.backend.init_producer("import")
    assert [again.producer_id_of(era) for era in (0, 1, 2)] == ids
    again.release()


def test_an_unnamed_one_bumps_its_epoch_and_then_its_id(store: LogStore) -> None:
    lease = store.backend.init_producer(None)
    first = lease.producer_id
    seen = set()
    for _ in range(LAST_EPOCH + 2):
        seen.add((lease.producer_id, lease.epoch))
        lease.bump()
    assert len(seen) == LAST_EPOCH + 2
    assert lease.producer_id == lease.producer_id_of(5) > first
    with pytest.raises(InvalidArgumentError, match="has no name"):
        lease.last_sequence("t", 0)


def test_a_named_one_never_begins_again(store: LogStore) -> None:
    lease = store.backend.init_producer("import")
    with pytest.raises(InvalidArgumentError, match="never restart"):
        lease.bump()
    with pytest.raises(UnknownTopicError):
        lease.last_sequence("t", 0)
    with pytest.raises(UnknownTopicError):
        lease.spread("t")
    lease.release()


def test_bad_names_and_read_only_stores_are_refused(tmp_path: Path) -> None:
    with LogStore(tmp_path / "s") as store:
        for name in ("", "a b", "x" * 250, 5):
            with pytest.raises(InvalidArgumentError, match="cannot name a producer"):
                store.backend.init_producer(name)  # type: ignore[arg-type]
        assert store.admin.list_producers() == []
        store.backend.init_producer("import").release()
    with LogStore(tmp_path / "s", "r") as store:
        assert [one.name for one in store.admin.list_producers()] == ["import"]
        with pytest.raises(ReadOnlyStoreError):
            store.backend.init_producer("import")
        with pytest.raises(ReadOnlyStoreError):
            store.backend.init_producer(None).producer_id  # noqa: B018 - the id would be taken here


def test_another_process_is_named_and_its_end_frees_the_name(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "s")]
    with (
        child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY) as holder,
        LogStore(tmp_path / "s") as store,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"0\n"
        with pytest.raises(ProducerBusyError, match=f"pid {holder.pid} on "):
            store.backend.init_producer("import")
        (row,) = store.admin.list_producers()
        assert f"pid {holder.pid}" in str(row.holder)
        holder.send_signal(signal.SIGKILL)
        holder.wait(30)
        lease = store.backend.init_producer("import")
        assert lease.epoch == 1
        lease.release()
