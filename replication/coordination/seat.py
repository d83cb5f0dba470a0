"""Both coordinators on one node: who gives ``__transaction_state`` up, and to whom."""

from __future__ import annotations

from typing import Protocol

from logstore.embedded.groups import OFFSETS_TOPIC
from logstore.transactions.transaction_records import TOPIC as STATE_TOPIC
from replication.raft.types import NO_NODE, NodeId

__all__ = ["OFFSETS_TOPIC", "STATE_TOPIC", "state_goes_to"]


class Led(Protocol):
    """Who leads a partition, as this node's replica knows it."""

    @property
    def is_leader(self) -> bool: ...

    @property
    def leader_id(self) -> NodeId: ...


def state_goes_to(offsets: Led | None, state: Led | None, has_state: frozenset[NodeId]) -> NodeId:
    """The node that this one, which leads the state of transactions, gives its place to: the one that leads the offsets
    of groups. -1: nothing is to be done, or not by this node. ``has_state``: voters of the state."""
    if offsets is None or state is None or not state.is_leader or offsets.is_leader:
        return NO_NODE
    to = offsets.leader_id
    return to if to in has_state else NO_NODE
