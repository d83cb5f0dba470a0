"""A disk that is slow, full or broken when the test says so."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import logstore
from logstore.errors import DiskFullError, LogStoreError, OutcomeUnknownError
from logstore.testing import FaultyDisk, MovedClock


def test_full_and_free_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with logstore.open(tmp_path / "s", fs=disk) as store:
        store.create_topic("t")
        log = store.partition("t", 0)
        log.append([(None, b"before")])
        disk.full = True
        with pytest.raises(DiskFullError):
            log.append([(None, b"no")])
        assert [record.value for record in log.records(0)] == [b"before"]
        disk.full = False
        log.append([(None, b"after")])
        assert [record.value for record in log.records(0)] == [b"before", b"after"]
    assert disk.refusals > 0


def test_other_processes_are_kept_out_as_by_any_disk(tmp_path: Path) -> None:
    with logstore.open(tmp_path / "s", fs=FaultyDisk()) as store:
        store.create_topic("t")
        store.partition("t", 0).append([(None, b"x")])
        with logstore.open(tmp_path / "s", lock_timeout_s=0) as other, pytest.raises(LogStoreError):
            other.partition("t", 0).append([(None, b"y")])


def test_a_broken_sync_is_never_an_acknowledgement(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = logstore.open(tmp_path / "s", fs=disk)
    store.create_topic("t")
    log = store.partition("t", 0)
    log.append([(None, b"x")])
    disk.broken = True
    with pytest.raises(OutcomeUnknownError):
        log.append([(None, b"y")])
    disk.broken = False
    store.abandon()


def test_slow_syncs_take_their_time(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with logstore.open(tmp_path / "s", fs=disk) as store:
        store.create_topic("t")
        log = store.partition("t", 0)
        log.append([(None, b"x")])
        disk.slow_s = 0.2
        began_s = time.monotonic()
        log.append([(None, b"y")])
        assert time.monotonic() - began_s >= 0.2
        disk.slow_s = 0.0


def test_time_goes_on_for_retention(tmp_path: Path) -> None:
    clock = MovedClock()
    with logstore.open(tmp_path / "s", clock=clock) as store:
        store.create_topic("t", config={"retention.ms": "60000", "segment.ms": "1000"})
        log = store.partition("t", 0)
        log.append([(None, b"old")])
        clock.advance(3_600_000)
        log.append([(None, b"new")])
        store.maintain()
        assert [record.value for record in log.records(log.log_start_offset)] == [b"new"]
    with pytest.raises(ValueError, match="goes on only"):
        clock.advance(-1)
