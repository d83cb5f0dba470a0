"""``KnownPeers``: which nodes this one speaks with, and where they listen: by its settings, and by the metadata."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from replication.cluster.image import ClusterImage
from replication.raft.types import NodeId
from replication.replicas.replica import Replica
from replication.transport import Address, ClusterNetwork


class KnownPeers:
    """Thread-safe. ``given``: by the settings, which count before all others; empty: the network knows all nodes.
    ``replica``: this node's of the metadata."""

    def __init__(
        self,
        node_id: NodeId,
        given: Mapping[NodeId, Address],
        network: ClusterNetwork,
        replica: Callable[[], Replica | None],
    ) -> None:
        self._node_id = node_id
        self._given = given
        self._network = network
        self._replica = replica
        self._lock = threading.Lock()
        self._image = ClusterImage()
        self._learnt: dict[NodeId, Address] = {}
        self._told: Mapping[NodeId, Address] | None = None

    @property
    def of_metadata(self) -> dict[NodeId, Address]:
        """As the cluster has them."""
        peers = self._image.peers.items()
        return {node: (address.host, address.port) for node, address in peers if not address.removed}

    def learn(self, addresses: Mapping[NodeId, Address]) -> None:
        """By another node's word, while this one has not joined."""
        with self._lock:
            self._learnt.update(addresses)
        self.look()

    def follow(self, image: ClusterImage) -> None:
        """Of every newer image."""
        self._image = image
        self.look()

    def look(self) -> None:
        """Also now and then: nodes that were removed are peers until they have no part in the metadata any more."""
        if not self._given:
            return
        replica, image = self._replica(), self._image
        members = frozenset() if replica is None else replica.membership.voters | replica.membership.learners
        gone = image.removed - members - {self._node_id}
        with self._lock:
            known = {**self._learnt, **self.of_metadata, **self._given}
            peers = {node: address for node, address in known.items() if node not in gone}
            if peers != self._told:
                self._network.know_peers(peers)
                self._told = peers
