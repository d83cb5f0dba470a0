"""``describe_cluster``: what a cluster is doing, asked of a broker."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from google.protobuf.message import Message

from rpc.errors import UnsupportedFeatureError
from rpc.pb import cluster_pb2 as pb
from rpc.wire.cluster import ClusterDescription, description_from_wire


class Asks(Protocol):
    """A way to a broker."""

    def call(self, path: str, request: Message, kind: Any) -> Any: ...


def describe_cluster(broker: Asks, features: Collection[str], timeout_s: float) -> ClusterDescription:
    """``features``: of the broker, which may be alone; ``timeout_s``: how long it waits for others that do not answer.
    AccessDeniedError; UnsupportedFeatureError: it is of an older version."""
    if "describe-cluster" not in features:
        raise UnsupportedFeatureError("this broker's version cannot describe its cluster")
    request = pb.DescribeClusterRequest(timeout_ms=int(timeout_s * 1000))
    return description_from_wire(
        broker.call("ClusterService/DescribeCluster", request, pb.DescribeClusterResponse)
    )
