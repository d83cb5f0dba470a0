"""Majorities: how far one has come, and whether one has spoken."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from replication.raft.types import Membership, NodeId


def majority(membership: Membership) -> int:
    """How many voters decide."""
    return len(membership.voters) // 2 + 1


def has_majority(membership: Membership, nodes: Collection[NodeId]) -> bool:
    return len(membership.voters.intersection(nodes)) >= majority(membership)


def quorum_end(membership: Membership, ends: Mapping[NodeId, int]) -> int:
    """The position up to which a majority of the voters is durable; a voter that is not in ``ends`` has nothing."""
    reached = sorted((ends.get(voter, 0) for voter in membership.voters), reverse=True)
    return reached[majority(membership) - 1]
