"""``ReplicaHost``: the node that a replica lives on, as the replica sees it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from logstore.errors import LogStoreError
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
    def note_refused(self, error: LogStoreError) -> None:
        """The disk refused a write."""
        ...

    def disk_refuses(self, node: NodeId) -> bool:
        """Whether the disk of that node, this one or another, refuses writes, as far as it is known."""
        ...

    def last_heard_s(self, node: NodeId) -> float: ...
    def now_s(self) -> float:
        """Of the monotonic clock."""
        ...
