"""Brokers of one cluster in this process, over one store: who leads what is a table that a test changes.

Each node refuses what it does not lead, as a node of a real cluster does; an append whose leader moves before it is
decided is in, and answered with NotLeaderError all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import logstore
from logstore.api.cancellation import CancelHandle
from logstore.api.groups import JoinRequest, MemberView
from logstore.api.records import FetchRequest, FetchResult, ProduceItem, ProduceResult
from logstore.api.topics import TopicMetadata
from logstore.errors import LogStoreError, ProducerFencedError, UnknownMemberError
from logstore.machine import TransactionalWriter
from logstore.types import Acks, Isolation, TopicPartition
from replication.cluster.view import BrokerInfo
from replication.errors import NotLeaderError
from rpc.broker import Broker
from rpc.client.store import RemoteStore, connect
from rpc.settings import BrokerSettings
from rpc.testing.proxy import Proxy
from tests.rpc.served import wait

NOBODY = -1


class Table:
    """Who leads what. ``lock``: held while a node decides what it leads, and acts on it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.version = 0
        self.epoch = 0
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self.coordinator = 1
        self.controller = 1
        self.terms = 0  # of the coordinator
        self.leases: dict[str, Any] = {}
        self.members: dict[str, Any] = {}
        self._watchers: list[Callable[[], None]] = []

    def leader(self, topic: str, partition: int) -> tuple[int, int]:
        """(node, epoch)."""
        return self._leaders.get(TopicPartition(topic, partition), (1 + partition % 3, 0))

    def move(self, topic: str, partition: int, node: int) -> None:
        with self.lock:
            self.epoch += 1
            self._leaders[TopicPartition(topic, partition)] = node, self.epoch
            self.version += 1

    def move_coordinator(self, node: int) -> None:
        with self.lock:
            self.coordinator = node
            self.terms += 1
            watchers, self._watchers = self._watchers, []
        for tell in watchers:
            tell()

    def when_coordinator_moves(self, tell: Callable[[], None]) -> None:
        self._watchers.append(tell)


class _OfTerm:
    """What a node's coordinator holds while it is the coordinator."""

    def __init__(self, table: Table, node: int) -> None:
        self._table, self._node, self._term = table, node, table.terms

    def moved(self) -> NotLeaderError | None:
        if self._table.terms == self._term:
            return None
        return NotLeaderError("coordinated elsewhere", leader_id=self._table.coordinator)

    def check(self) -> None:
        moved = self.moved()
        if moved is not None:
            raise moved


class NodeLease:
    """A transactional id at one node."""

    def __init__(self, term: _OfTerm, lease: Any) -> None:
        self._term, self.lease = term, lease

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.lease, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._term.check()
            return found(*given, **named)

        return call

    def ended_by(self) -> LogStoreError | None:
        return self._term.moved() or self.lease.ended_by()


class NodeMember:
    """A member of a group at one node."""

    def __init__(self, term: _OfTerm, table: Table, member: Any) -> None:
        self._term, self.member = term, member
        self._handle: CancelHandle | None = None
        table.when_coordinator_moves(self._tell)

    @property
    def member_id(self) -> str:
        found: str = self.member.member_id
        return found

    def _tell(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def view(self) -> MemberView | None:
        found: MemberView | None = None if self._term.moved() else self.member.view()
        return found

    def ended_by(self) -> LogStoreError | None:
        return self._term.moved() or self.member.ended_by()

    def is_settled(self) -> bool:
        return self._term.moved() is not None or self.member.is_settled()

    def cancel_on_change(self, handle: CancelHandle | None, seen: MemberView | None) -> None:
        self._handle = handle
        if self._term.moved() is None:
            self.member.cancel_on_change(handle, seen)
        else:
            self._tell()

    def polled(self) -> None:
        self.member.polled()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.member, name)

        def call(*given: Any, **named: Any) -> Any:
            self._term.check()
            return found(*given, **named)

        return call


OF_COORDINATOR = {
    "commit_offsets",
    "committed_offsets",
    "unstable_offsets",
    "list_groups",
    "delete_group",
    "list_transactions",
    "abort_transaction",
    "find_hanging",
    "end_hanging",
}
OF_CONTROLLER = {
    "create_topic",
    "add_partitions",
    "alter_topic",
    "delete_topic",
    "init_producer",
    "list_producers",
    "delete_producer",
}


class NodeEngine:
    """An ``Engine`` that leads what the table says. ``cut_off``: what it knew of topics when it was cut off from the
    others; it leads nothing then, and knows of nobody who does."""

    def __init__(self, node: int, table: Table, backend: Any) -> None:
        self._node, self._table, self._backend = node, table, backend
        self.cut_off: Mapping[str, TopicMetadata] | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if name not in OF_COORDINATOR and name not in OF_CONTROLLER:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._check_role(name)
            return found(*given, **named)

        return call

    def _check_role(self, name: str) -> None:
        leader = self._table.controller if name in OF_CONTROLLER else self._table.coordinator
        if self.cut_off is not None:
            raise NotLeaderError(f"{name} at node {self._node}")
        if leader != self._node:
            raise NotLeaderError(f"{name} at node {self._node}", leader_id=leader)

    def _refusal(self, topic: str, partition: int) -> NotLeaderError | None:
        leader, _ = self._table.leader(topic, partition)
        if self.cut_off is not None:
            return NotLeaderError(f"{topic}-{partition} at node {self._node}, which is cut off")
        if leader == self._node:
            return None
        return NotLeaderError(f"{topic}-{partition} at node {self._node}", leader_id=leader)

    # --- metadata ---

    def topics(self) -> Mapping[str, TopicMetadata]:
        if self.cut_off is not None:
            return self.cut_off
        return {name: self._led(one) for name, one in self._backend.topics().items()}

    def topic(self, name: str) -> TopicMetadata:
        return self._led(self._backend.topic(name))

    def _led(self, topic: TopicMetadata) -> TopicMetadata:
        leaders = [self._table.leader(topic.name, number) for number in range(topic.partitions)]
        return replace(
            topic,
            leaders=tuple(node for node, _ in leaders),
            leader_epochs=tuple(epoch for _, epoch in leaders),
        )

    def metadata_version(self) -> int:
        if self.cut_off is not None:
            return -2
        return int(self._backend.metadata_version()) * 1_000_000 + self._table.version

    # --- records ---

    def start_produce(
        self,
        items: Sequence[ProduceItem],
        acks: Acks,
        timeout_s: float,
        tell: Callable[[list[ProduceResult]], None],
    ) -> None:
        with self._table.lock:
            refusals = [self._refusal(item.topic, item.partition) for item in items]
            led = [item for item, refusal in zip(items, refusals, strict=True) if refusal is None]
            epochs = [self._table.leader(item.topic, item.partition) for item in led]

            def decided(results: list[ProduceResult]) -> None:
                """Of those whose leader has moved since nobody can tell."""
                for index, (item, result) in enumerate(zip(led, results, strict=True)):
                    now = self._table.leader(item.topic, item.partition)
                    if now != epochs[index] and result.error is None:
                        error = NotLeaderError("deposed amid an append", leader_id=now[0])
                        results[index] = ProduceResult(-1, error=error)
                those = iter(results)
                tell([next(those) if error is None else ProduceResult(-1, error=error) for error in refusals])

            if led:
                self._backend.start_produce(led, acks, timeout_s, decided)
                return
        decided([])

    def collect(
        self, requests: Sequence[FetchRequest], isolation: Isolation, min_bytes: int, max_bytes: int
    ) -> tuple[list[FetchResult], bool]:
        refusals = [self._refusal(one.topic, one.partition) for one in requests]
        led = [one for one, refusal in zip(requests, refusals, strict=True) if refusal is None]
        found, enough = self._backend.collect(led, isolation, min_bytes, max_bytes) if led else ([], False)
        those = iter(found)
        results = [
            next(those)
            if error is None
            else FetchResult(one.topic, one.partition, b"", one.offset, -1, -1, -1, error)
            for one, error in zip(requests, refusals, strict=True)
        ]
        return results, enough or len(led) < len(requests)

    def _led_all(self, places: Collection[TopicPartition]) -> None:
        for place in places:
            refusal = self._refusal(*place)
            if refusal is not None:
                raise refusal

    def list_offsets(self, partitions: Collection[TopicPartition], *given: Any) -> Any:
        self._led_all(partitions)
        return self._backend.list_offsets(partitions, *given)

    def describe_partitions(self, partitions: Collection[TopicPartition]) -> Any:
        self._led_all(partitions)
        return self._backend.describe_partitions(partitions)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> Any:
        self._led_all(before)
        return self._backend.delete_records(before)

    # --- coordinators ---

    def init_transactions(self, transactional_id: str, timeout_ms: int, **given: Any) -> Any:
        self._check_role("init_transactions")
        lease = self._backend.init_transactions(transactional_id, timeout_ms, **given)
        self._table.leases[transactional_id] = lease
        return NodeLease(_OfTerm(self._table, self._node), lease)

    def resume_transactions(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        epoch: int,
        coordinator: str | None = None,
    ) -> Any:
        self._check_role("resume_transactions")
        lease = self._table.leases.get(transactional_id)
        writer = TransactionalWriter(producer_id, epoch)
        last = None if lease is None or lease._last is None else lease._last[0]
        if lease is None or writer not in (last, (lease.producer_id, lease.epoch)):
            raise ProducerFencedError("there is a newer opening", found_epoch=epoch)
        return NodeLease(_OfTerm(self._table, self._node), lease)

    def join_group(self, group: str, request: JoinRequest) -> Any:
        self._check_role("join_group")
        member = self._backend.join_group(group, request)
        self._table.members[member.member_id] = member
        return NodeMember(_OfTerm(self._table, self._node), self._table, member)

    def resume_member(self, group: str, member_id: str, request: JoinRequest) -> Any:
        self._check_role("resume_member")
        member = self._table.members.get(member_id)
        if member is None or member.view() is None:
            raise UnknownMemberError(f"{member_id} is no member of {group}")
        return NodeMember(_OfTerm(self._table, self._node), self._table, member)


class Cluster:
    """Nodes 1, 2, 3 (``nodes`` of them), over a store in memory."""

    def __init__(self, nodes: int = 3, **settings: Any) -> None:
        self.store = logstore.open(":memory:")
        self.table = Table()
        self._settings = settings
        self.brokers: dict[int, Broker] = {}
        self.ports: dict[int, int] = {}
        self.proxies: dict[int, Proxy] = {}
        for node in range(1, nodes + 1):
            self.start(node)

    def start(self, node: int) -> None:
        """Also one that was stopped: at its old port."""
        given = BrokerSettings(
            data=":memory:",
            node_id=node,
            listen="127.0.0.1:0",
            **self._settings,
        )
        engine: Any = NodeEngine(node, self.table, self.store.backend)
        broker = self.brokers[node] = Broker(
            engine, given, cluster_id="tests", version="0", brokers=self.infos
        )
        port = wait(broker.start())
        proxy = self.proxies.get(node)
        if proxy is None:
            proxy = self.proxies[node] = Proxy(port)
            self.ports[node] = proxy.port
        proxy.target = port

    def stop(self, node: int) -> None:
        wait(self.brokers.pop(node).stop(0.2))

    def cut_off(self, node: int) -> None:
        """From the other nodes; clients reach it."""
        engine: Any = self.brokers[node]._engine
        engine.cut_off = engine.topics()

    def freeze(self, node: int) -> None:
        """It is there, and nothing comes through to it or from it."""
        self.proxies[node].freeze()

    def infos(self) -> list[BrokerInfo]:
        return [
            BrokerInfo(node, "127.0.0.1", port, "", node in self.brokers)
            for node, port in sorted(self.ports.items())
        ]

    @property
    def address(self) -> str:
        """Of all nodes."""
        return ",".join(f"127.0.0.1:{port}" for _, port in sorted(self.ports.items()))

    def connect(self, *nodes: int, **settings: Any) -> RemoteStore:
        """A client; ``nodes``: those that it is told of, all by default."""
        told = ",".join(f"127.0.0.1:{self.ports[node]}" for node in nodes) or self.address
        return connect(told, **settings)

    def close(self) -> None:
        for proxy in self.proxies.values():
            proxy.thaw()
        for node in list(self.brokers):
            self.stop(node)
        for proxy in self.proxies.values():
            proxy.close()
        self.store.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
