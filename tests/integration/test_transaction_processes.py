"""Transactions of several real processes on one directory: a live owner, a killed one, one that was replaced."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import logstore
from logstore.store import LogStore
from logstore.types import TopicPartition
from tests.transaction_world import committed, settled, states
from tests.worker_process import PATIENCE_S, Worker

PLACE = TopicPartition("in", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("in")
        store.create_topic("out", partitions=2)
        store.partition("in", 0).append([(None, b"x")] * 10)
    return tmp_path / "store"


def job(workers: list[Worker], root: Path, transactional_id: str) -> Worker:
    worker = Worker("stay_open", root, transactional_id, module="tests.integration.transaction_jobs")
    workers.append(worker)
    worker.expect("open")
    return worker


def look(store: LogStore) -> None:
    """As the housekeeper does every second."""
    keeper = store.backend.transactions.reaper
    keeper._next_s = 0.0
    keeper.step()


def test_a_live_owner_is_left_alone_and_a_killed_one_is_not(root: Path, workers: list[Worker]) -> None:
    kept, lost = job(workers, root, "kept"), None
    with LogStore(root, threads=False) as store:
        for _ in range(5):
            look(store)
        assert states(store) == {"kept": "ONGOING"}
        assert committed(store) == []
        kept.tell("commit")
        kept.expect("committed")
        assert committed(store) == [b"kept 0", b"kept 1"]
        assert store.committed_offsets("g")[PLACE].offset == 5
        assert kept.finish() == 0
        lost = job(workers, root, "lost")
        lost.kill()
        assert not settled(store)
        look(store)
        assert states(store) == {"kept": "COMPLETE_COMMIT", "lost": "COMPLETE_ABORT"}
        assert settled(store)
        assert committed(store) == [b"kept 0", b"kept 1"]


def test_a_housekeeper_resolves_what_a_killed_process_left(root: Path, workers: list[Worker]) -> None:
    with logstore.open(root) as store:
        worker = job(workers, root, "lost")
        worker.kill()
        with store.consumer("out", group="readers") as consumer, store.producer() as producer:
            producer.send("out", b"behind", partition=0).result()
            deadline_s = time.monotonic() + PATIENCE_S
            found: list[bytes | None] = []
            while not found:
                assert time.monotonic() < deadline_s
                found += [record.value for record in consumer.poll(timeout_s=1)]
        assert found == [b"behind"]


@pytest.mark.slow
def test_an_id_opened_anew_fences_the_process_that_had_it(root: Path, workers: list[Worker]) -> None:
    worker = job(workers, root, "t")
    with logstore.open(root) as store:
        with store.producer(transactional_id="t") as producer, producer.transaction() as tx:
            tx.send("out", b"new", partition=0)
            tx.commit_offsets("g", {PLACE: 7})
        worker.tell("commit")
        worker.expect("fenced")
        assert worker.finish() == 0
        assert committed(store) == [b"new"]
        assert store.committed_offsets("g")[PLACE].offset == 7
