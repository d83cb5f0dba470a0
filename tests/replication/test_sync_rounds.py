"""Syncs of a node's logs: few go one by one, side by side; of many few are under way, and take all that wait."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from logstore.seams.clock import ManualClock
from replication.memory_network import MemoryNetwork
from replication.node import ReplicationNode


class Log:
    """A replica that only wants to be synced."""


class Node:
    """``begun``: how many logs each sync took; ``during``: what happens in the next one."""

    def __init__(self) -> None:
        line = MemoryNetwork().line(1)
        self.node = ReplicationNode(1, line, ManualClock(0), random.Random(1), threads=False, together_from=6)
        self.begun: list[int] = []
        self.during: list[Callable[[], object]] = []

    def want(self, *logs: Log) -> None:
        for log in logs:
            one: Any = log
            self.node.wants_sync(one)

    def sync(self) -> bool:
        with mock.patch("replication.node.sync_replicas", self._sync):
            return self.node.sync_waiting()

    def _sync(self, replicas: Sequence[object]) -> None:
        self.begun.append(len(replicas))
        if self.during:
            self.during.pop(0)()


def logs(count: int) -> list[Log]:
    return [Log() for _ in range(count)]


def test_few_go_one_by_one_side_by_side() -> None:
    made = Node()
    made.want(*logs(5))
    made.during = [made.sync] * 4  # each while those before it are under way
    assert made.sync()
    assert made.begun == [1] * 5
    assert not made.sync()


def test_many_go_together() -> None:
    made = Node()
    made.want(*logs(20))
    assert made.sync()
    assert made.begun == [20]


def test_what_comes_while_two_syncs_of_many_are_under_way_waits_for_the_next() -> None:
    made = Node()
    refused: list[bool] = []

    def second() -> None:
        made.want(*logs(1))
        made.during.append(third)
        assert made.sync()

    def third() -> None:
        made.want(*logs(4))
        refused.append(made.sync())

    made.want(*logs(8))
    made.during.append(second)
    assert made.sync()
    assert refused == [False]
    assert made.begun == [8, 1]
    assert made.sync()
    assert made.begun == [8, 1, 1]  # few are left
    for _ in range(3):
        assert made.sync()
    assert not made.sync()


def test_a_log_that_wants_another_sync_during_its_own_gets_it() -> None:
    made = Node()
    some = logs(7)
    made.want(*some)
    made.during.append(lambda: made.want(*some))
    assert made.sync()
    assert made.sync()
    assert made.begun == [7, 7]
    assert not made.sync()


def test_a_sync_that_fails_is_under_way_no_more() -> None:
    made = Node()

    def failing() -> None:
        raise ValueError("a fault of this program")

    for _ in range(4):
        made.want(*logs(8))
        made.during.append(failing)
        try:
            made.sync()
        except ValueError:
            pass
    made.want(*logs(8))
    assert made.sync()
    assert made.begun == [8] * 5
