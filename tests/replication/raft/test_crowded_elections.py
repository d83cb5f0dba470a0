"""Many groups that elect at one time, on machines that are as slow as there are elections: they come to their ends."""

from __future__ import annotations

import heapq
import random
from itertools import count

import pytest

from replication.raft.election import stand
from replication.raft.messages import Message, VoteReply
from replication.raft.types import Role
from tests.replication.raft.replicas import ELECTION, Replicas

GROUPS = 30
LONGEST = 4000


class Crowd:
    """Groups whose messages take the longer the more of them have no leader. Time is ticks."""

    def __init__(self, seed: int, slowest: int) -> None:
        self.dice = random.Random(seed)
        self.groups = [Replicas() for _ in range(GROUPS)]
        self.slowest = slowest
        self.now = 0
        self._order = count()
        self._posted: list[tuple[int, int, int, int, Message]] = []
        for group in self.groups:
            for replica in group.all:
                replica.core.state.randomness = random.Random(self.dice.random())
                replica.core.state.deadline_tick = 1 + self.dice.randrange(
                    ELECTION
                )  # all lost their leader now

    @property
    def led(self) -> int:
        return sum(any(one.role is Role.LEADER for one in group.all) for group in self.groups)

    def tick(self) -> None:
        self.now += 1
        while self._posted and self._posted[0][0] <= self.now:
            _, _, group, to, message = heapq.heappop(self._posted)
            self.groups[group][to].receive(message)
        longest = 1 + self.slowest * (GROUPS - self.led) // GROUPS
        for number, group in enumerate(self.groups):
            for replica in group.all:
                replica.tick()
                posted, replica.outbox = replica.outbox, []
                for to, message in posted:
                    at = self.now + 1 + self.dice.randrange(longest)
                    heapq.heappush(self._posted, (at, next(self._order), number, to, message))


@pytest.mark.parametrize("seed", range(2))
def test_groups_find_leaders_where_answers_take_longer_than_elections(seed: int) -> None:
    crowd = Crowd(seed, slowest=8 * ELECTION)
    while crowd.led < GROUPS:
        crowd.tick()
        assert crowd.now < LONGEST, f"{crowd.led} of {GROUPS} groups have a leader after {LONGEST} ticks"


def spread(replicas: Replicas, node: int) -> int:
    """How far its next election may be, of many draws."""
    state = replicas[node].core.state
    state.has_rivals, crowded = False, state.crowded
    waits = []
    for _ in range(200):
        state.crowded = crowded - 1
        state.has_rivals = True
        stand(state)
        waits.append(state.deadline_tick - state.now)
    state.take_effects()
    return max(waits)


def test_elections_go_apart_while_others_take_part_in_them() -> None:
    replicas = Replicas()
    state = replicas[0].core.state
    for crowded, most in ((1, 3), (2, 5), (3, 9), (9, 9)):
        state.crowded = crowded
        assert (most - 1) * ELECTION < spread(replicas, 0) < most * ELECTION


def test_a_replica_that_nobody_answers_stands_as_often_as_ever() -> None:
    replicas = Replicas()
    one = replicas[0]
    for _ in range(5):
        one.stand()
        one.tick(3 * ELECTION)
    assert one.core.state.crowded == 0


def test_a_leader_ends_the_crowd() -> None:
    replicas = Replicas()
    one = replicas[0]
    one.stand()
    one.receive(VoteReply(1, 0, False, pre=True))
    one.tick(one.core.state.deadline_tick - one.core.state.now)
    assert one.core.state.crowded == 1
    one.outbox.clear()
    replicas.elect(1)
    assert replicas[1].role is Role.LEADER
    assert [replica.core.state.crowded for replica in replicas.all] == [0, 0, 0]
