"""What a cluster is doing, and what administrators ask of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from google.protobuf.message import Message

from rpc.errors import UnsupportedFeatureError
from rpc.pb import cluster_pb2 as pb
from rpc.wire.cluster import ClusterDescription, PartitionMove, description_from_wire, moves_from_wire


class Asks(Protocol):
    """A way to a broker, or to the one that is the controller."""

    def call(self, path: str, request: Message, kind: Any, *, again: bool = True) -> Any: ...


class RemoteClusterAdministration:
    """What administrators ask of a cluster. Thread-safe. AccessDeniedError; UnsupportedFeatureError: the broker is
    alone, or of an older version."""

    def __init__(self, controller: Asks) -> None:
        self._controller = controller

    def drain(self, node_id: int, draining: bool = True) -> None:
        """Have a broker give up its replicas, and get no others; or let it have some again. UnknownBrokerError."""
        request = pb.DrainBrokerRequest(node_id=node_id, draining=draining)
        self._controller.call("ClusterService/DrainBroker", request, pb.DrainBrokerResponse)

    def add(self, node_id: int, host: str, port: int) -> None:
        """Have a broker that runs, and listens there for its peers, join the cluster. BrokerExistsError,
        BrokerUnreachableError, UnknownPeerError, ClusterMismatchError."""
        request = pb.AddBrokerRequest(node_id=node_id, host=host, port=port)
        self._controller.call("ClusterService/AddBroker", request, pb.AddBrokerResponse)

    def remove(self, node_id: int) -> None:
        """Forget a broker that has no replicas. UnknownBrokerError, BrokerInUseError, LastMajorityError."""
        request = pb.RemoveBrokerRequest(node_id=node_id)
        self._controller.call("ClusterService/RemoveBroker", request, pb.RemoveBrokerResponse)

    def reassign(self, wanted: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """Have partitions, (topic, partition), move to these brokers, the preferred leader first; none: no further.
        UnknownTopicError, UnknownPartitionError, UnknownBrokerError, InvalidReplicasError."""
        request = pb.ReassignPartitionsRequest(
            reassignments=[
                pb.Reassignment(topic=topic, partition=partition, replicas=replicas)
                for (topic, partition), replicas in wanted.items()
            ]
        )
        self._controller.call("ClusterService/ReassignPartitions", request, pb.ReassignPartitionsResponse)

    def moves(self) -> list[PartitionMove]:
        """The partitions that move, in the order of topics and numbers."""
        answer = self._controller.call(
            "ClusterService/ListMoves", pb.ListMovesRequest(), pb.ListMovesResponse
        )
        return moves_from_wire(answer)


def describe_cluster(broker: Asks, features: Collection[str], timeout_s: float) -> ClusterDescription:
    """``features``: of the broker, which may be alone; ``timeout_s``: how long it waits for others that do not answer.
    AccessDeniedError; UnsupportedFeatureError: it is of an older version."""
    if "describe-cluster" not in features:
        raise UnsupportedFeatureError("this broker's version cannot describe its cluster")
    request = pb.DescribeClusterRequest(timeout_ms=int(timeout_s * 1000))
    return description_from_wire(
        broker.call("ClusterService/DescribeCluster", request, pb.DescribeClusterResponse)
    )
