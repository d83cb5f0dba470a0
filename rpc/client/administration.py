"""``RemoteAdministration``: the admin plane at a broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from logstore.api.groups import GroupSummary, validate_group
from logstore.api.operations import Operation
from logstore.api.producers import ProducerSummary
from logstore.api.topics import TopicMetadata
from logstore.api.transactions import HangingTransaction, TransactionSummary
from logstore.arguments import partition_place, whole
from logstore.types import CompactedPartition, ErasureReport, TopicDescription, TopicPartition
from rpc.client.arguments import (
    changed_settings,
    keys_to_erase,
    known_topic,
    new_start,
    new_topic,
    partition_count,
    producer_name,
    settings,
)
from rpc.client.arguments import transactional_id as checked_id
from rpc.client.operations import RemoteOperation
from rpc.client.routing.coordinators import Coordinators
from rpc.client.routing.role import Role
from rpc.client.routing.scatter import Scatter
from rpc.pb import groups_pb2, producers_pb2, records_pb2, topics_pb2, transactions_pb2
from rpc.wire.values import fill, read

Seen = Callable[[Mapping[str, TopicMetadata]], bool]


class RemoteAdministration:
    """An ``AdminPlane``. Thread-safe. ``controller``: the broker that changes topics and names of producers;
    ``coordinators``: of groups and transactions; ``changed``: called when topics were changed here, before the call
    returns, with what tells whether the metadata show it."""

    def __init__(
        self,
        controller: Role,
        coordinators: Coordinators,
        scatter: Scatter,
        changed: Callable[[Seen], object],
    ) -> None:
        self._controller = controller
        self._coordinators = coordinators
        self._scatter = scatter
        self._changed = changed

    # --- topics and their records ---

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], replication_factor: int | None = None
    ) -> TopicMetadata:
        request = topics_pb2.CreateTopicRequest(
            name=new_topic(name),
            partitions=partition_count(partitions),
            config=settings(config),
            replication_factor=replication_factor or 0,
        )
        answer = self._controller.call(
            "TopicService/CreateTopic", request, topics_pb2.CreateTopicResponse, again=False
        )
        self._changed(lambda topics: name in topics)
        return read(answer.topic, TopicMetadata)

    def add_partitions(self, name: str, total: int, *, allow_keyed: bool) -> None:
        request = topics_pb2.AddPartitionsRequest(
            name=known_topic(name), total=partition_count(total), allow_keyed=allow_keyed
        )
        self._controller.call(
            "TopicService/AddPartitions", request, topics_pb2.AddPartitionsResponse, again=False
        )
        self._changed(lambda topics: name not in topics or topics[name].partitions >= total)

    def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        changed, unset = changed_settings(config)
        request = topics_pb2.AlterTopicRequest(
            name=known_topic(name),
            set=changed,
            unset=unset,
        )
        self._controller.call("TopicService/AlterTopic", request, topics_pb2.AlterTopicResponse)
        self._changed(lambda _: True)

    def delete_topic(self, name: str) -> None:
        request = topics_pb2.DeleteTopicRequest(name=known_topic(name))
        self._controller.call(
            "TopicService/DeleteTopic", request, topics_pb2.DeleteTopicResponse, again=False
        )
        self._changed(lambda topics: name not in topics)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        wanted: dict[TopicPartition, int] = {}
        for place, offset in offsets.items():
            where = partition_place(place)
            known_topic(where.topic)
            wanted[where] = new_start(where, offset)

        def ask(places: Collection[TopicPartition]) -> records_pb2.DeleteRecordsRequest:
            request = records_pb2.DeleteRecordsRequest()
            for where in places:
                request.before.add(topic=where.topic, partition=where.partition, offset=wanted[where])
            return request

        return self._scatter.call(
            "RecordService/DeleteRecords",
            wanted,
            ask,
            records_pb2.DeleteRecordsResponse,
            lambda answer: {TopicPartition(row.topic, row.partition): row.offset for row in answer.starts},
        )

    def start_compaction(
        self, name: str, partition: int | None, *, roll: bool
    ) -> Operation[list[CompactedPartition]]:
        request = records_pb2.StartCompactionRequest(topic=known_topic(name), roll=roll)
        if partition is not None:
            request.partition = whole(partition, "partition", high=2**31 - 1)
        started, at = self._controller.call_at(
            "RecordService/StartCompaction", request, records_pb2.StartedOperation, again=False
        )
        return RemoteOperation(
            at,
            started.operation_id,
            lambda state: [read(row, CompactedPartition) for row in state.compacted],
        )

    def start_erasure(self, name: str, keys: Collection[bytes]) -> Operation[ErasureReport]:
        request = records_pb2.StartErasureRequest(topic=known_topic(name), keys=keys_to_erase(keys))
        started, at = self._controller.call_at(
            "RecordService/StartErasure", request, records_pb2.StartedOperation, again=False
        )
        return RemoteOperation(at, started.operation_id, lambda state: read(state.erased, ErasureReport))

    def describe_topic(self, name: str) -> TopicDescription:
        answer = self._controller.call(
            "TopicService/DescribeTopic",
            topics_pb2.DescribeTopicRequest(name=known_topic(name)),
            topics_pb2.DescribeTopicResponse,
        )
        return read(answer.topic, TopicDescription)

    # --- producers ---

    def list_producers(self) -> list[ProducerSummary]:
        answer = self._controller.call(
            "ProducerService/ListProducers",
            producers_pb2.ListProducersRequest(),
            producers_pb2.ListProducersResponse,
        )
        return [read(one, ProducerSummary) for one in answer.producers]

    def delete_producer(self, name: str) -> None:
        request = producers_pb2.DeleteProducerRequest(name=producer_name(name))
        self._controller.call(
            "ProducerService/DeleteProducer", request, producers_pb2.DeleteProducerResponse, again=False
        )

    # --- transactions ---

    def list_transactions(self) -> list[TransactionSummary]:
        answer = self._coordinators.anyone.call(
            "TransactionService/ListTransactions",
            transactions_pb2.ListTransactionsRequest(),
            transactions_pb2.ListTransactionsResponse,
        )
        return [read(one, TransactionSummary) for one in answer.transactions]

    def abort_transaction(self, transactional_id: str) -> TransactionSummary:
        request = transactions_pb2.AbortTransactionRequest(transactional_id=checked_id(transactional_id))
        answer = self._coordinators.of_id(transactional_id).call(
            "TransactionService/AbortTransaction", request, transactions_pb2.AbortTransactionResponse
        )
        return read(answer.transaction, TransactionSummary)

    def find_hanging(self, topics: Collection[str] | None = None) -> list[HangingTransaction]:
        request = transactions_pb2.FindHangingRequest(
            topics=sorted(known_topic(name) for name in topics or ())
        )
        answer = self._coordinators.anyone.call(
            "TransactionService/FindHanging", request, transactions_pb2.FindHangingResponse
        )
        return [read(one, HangingTransaction) for one in answer.hanging]

    def end_hanging(self, hanging: HangingTransaction) -> None:
        request = transactions_pb2.EndHangingRequest(
            hanging=fill(transactions_pb2.HangingTransaction(), hanging)
        )
        self._coordinators.anyone.call(
            "TransactionService/EndHanging", request, transactions_pb2.EndHangingResponse
        )

    # --- groups ---

    def list_groups(self) -> list[GroupSummary]:
        answer = self._coordinators.anyone.call(
            "GroupService/ListGroups", groups_pb2.ListGroupsRequest(), groups_pb2.ListGroupsResponse
        )
        return [read(one, GroupSummary) for one in answer.groups]

    def delete_group(self, group: str) -> None:
        validate_group(group)
        request = groups_pb2.DeleteGroupRequest(group=group)
        self._coordinators.of_group(group).call(
            "GroupService/DeleteGroup", request, groups_pb2.DeleteGroupResponse, again=False
        )
