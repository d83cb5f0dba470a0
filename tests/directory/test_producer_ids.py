"""Blocks of producer ids: durable before use, never handed out twice."""

from __future__ import annotations

import threading

import pytest

from logstore.directory.producer_ids import ProducerIds
from logstore.errors import DiskFullError, LogStoreError
from logstore.seams.faults import FaultKind, SimulatedCrash
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.store import LogStore


class Blocks:
    def __init__(self) -> None:
        self.next = 0
        self.taken = 0

    def take(self, count: int) -> int:
        self.taken += 1
        self.next += count
        return self.next - count


def test_a_block_is_taken_when_it_is_needed() -> None:
    blocks = Blocks()
    ids, others = ProducerIds(blocks.take, 3), ProducerIds(blocks.take, 3)
    assert blocks.taken == 0
    assert [ids.take() for _ in range(4)] == [0, 1, 2, 3]
    assert [others.take(), ids.take()] == [6, 4]
    assert blocks.taken == 3


def test_a_block_that_could_not_be_written_is_not_used() -> None:
    answers: list[int | LogStoreError] = [DiskFullError("full"), 40]

    def take(_: int) -> int:
        answer = answers.pop(0)
        if isinstance(answer, LogStoreError):
            raise answer
        return answer

    ids = ProducerIds(take, 2)
    with pytest.raises(DiskFullError):
        ids.take()
    assert [ids.take(), ids.take()] == [40, 41]


def test_threads_share_no_id() -> None:
    ids = ProducerIds(Blocks().take, 7)
    found: list[int] = []

    def take() -> None:
        found.extend([ids.take() for _ in range(200)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 800


def test_no_id_comes_back_after_a_crash_at_any_call() -> None:
    """Whatever was handed out before the power went, for a name or without one, is not handed out again."""
    states = 0
    for call in range(1, 60):
        fs = MemoryFileSystem()
        store = LogStore("/s", fs=fs, threads=False)
        fs.faults.at(fs.faults.calls + call, FaultKind.CRASH)
        handed_out: list[int] = []
        crashed = False
        try:
            backend = store.backend
            handed_out.append(backend.init_producer(None).producer_id)
            handed_out.append(backend.init_producer("n").producer_id)
            handed_out.append(backend.init_producer(None).producer_id)
            handed_out.append(backend.init_producer("m").producer_id_of(1))
        except SimulatedCrash:
            crashed = True
        store.abandon()
        for survivor in fs.crash_states(8):
            with LogStore("/s", fs=survivor, threads=False) as again:
                fresh = {again.backend.init_producer(None).producer_id for _ in range(3)}
                assert not fresh & set(handed_out)
                lease = again.backend.init_producer("n")
                assert lease.producer_id not in fresh
                states += 1
                lease.release()
        if not crashed:
            break
    else:
        raise AssertionError("the run never came to its end")
    assert states > 10
