"""A lock file that was removed or replaced under its holder: nothing more is written, and the store can be reopened."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logstore.errors import LockLostError, LogStoreError
from logstore.ownership.lock_mechanism import RangeLocks, WholeFileLocks
from logstore.ownership.locks import FileLocks
from logstore.ownership.member_slots import MemberSlots
from logstore.seams.clock import ManualClock
from logstore.store import LogStore

ROW = [(None, b"x")]


def _remove(locks: Path) -> None:
    shutil.rmtree(locks)


def _move(locks: Path) -> None:
    os.rename(locks, locks.with_name(".locks-moved"))


def _replace_file(locks: Path) -> None:
    os.unlink(locks / "topics")
    (locks / "topics").write_bytes(b"")


@pytest.mark.parametrize("harm", [_remove, _move, _replace_file])
def test_a_second_writer_does_not_get_in_beside_the_first(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    root = tmp_path / "store"
    first = LogStore(root)
    first.create_topic("t")
    first.partition("t", 0).append(ROW)
    producer = first.producer()
    harm(root / ".locks")
    with LogStore(root) as second:
        second.partition("t", 0).append([(None, b"second")])
        state = (root / ".state" / "t.json").read_bytes()
        for call in (
            lambda: first.partition("t", 0).append(ROW),
            lambda: first.partition("t", 0).append(ROW, acks=1),
            lambda: producer.send("t", b"x").result(),
            lambda: first.create_topic("u"),
            lambda: first.release("t"),
            lambda: first.commit_offsets("g", {}),
            lambda: first.producer(name="n"),
        ):
            with pytest.raises(LockLostError, match=r"\.locks/topics was removed or replaced") as caught:
                call()
            assert "open it again" in str(caught.value)
        producer.close()
        first.close()  # the release above has told
        assert (root / ".state" / "t.json").read_bytes() == state, "the second one's state stands"
        second.partition("t", 0).append([(None, b"more")])
    with LogStore(root) as again:
        assert [record.value for record in again.partition("t", 0).records(0)] == [b"x", b"second", b"more"]


def test_unsynced_records_are_not_flushed_into_anothers_topic(tmp_path: Path) -> None:
    root = tmp_path / "store"
    first = LogStore(root)
    first.create_topic("t", config={"flush.ms": "600000"})
    first.partition("t", 0).append(ROW, acks=1)
    _remove(root / ".locks")
    with LogStore(root) as second:
        second.partition("t", 0).append([(None, b"second")])
        seen = second.describe_topic("t").partitions[0].high_watermark
        with pytest.raises(LogStoreError):
            first.close()
        assert second.describe_topic("t").partitions[0].high_watermark == seen == 2
        assert second.partition("t", 0).append(ROW).offset == 2


@pytest.mark.parametrize("mechanism", [RangeLocks, WholeFileLocks])
def test_the_check_looks_at_the_file_once_a_millisecond(tmp_path: Path, mechanism: type) -> None:
    clock = ManualClock()
    locks = FileLocks(str(tmp_path / "topics"), clock=clock, mechanism=mechanism)
    assert locks.try_acquire(1)
    locks.check()
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    locks.check()  # within the millisecond
    with pytest.raises(LockLostError):
        locks.check(now=True)
    with pytest.raises(LockLostError):
        locks.check()  # what is lost stays lost
    locks.close()


def test_members_and_names_are_told(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = LogStore(root)
    store.create_topic("t")
    named = store.producer(name="n")
    named.send("t", b"a").result()
    (lock,) = (root / ".locks").glob("producer-*")
    lock.unlink()
    with pytest.raises(LockLostError, match="producer-"):
        named.last_sequence("t", 0)
    slots = MemberSlots(store._context)
    slot = slots.take("0" * 32)
    (root / ".locks" / "members").unlink()
    for call in (lambda: slots.beat(slot, "0" * 32), lambda: slots.take("1" * 32)):
        with pytest.raises(LockLostError, match="members"):
            call()
    slots.close()
    shutil.rmtree(root / ".locks")
    with pytest.raises(LockLostError, match="topics"):
        store.close()
    with LogStore(root) as again, again.producer(name="n") as named:
        assert named.last_sequence("t", 0) == 1
