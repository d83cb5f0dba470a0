"""What a cluster is doing, as a value and as a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from replication.cluster.view import BrokerInfo
from replication.cluster_status import PartitionStatus, ReplicaStatus
from replication.raft.types import NodeId
from replication.transport import GroupId
from rpc.pb import cluster_pb2 as pb
from rpc.wire.values import fill


class TopicPartitionStatus(NamedTuple):
    """A partition's status, and the name of its topic."""

    topic: str
    status: PartitionStatus


class ClusterDescription(NamedTuple):
    """By the word of broker ``node_id``. ``silent``: brokers that did not answer it. ``partitions``: in the order of
    topics and numbers."""

    cluster_id: str
    node_id: NodeId
    controller: NodeId
    brokers: Sequence[BrokerInfo]
    silent: Sequence[NodeId]
    partitions: Sequence[TopicPartitionStatus]


class PartitionMove(NamedTuple):
    """``replicas``: brokers that have the partition; ``target``: that shall; ``lags``: of those that are being filled,
    how many offsets they lack, -1: not known."""

    topic: str
    partition: int
    replicas: tuple[NodeId, ...]
    target: tuple[NodeId, ...]
    lags: Mapping[NodeId, int]


def description_to_wire(found: ClusterDescription) -> pb.DescribeClusterResponse:
    answer = pb.DescribeClusterResponse(
        cluster_id=found.cluster_id, node_id=found.node_id, controller=found.controller, silent=found.silent
    )
    for broker in found.brokers:
        fill(answer.brokers.add(), broker)
    for topic, status in found.partitions:
        one = answer.partitions.add(
            topic=topic,
            topic_id=status.group.topic_id,
            partition=status.group.partition,
            leader=status.leader,
            leader_epoch=status.term,
            high_watermark=status.high_watermark,
        )
        for replica in status.replicas:
            fill(one.replicas.add(), replica)
    return answer


def description_from_wire(answer: pb.DescribeClusterResponse) -> ClusterDescription:
    return ClusterDescription(
        answer.cluster_id,
        answer.node_id,
        answer.controller,
        [BrokerInfo(one.node_id, one.host, one.port, one.rack, one.alive) for one in answer.brokers],
        list(answer.silent),
        [
            TopicPartitionStatus(
                one.topic,
                PartitionStatus(
                    GroupId(one.topic_id, one.partition),
                    one.leader,
                    one.leader_epoch,
                    one.high_watermark,
                    tuple(
                        ReplicaStatus(
                            replica.node_id, replica.end_offset, replica.lag, replica.in_sync, replica.learner
                        )
                        for replica in one.replicas
                    ),
                ),
            )
            for one in answer.partitions
        ],
    )


def moves_from_wire(answer: pb.ListMovesResponse) -> list[PartitionMove]:
    return [
        PartitionMove(one.topic, one.partition, tuple(one.replicas), tuple(one.target), dict(one.lags))
        for one in answer.moves
    ]
