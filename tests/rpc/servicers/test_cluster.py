"""What a client asks of a broker first: which brokers there are, who leads what, and what moves with a coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logstore.api.groups import JoinRequest
from logstore.api.topics import TopicMetadata
from logstore.errors import UnknownMemberError
from replication.cluster.view import BrokerInfo
from replication.errors import NotLeaderError
from rpc.client.channel.connection import Connection
from rpc.client.channel.settings import ConnectionSettings
from rpc.client.membership import _join
from rpc.client.store import RemoteStore
from rpc.errors import UnsupportedFeatureError
from rpc.pb import groups_pb2, topics_pb2, transactions_pb2
from rpc.wire.values import fill, read
from tests.rpc.served import Served

BROKERS = [BrokerInfo(1, "one", 9095, "a", True), BrokerInfo(2, "two", 9096, "", False)]


def test_a_broker_names_all_brokers_of_its_cluster(tmp_path: Path) -> None:
    with Served(tmp_path / "store", brokers=lambda: BROKERS) as served, served.connect() as client:
        assert [read(one, BrokerInfo) for one in client.cluster.brokers] == BROKERS


def test_a_broker_that_is_alone_names_none(client: RemoteStore) -> None:
    assert not client.cluster.brokers


def test_metadata_says_who_leads() -> None:
    topic = TopicMetadata(
        name="t",
        topic_id="id",
        partitions=2,
        partitioner="murmur3",
        compression="none",
        max_message_bytes=1000,
        leaders=(3, -1),
        leader_epochs=(7, -1),
    )
    sent = fill(topics_pb2.TopicMetadata(), topic).SerializeToString()
    assert read(topics_pb2.TopicMetadata.FromString(sent), TopicMetadata) == topic


def call(served: Served, path: str, request: Any, kind: Any) -> Any:
    connection = Connection(served.address, ConnectionSettings())
    try:
        return connection.call(path, request, kind, timeout_s=60)
    finally:
        connection.close()


RESUMED = transactions_pb2.InitTransactionsRequest(
    transactional_id="tx",
    timeout_ms=1000,
    resume=transactions_pb2.TransactionWriter(producer_id=5, epoch=2),
)


class ResumingEngine:
    """An engine with everything of another one, which takes up what it is told to."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.resumed: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def resume_transactions(
        self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int, coordinator: str | None
    ) -> Any:
        self.resumed.append((transactional_id, timeout_ms, producer_id, epoch, coordinator))
        return self._engine.init_transactions(transactional_id, timeout_ms)

    def resume_member(self, group: str, member_id: str, request: JoinRequest) -> Any:
        self.resumed.append((group, member_id))
        if member_id == "gone":
            raise UnknownMemberError("gone")
        return self._engine.join_group(group, request)


def test_an_engine_takes_up_what_another_coordinator_had(tmp_path: Path) -> None:
    with Served(tmp_path / "store", engine=ResumingEngine) as served:
        engine: Any = served.engine
        answer = call(
            served, "TransactionService/InitTransactions", RESUMED, transactions_pb2.TransactionLease
        )
        assert engine.resumed == [("tx", 1000, 5, 2, None)]
        assert answer.lease_id
        join = _join("g", JoinRequest(topics=frozenset({"t"})), "m")
        state = call(served, "GroupService/JoinGroup", join, groups_pb2.MemberState)
        assert engine.resumed[1:] == [("g", "m")]
        again = _join("g", JoinRequest(topics=frozenset({"t"})), state.member_id)
        assert call(served, "GroupService/JoinGroup", again, groups_pb2.MemberState) == state
        assert engine.resumed[2:] == [], "the broker has it"


def test_a_broker_that_is_alone_takes_up_nothing(served: Served) -> None:
    with pytest.raises(UnsupportedFeatureError):
        call(served, "TransactionService/InitTransactions", RESUMED, transactions_pb2.TransactionLease)
    join = _join("g", JoinRequest(topics=frozenset({"t"})), "m")
    with pytest.raises(UnknownMemberError):
        call(served, "GroupService/JoinGroup", join, groups_pb2.MemberState)


def test_not_leader_crosses_with_its_leader(tmp_path: Path) -> None:
    def elsewhere(engine: Any) -> Any:
        class Follower(ResumingEngine):
            def list_groups(self) -> Any:
                raise NotLeaderError("not here", leader_id=7)

        return Follower(engine)

    with Served(tmp_path / "store", engine=elsewhere) as served:
        connection = Connection(served.address, ConnectionSettings())
        with pytest.raises(NotLeaderError) as raised:
            connection.send("GroupService/ListGroups", b"", 10)
        connection.close()
    assert raised.value.leader_id == 7
