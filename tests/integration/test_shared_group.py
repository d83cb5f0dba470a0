"""Processes that share a group: one is killed, one is stopped, one restarts; every record is read, none is missed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.store import LogStore
from logstore.types import TopicPartition
from tests.client.records import until
from tests.worker_process import Worker

PARTITIONS = 6
_JOB = "tests.integration.group_jobs"


class Feed:
    """Appends to every partition until it is ended."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._end.wait(0.01):
            for partition in range(PARTITIONS):
                self._store.partition("t", partition).append([(None, b"%d" % number)] * 3, acks=1)
            number += 1

    def end(self) -> None:
        self._end.set()
        self._thread.join()


class Member(Worker):
    """``read``: what it said it read, by partition."""

    def __init__(self, root: str, session_ms: int, *instance: str) -> None:
        super().__init__(root, "t", "g", session_ms, *instance, module=_JOB)
        self.read: dict[int, set[int]] = {partition: set() for partition in range(PARTITIONS)}
        self.has: list[int] = []
        self.said: list[str] = []

    def listen(self) -> None:
        """Take in all that it has said by now."""
        while not self.lines.empty():
            line = self.lines.get()
            if line is None:
                return
            word, *numbers = line.split()
            self.said.append(line)
            if word == "read":
                partition, first, last = map(int, numbers)
                self.read[partition].update(range(first, last + 1))
            elif word == "has":
                self.has = list(map(int, numbers))

    def heard(self, line: str) -> bool:
        self.listen()
        return line in self.said


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    with LogStore(tmp_path / "store") as store:
        store.create_topic("t", PARTITIONS)
        yield store


def share_is(sizes: list[int], *members: Member) -> bool:
    for member in members:
        member.listen()
    has = [partition for member in members for partition in member.has]
    return sorted(has) == list(range(PARTITIONS)) and sorted(len(member.has) for member in members) == sizes


@pytest.mark.slow
def test_a_killed_and_a_stopped_member(store: LogStore, workers: list[Worker]) -> None:
    feed = Feed(store)
    try:
        one, two, three = (Member(store.root, session_ms) for session_ms in (240_000, 3_000, 3_000))
        workers += [one, two, three]
        until(lambda: share_is([2, 2, 2], one, two, three), "three processes share")
        started_s = time.monotonic()
        one.kill()
        until(lambda: share_is([3, 3], two, three), "the killed one's partitions move")
        assert time.monotonic() - started_s < 60, "at once, not when its session ends"
        two.tell("hold")
        until(lambda: two.heard("holding"), "it has records, and did not commit them")
        two.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(two.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        until(lambda: share_is([6], three), "the stopped one's partitions move when its session ends")
        two.process.send_signal(signal.SIGCONT)
        two.tell("go")
        until(lambda: two.heard("refused UnknownMemberError"), "its commit is refused")
        until(lambda: share_is([3, 3], two, three), "it joined again")
        assert any(line.startswith("lost") for line in two.said)
    finally:
        feed.end()
    ends = {where: store.partition("t", where).log_end_offset for where in range(PARTITIONS)}
    wanted = {TopicPartition("t", partition): end for partition, end in ends.items()}
    until(
        lambda: {at: point.offset for at, point in store.committed_offsets("g").items()} == wanted,
        "all is read and committed",
    )
    assert (two.finish(), three.finish()) == (0, 0)
    for member in (one, two, three):
        member.thread.join()
        member.listen()
    for partition, end in ends.items():
        seen = one.read[partition] | two.read[partition] | three.read[partition]
        assert seen == set(range(end))
    assert store.admin.list_groups()[0].members == ()


def test_a_static_member_restarts_and_nothing_moves(store: LogStore, workers: list[Worker]) -> None:
    one, two = Member(store.root, 120_000, "one"), Member(store.root, 120_000, "two")
    workers += [one, two]
    until(lambda: share_is([3, 3], one, two), "two processes share")
    epoch, had = store.admin.list_groups()[0].epoch, two.has
    two.kill()
    workers.append(again := Member(store.root, 120_000, "two"))
    until(lambda: again.heard("has " + " ".join(map(str, had))), "it has what it had, at once")
    store.partition("t", had[0]).append([(None, b"v")])
    until(lambda: again.heard(f"read {had[0]} 0 0"), "and reads it")
    assert store.admin.list_groups()[0].epoch == epoch
    assert [line for line in one.said if line.startswith(("has", "lost"))][-1] == "has " + " ".join(
        map(str, one.has)
    )
    assert (one.finish(), again.finish()) == (0, 0)
