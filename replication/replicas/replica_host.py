"""``ReplicaHost``: the node that a replica lives on, as the replica sees it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from replication.raft.types import NodeId
from replication.replicas.pending import Awaited
from replication.transport import GroupMessage

ReplicaKind = TypeVar("ReplicaKind", contravariant=True)


class ReplicaHost(Protocol[ReplicaKind]):
    """The node that a replica lives on. Called with the replica's lock held: must not wait."""

    def send(self, to: NodeId, message: GroupMessage) -> None: ...
    def wants_sync(self, replica: ReplicaKind) -> None: ...
    def rests(self, replica: ReplicaKind) -> None: ...
    def wakes(self, replica: ReplicaKind) -> None: ...
    def role_changed(self, replica: ReplicaKind) -> None: ...
    def help_on(self, append: Awaited) -> None: ...
    def now_s(self) -> float:
        """Of the monotonic clock."""
        ...
