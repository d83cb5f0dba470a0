"""What an opened store makes of a catalogue that others changed under it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

import logstore
from logstore import LogStore
from logstore.errors import LockLostError, StoreReplacedError, TopicLockedError


def test_a_directory_made_anew_is_another_store_for_who_had_it_open(tmp_path: Path) -> None:
    """Its logs, live ends and committed offsets in memory are of a store that is gone: none of them is answered."""
    path = tmp_path / "store"
    with logstore.open(path) as store:
        store.create_topic("t")
        store.partition("t", 0).append([(b"k", b"old")])
    with logstore.open(path, mode="r") as reader, logstore.open(path) as writer:
        log = reader.partition("t", 0)
        assert [record.value for record in log.records(0)] == [b"old"]
        shutil.rmtree(path)
        with logstore.open(path) as other:
            other.create_topic("t")
            other.partition("t", 0).append([(b"k", b"new")])
        for _ in range(2):
            with pytest.raises(StoreReplacedError, match="made anew since it was opened"):
                reader.list_topics()
            with pytest.raises(StoreReplacedError):
                reader.partition("t", 0)
            with pytest.raises(LockLostError):  # its locks are gone with the directory, which is met first
                writer.create_topic("u")
        writer.abandon()
    with logstore.open(path, mode="r") as reader:
        assert [record.value for record in reader.partition("t", 0).records(0)] == [b"new"]


def test_all_topics_are_owned_or_none_and_those_that_come_later_too(tmp_path: Path) -> None:
    with (
        LogStore(tmp_path, lock_idle_release_s=0.01) as store,
        LogStore(tmp_path, lock_timeout_s=0.05) as other,
    ):
        for name in ("a", "b", "c"):
            store.create_topic(name)
        other.pin("b")
        with pytest.raises(TopicLockedError, match=f"1 topics of .* 'b' by pid {os.getpid()} "):
            store.pin_all()
        other.partition("a", 0).append([(None, b"x")])  # nothing is kept
        for name in ("a", "b"):
            other.release(name)
        store.pin_all()
        store.create_topic("later")
        for name in ("a", "b", "c", "later"):  # each try takes longer than an idle topic is kept
            with pytest.raises(TopicLockedError):
                other.partition(name, 0).append([(None, b"x")])
        other.create_topic("of-another")
        until_s = time.monotonic() + 30
        while store.describe_topic("of-another").owner is None:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        store.delete_topic("later")
        store.pin_all()  # again: nothing changes
    with LogStore(tmp_path) as store:
        store.pin_all()
        assert store.recovery_report == ()
