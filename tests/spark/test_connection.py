"""Stores that a process keeps open for Spark: whether their directory is still theirs."""

from __future__ import annotations

import shutil
from pathlib import Path

import logstore
from logstore import LogStore
from logstore.seams.clock import ManualClock
from spark_connector.connection import is_there


def test_a_directory_that_was_replaced_within_a_moment_is_seen(tmp_path: Path) -> None:
    """The clock stands still: what may be some milliseconds old elsewhere is not good enough here."""
    with LogStore(tmp_path / "store", clock=ManualClock(), threads=False) as store:
        store.backend.metadata_version()
        assert is_there(store)
        shutil.rmtree(tmp_path / "store")
        assert not is_there(store)
        logstore.open(tmp_path / "store").close()
        store.backend.metadata_version()  # may look some milliseconds later
        assert not is_there(store)
