"""What the controller asks of leaders of partitions: to give their place to another, and to have other members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from logstore.errors import InvalidRecordError
from logstore.format.json_document import items, table, text, whole
from replication.cluster.duties import ChangeMembers, Transfer
from replication.errors import NotLeaderError
from replication.raft.types import Membership, NodeId
from replication.replicas.replica import Replica
from replication.transport import GroupId, PeerNetwork

TRANSFER: Final = "group.transfer"
MEMBERS: Final = "group.members"

_CALL_S: Final = 5.0
_WHERE: Final = "a call of the controller"
_MAX_NODE: Final = (1 << 31) - 1


class Replicas(Protocol):
    """This node's (``ReplicationNode``)."""

    def replica(self, group: GroupId) -> Replica | None: ...


class LeaderCalls:
    """Thread-safe."""

    def __init__(self, node_id: NodeId, network: PeerNetwork, replicas: Replicas) -> None:
        self._node_id = node_id
        self._network = network
        self._replicas = replicas

    def serve(self) -> None:
        """Before the network is started."""
        self._network.serve(TRANSFER, lambda _, request: self._answer_transfer(_fields(request)))
        self._network.serve(MEMBERS, lambda _, request: self._answer_members(_fields(request)))

    def transfer(self, duty: Transfer) -> None:
        """Begun, not waited for. NotLeaderError, LeaderNotReadyError, PeerUnavailableError."""
        if duty.leader == self._node_id:
            self._replica(duty.group).transfer(duty.to)
        else:
            self._call(duty.leader, TRANSFER, duty.group, {"to": duty.to})

    def change_members(self, duty: ChangeMembers) -> None:
        """Begun, not waited for. As ``transfer``, and MembershipChangeError: not now."""
        voters, learners = duty.members
        if duty.leader == self._node_id:
            self._replica(duty.group).change_membership(duty.members)
        else:
            members = {"voters": sorted(voters), "learners": sorted(learners)}
            self._call(duty.leader, MEMBERS, duty.group, members)

    def _call(self, to: NodeId, operation: str, group: GroupId, fields: Mapping[str, Any]) -> None:
        request = {"version": 1, "topic_id": group.topic_id, "partition": group.partition, **fields}
        self._network.call(to, operation, json.dumps(request).encode("ascii"), _CALL_S)

    def _answer_transfer(self, fields: Mapping[str, Any]) -> bytes:
        self._replica(_group(fields)).transfer(_node(fields.get("to")))
        return b"{}"

    def _answer_members(self, fields: Mapping[str, Any]) -> bytes:
        voters, learners = (
            frozenset(_node(one) for one in items(fields.get(name), name, _WHERE))
            for name in ("voters", "learners")
        )
        self._replica(_group(fields)).change_membership(Membership(voters, learners))
        return b"{}"

    def _replica(self, group: GroupId) -> Replica:
        found = self._replicas.replica(group)
        if found is None:
            raise NotLeaderError(
                f"this node has no replica of partition {group.partition} of {group.topic_id}"
            )
        return found


def _fields(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordError(f"{_WHERE} that is no JSON: {error}") from None
    return table(found, "the request", _WHERE)


def _group(fields: Mapping[str, Any]) -> GroupId:
    return GroupId(
        text(fields.get("topic_id"), "topic_id", _WHERE), whole(fields.get("partition"), "partition", _WHERE)
    )


def _node(value: object) -> NodeId:
    return whole(value, "a node", _WHERE, 0, _MAX_NODE)
