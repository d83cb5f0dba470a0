"""Replicas whose messages and writes come in any order, are lost, come twice; and replicas that die at any moment."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logstore.errors import LogStoreError
from replication.raft.effects import Effect
from replication.raft.types import Role
from tests.replication.raft.replicas import Replica, Replicas
from tests.replication.sim.checks import Checks

NODES = st.integers(0, 2)


class AnyOrder(RuleBasedStateMachine):
    """Three replicas; the properties of ``Checks`` hold after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Replicas(3, max_entries_bytes=200)
        self.checks = Checks()
        self.values = 0
        self.on_way: list[tuple[int, Any]] = []
        for replica in self.group.all:
            replica.slow = True
            self.watch(replica)

    def watch(self, replica: Replica) -> None:
        original = replica.do

        def do(effects: Iterable[Effect]) -> None:
            told = list(effects)
            for effect in told:
                self.checks.see(replica, effect)  # type: ignore[arg-type]
            original(told)

        replica.do = do  # type: ignore[method-assign]

    def collect(self) -> None:
        for replica in self.group.all:
            self.on_way += replica.outbox
            replica.outbox = []

    @initialize(node=NODES)
    def one_leads(self, node: int) -> None:
        for replica in self.group.all:
            replica.slow = False
        self.group[node].stand()
        self.group.pass_on()
        for replica in self.group.all:
            replica.slow = True
        assert self.group[node].role is Role.LEADER

    @rule(node=NODES, times=st.integers(1, 30))
    def time_goes_on(self, node: int, times: int) -> None:
        self.group[node].tick(times)
        self.collect()

    @rule(where=st.integers(0, 10_000), count=st.integers(1, 8))
    def messages_arrive(self, where: int, count: int) -> None:
        for _ in range(count):
            if self.on_way:
                to, message = self.on_way.pop(where % len(self.on_way))
                self.group[to].receive(message)
                self.collect()

    @rule(where=st.integers(0, 10_000))
    def a_message_comes_twice(self, where: int) -> None:
        if self.on_way:
            to, message = self.on_way[where % len(self.on_way)]
            self.group[to].receive(message)
            self.collect()

    @rule(where=st.integers(0, 10_000))
    def a_message_is_lost(self, where: int) -> None:
        if self.on_way:
            self.on_way.pop(where % len(self.on_way))

    @rule(node=NODES)
    def a_disk_has_written(self, node: int) -> None:
        self.group[node].sync()
        self.collect()

    @rule(node=NODES)
    def a_replica_dies_and_is_there_again(self, node: int) -> None:
        self.group[node].start()
        self.checks.restarted(node, self.group[node].core.state.commit)

    @rule(node=NODES, count=st.integers(1, 3))
    def a_record_is_sent(self, node: int, count: int) -> None:
        self.values += 1
        try:
            self.group[node].propose(count, self.values)
        except LogStoreError:
            return  # it does not lead
        self.collect()

    @invariant()
    def logs_match(self) -> None:
        nodes: list[Any] = [
            SimpleNamespace(node_id=replica.node_id, disk=replica.disk) for replica in self.group.all
        ]
        self.checks.logs_match(nodes)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=60, deadline=None, derandomize=True)
