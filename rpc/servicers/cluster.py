"""``ClusterService`` and ``LeaseService``: what a client asks first, and how it keeps what it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from replication.cluster.view import BrokerInfo
from rpc.errors import UnsupportedFeatureError
from rpc.handlers.caller import Caller
from rpc.handlers.cluster import ClusterHandler
from rpc.handlers.leases import Leases
from rpc.pb import cluster_pb2 as pb
from rpc.servicers.service import Identify, Observer, Service
from rpc.wire.cluster import description_to_wire
from rpc.wire.errors import to_wire
from rpc.wire.values import fill

FEATURES: Final = (
    "produce",
    "produce-stream",
    "ordered-produce-stream",
    "fetch",
    "fetch-stream",
    "groups",
    "transactions",
    "named-producers",
    "records-administration",
    "log-in-by-password",
    "security-administration",
    "describe-cluster",
    "cluster-administration",
    "add-broker",
)
"""What this version can do; a name is never taken back within the contract's version."""


def no_brokers() -> Sequence[BrokerInfo]:
    """Of a broker that is alone."""
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerFacts:
    """``version``: of the broker's package; ``brokers``: those of the cluster now, none where this one is alone; the
    rest bounds what clients may ask for."""

    version: str
    cluster_id: str
    node_id: int
    max_message_bytes: int
    longest_wait_s: float
    lease_timeout_s: float
    brokers: Callable[[], Sequence[BrokerInfo]] = no_brokers


class ClusterService(Service):
    def __init__(
        self, facts: BrokerFacts, handler: ClusterHandler, identify: Identify, observe: Observer
    ) -> None:
        super().__init__("ClusterService", identify, observe)
        self._facts = facts
        self._handler = handler
        self.unary("GetCluster", pb.GetClusterRequest, self._get)
        self.unary("DescribeCluster", pb.DescribeClusterRequest, self._describe)
        self.once("DrainBroker", pb.DrainBrokerRequest, self._drain)
        self.once("AddBroker", pb.AddBrokerRequest, self._add)
        self.once("RemoveBroker", pb.RemoveBrokerRequest, self._remove)
        self.once("ReassignPartitions", pb.ReassignPartitionsRequest, self._reassign)
        self.unary("ListMoves", pb.ListMovesRequest, self._moves)

    async def _get(self, caller: Caller, request: pb.GetClusterRequest) -> pb.GetClusterResponse:
        del caller
        lacking = [name for name in request.required_features if name not in FEATURES]
        if lacking:
            raise UnsupportedFeatureError(
                f"this broker, version {self._facts.version}, cannot do {', '.join(lacking)[:200]}"
            )
        facts = self._facts
        answer = pb.GetClusterResponse(
            version=facts.version,
            features=FEATURES,
            cluster_id=facts.cluster_id,
            node_id=facts.node_id,
            limits=pb.Limits(
                max_message_bytes=facts.max_message_bytes,
                max_wait_ms=int(facts.longest_wait_s * 1000),
                lease_timeout_ms=int(facts.lease_timeout_s * 1000),
            ),
        )
        for one in facts.brokers():
            fill(answer.brokers.add(), one)
        return answer

    async def _describe(
        self, caller: Caller, request: pb.DescribeClusterRequest
    ) -> pb.DescribeClusterResponse:
        return description_to_wire(await self._handler.describe(caller, request.timeout_ms / 1000))

    async def _drain(self, caller: Caller, request: pb.DrainBrokerRequest) -> pb.DrainBrokerResponse:
        await self._handler.drain(caller, request.node_id, request.draining)
        return pb.DrainBrokerResponse()

    async def _add(self, caller: Caller, request: pb.AddBrokerRequest) -> pb.AddBrokerResponse:
        await self._handler.add(caller, request.node_id, request.host, request.port)
        return pb.AddBrokerResponse()

    async def _remove(self, caller: Caller, request: pb.RemoveBrokerRequest) -> pb.RemoveBrokerResponse:
        await self._handler.remove(caller, request.node_id)
        return pb.RemoveBrokerResponse()

    async def _reassign(
        self, caller: Caller, request: pb.ReassignPartitionsRequest
    ) -> pb.ReassignPartitionsResponse:
        wanted = {(one.topic, one.partition): tuple(one.replicas) or None for one in request.reassignments}
        await self._handler.reassign(caller, wanted)
        return pb.ReassignPartitionsResponse()

    async def _moves(self, caller: Caller, request: pb.ListMovesRequest) -> pb.ListMovesResponse:
        del request
        answer = pb.ListMovesResponse()
        for move in await self._handler.moves(caller):
            fill(answer.moves.add(), move)
        return answer


class LeaseService(Service):
    def __init__(self, leases: Leases, identify: Identify, observe: Observer) -> None:
        super().__init__("LeaseService", identify, observe)
        self._leases = leases
        self.unary("KeepLeases", pb.KeepLeasesRequest, self._keep)
        self.once("ReleaseLeases", pb.ReleaseLeasesRequest, self._release)

    async def _keep(self, caller: Caller, request: pb.KeepLeasesRequest) -> pb.KeepLeasesResponse:
        wait_s = max(request.max_wait_ms, 0) / 1000
        ended = await self._leases.keep(caller, list(request.lease_ids), wait_s)
        return pb.KeepLeasesResponse(
            ended=[pb.EndedLease(lease_id=name, reason=to_wire(reason)) for name, reason in ended]
        )

    async def _release(self, caller: Caller, request: pb.ReleaseLeasesRequest) -> pb.ReleaseLeasesResponse:
        await self._leases.release(caller, list(request.lease_ids))
        return pb.ReleaseLeasesResponse()
