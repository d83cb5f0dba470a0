"""What coordination says through ``logging``: rebalances, transactions that others end, recoveries."""

from __future__ import annotations

import logging

import pytest

from logstore.seams.faults import FaultKind
from logstore.types import OffsetAndMetadata, TopicPartition
from tests.transaction_world import World, Writer


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == level and record.name.startswith("logstore.")
    ]


def test_a_rebalance_is_told_for_each_member(caplog: pytest.LogCaptureFixture) -> None:
    store = World().made()
    with caplog.at_level(logging.INFO), store.consumer("out", group="g") as first:
        first.poll(timeout_s=0)
        with store.consumer("out", group="g") as second:
            second.poll(timeout_s=0)
    lines = [line for line in said(caplog, logging.INFO) if line.startswith("group 'g': member ")]
    assert any("has 3 partitions in generation 1, and 0 to give up" in line for line in lines)
    assert any("has 2 partitions in generation 2, and 1 to give up" in line for line in lines)


def test_a_transaction_past_its_timeout_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    store = world.made()
    writer = Writer(store, timeout_ms=1_000)
    writer.begin()
    writer.send(b"x")
    with caplog.at_level(logging.INFO):
        world.turn(store, times=3)
    (warning,) = said(caplog, logging.WARNING)
    assert warning.startswith("a transaction of 't' was open for more than transaction_timeout_ms=1000")


def test_a_transaction_of_a_process_that_is_gone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    store, other = world.made(), world.process()
    writer = Writer(store)
    writer.begin()
    writer.send(b"x")
    store.abandon()
    with caplog.at_level(logging.INFO):
        world.turn(other, times=2)
    assert "a transaction of 't', whose process is gone, is aborted" in said(caplog, logging.INFO)


def test_a_recovery_of_an_internal_topic_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    store = world.made()
    place = {TopicPartition("in", 0): OffsetAndMetadata(1)}
    store.commit_offsets("g", place)
    world.fs.faults.on("sync", FaultKind.FAILED_SYNC, path_ends=".log")
    with pytest.raises(Exception, match="may or may not be durable"):
        store.commit_offsets("g", place)
    with caplog.at_level(logging.INFO):
        store.commit_offsets("g", place)
    assert any(
        line.startswith("recovered __consumer_offsets-0 up to offset 2")
        for line in said(caplog, logging.INFO)
    )
