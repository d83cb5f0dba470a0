"""What an opened store makes of a catalogue that others changed under it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore.errors import LockLostError, StoreReplacedError


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
