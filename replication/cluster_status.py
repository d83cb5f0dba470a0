"""What a cluster's replicas are doing, as their leaders know it: gathered from all brokers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from logstore.errors import InvalidRecordError
from replication.errors import PeerUnavailableError
from replication.node import ReplicationNode
from replication.raft.types import NodeId
from replication.replicas.replica import Replica
from replication.transport import GroupId, PeerNetwork

OPERATION: Final = "cluster-status"
_ASKED_AT_ONCE: Final = 8


class ReplicaStatus(NamedTuple):
    """``end_offset``: up to where it holds its leader's log; ``lag``: how many offsets it lacks; both -1: not known."""

    node_id: NodeId
    end_offset: int
    lag: int
    in_sync: bool
    learner: bool = False


class PartitionStatus(NamedTuple):
    """By the word of ``leader``, in ``term``. ``replicas``: in the order of their numbers; ``settled``: who they are is
    committed."""

    group: GroupId
    leader: NodeId
    term: int
    high_watermark: int
    replicas: tuple[ReplicaStatus, ...]
    settled: bool = True


class ClusterStatus(NamedTuple):
    """``silent``: brokers that did not answer; what they lead is not in ``partitions``."""

    partitions: Mapping[GroupId, PartitionStatus]
    silent: tuple[NodeId, ...]


def led_here(node: ReplicationNode) -> list[PartitionStatus]:
    """Of the partitions that the node leads, or believes to lead."""
    return [status for status in map(_status_of, node.replicas()) if status is not None]


def _status_of(replica: Replica) -> PartitionStatus | None:
    with replica.lock:
        if not replica.is_leader:
            return None
        state = replica.core.state
        end, membership = state.trail.end, state.membership
        kept_up = frozenset(replica.in_sync.nodes(state))
        ends = {peer: progress.match for peer, progress in state.peers.items()}
        high_watermark, term = replica.log.high_watermark, state.term
        settled = state.has_committed and state.trail.membership_end <= state.commit
    ends[node_id := replica.node_id] = end
    nodes = sorted(membership.voters | membership.learners)
    replicas = tuple(
        ReplicaStatus(
            one,
            ends.get(one, -1),
            end - ends[one] if one in ends else -1,
            one in kept_up,
            one in membership.learners,
        )
        for one in nodes
    )
    return PartitionStatus(replica.group, node_id, term, high_watermark, replicas, settled)


class StatusGatherer:
    """Of one broker: answers its peers, and asks them. Made before the network is started."""

    def __init__(self, node: ReplicationNode, network: PeerNetwork) -> None:
        self._node = node
        self._network = network
        network.serve(OPERATION, self._answer)

    def _answer(self, caller: NodeId, request: bytes) -> bytes:
        del caller, request
        return encode_status(led_here(self._node))

    def gather(self, brokers: Collection[NodeId], timeout_s: float) -> ClusterStatus:
        """Asks all ``brokers`` at once. Of two that believe to lead a partition the one of the newer term does."""
        others = [broker for broker in brokers if broker != self._node.node_id]
        found = led_here(self._node)
        silent: list[NodeId] = []
        if others:
            with ThreadPoolExecutor(min(len(others), _ASKED_AT_ONCE), "cluster-status") as threads:
                for broker, answer in zip(
                    others, threads.map(lambda one: self._ask(one, timeout_s), others), strict=True
                ):
                    if answer is None:
                        silent.append(broker)
                    else:
                        found += answer
        return ClusterStatus(newest(found), tuple(silent))

    def _ask(self, broker: NodeId, timeout_s: float) -> list[PartitionStatus] | None:
        try:
            return decode_status(self._network.call(broker, OPERATION, b"", timeout_s))
        except PeerUnavailableError:
            return None


def newest(statuses: Iterable[PartitionStatus]) -> dict[GroupId, PartitionStatus]:
    """Of each partition the word of its leader in the newest term."""
    found: dict[GroupId, PartitionStatus] = {}
    for status in statuses:
        known = found.get(status.group)
        if known is None or known.term < status.term:
            found[status.group] = status
    return found


def encode_status(statuses: Iterable[PartitionStatus]) -> bytes:
    """JSON: an array of what stands in the fields, in their order."""
    return json.dumps([list(status) for status in statuses], separators=(",", ":")).encode()


def decode_status(data: bytes) -> list[PartitionStatus]:
    """InvalidRecordError where these bytes were not written by ``encode_status``."""
    try:
        return [
            PartitionStatus(
                GroupId(str(group[0]), int(group[1])),
                int(leader),
                int(term),
                int(high_watermark),
                tuple(
                    ReplicaStatus(int(one[0]), int(one[1]), int(one[2]), bool(one[3]), bool(one[4]))
                    for one in replicas
                ),
                bool(settled),
            )
            for group, leader, term, high_watermark, replicas, settled in json.loads(data)
        ]
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise InvalidRecordError(f"a broker's word of what it leads is none: {error}") from error
