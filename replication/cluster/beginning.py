"""``Beginning``: how a cluster begins, once: by all nodes that it is to have, each of which never took part in one.

A node with an empty directory cannot tell by itself whether it is new, or has lost what it promised in elections of the
metadata group. So its replica of the metadata is held back (``replicas/repair.py``) until it knows:

- all other voters say that they are new as well: the cluster begins with these directories, which is noted before
  anything is promised;
- another voter has noted that the cluster began with this very directory: this node has lost nothing since;
- another voter has begun without this directory: the node stays held back, and its group counts it out first.

A vote of a directory that was lost went to, or came with the vote of, a voter that had begun by then and says so. So
the first two are never true of the directory that came instead, as long as that other voter's is there.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from logstore.errors import InvalidRecordError, LogStoreError
from logstore.format.json_document import items, table, text, truth, whole
from logstore.seams.clock import Clock
from replication.cluster.identity import IdentityFile, read_directories
from replication.errors import LeaderNotReadyError, PeerUnavailableError, UnknownPeerError
from replication.raft.types import NodeId
from replication.replicas.replica import Replica
from replication.transport import Address, ClusterNetwork

logger = logging.getLogger(__name__)

BEGINNING: Final = "cluster.beginning"
_CALL_S: Final = 2.0
_PAUSE_S: Final = 0.1
_MAX_NODE: Final = (1 << 31) - 1
_REQUEST: Final = json.dumps({"version": 1}).encode("ascii")
_WHERE: Final = "a node's word of its cluster's beginning"


class Word(NamedTuple):
    """What a node says of itself. ``new``: it never took part; ``begun``: the directories of the cluster's
    beginning; ``cluster_id``: "" while it has none; ``peers``: where the cluster's nodes listen for each other."""

    directory_id: str
    new: bool
    voters: frozenset[NodeId]
    begun: Mapping[NodeId, str]
    cluster_id: str = ""
    peers: Mapping[NodeId, Address] = MappingProxyType({})


class Beginning:
    """Of one node. ``voters``: nodes that have the metadata from the beginning; ``replica``: this node's of the
    metadata; ``peers``: as this node knows them of its metadata; ``learn``: told of those that others know; ``pause``:
    as of the follower."""

    def __init__(
        self,
        node_id: NodeId,
        voters: Collection[NodeId],
        identity: IdentityFile,
        replica: Callable[[], Replica | None],
        network: ClusterNetwork,
        clock: Clock,
        *,
        peers: Callable[[], Mapping[NodeId, Address]],
        learn: Callable[[Mapping[NodeId, Address]], None],
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._node_id = node_id
        self._voters = frozenset(voters)
        self._identity = identity
        self._replica = replica
        self._network = network
        self._clock = clock
        self._peers = peers
        self._learn = learn
        self._pause = pause or _wait
        self._said = ""

    def serve(self) -> None:
        """Before the network is started."""
        self._network.serve(BEGINNING, lambda _, request: self._answer(request))

    @property
    def is_held_back(self) -> bool:
        replica = self._replica()
        return replica is not None and replica.is_held_back

    def settle(self, timeout_s: float) -> None:
        """Wait until it is known whether this node may take part, or is held back. LeaderNotReadyError: nodes that have
        to be asked did not answer in time; StorageError, DiskFullError."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while self.is_held_back:
            lacking = self.look()
            if not lacking:
                return
            if self._clock.monotonic_s() >= deadline_s:
                raise LeaderNotReadyError(
                    f"a cluster begins with all of its nodes, and {', '.join(map(str, lacking))} did not answer",
                    hint="start all brokers that `peers` names, the same on all; later a majority is enough",
                )
            self._pause(_PAUSE_S)

    def look(self) -> list[NodeId]:
        """One look at the others; those that have to say more. Empty: it is known."""
        identity = self._identity.identity
        mine = identity.directory_id
        if identity.begun.get(self._node_id) == mine:
            return self._take_part()
        others = sorted(self._voters - {self._node_id})
        words = {node: word for node in others if (word := self._ask(node)) is not None}
        for word in words.values():
            self._learn(word.peers)
        for word in words.values():
            if word.begun.get(self._node_id) == mine:
                self._identity.begin(word.begun)
                return self._take_part()
        if self._node_id not in self._voters or not all(word.new for word in words.values()):
            return []  # held back: the cluster knows more
        ready = [node for node, word in words.items() if word.voters == self._voters]
        if len(ready) < len(others):
            return [node for node in others if node not in ready]
        directories = {node: word.directory_id for node, word in words.items()}
        self._identity.begin({**directories, self._node_id: mine})
        return self._take_part()

    def _take_part(self) -> list[NodeId]:
        replica = self._replica()
        if replica is not None:
            replica.readmit(never_promised=True)
        return []

    def _ask(self, node: NodeId) -> Word | None:
        """None: it does not answer, or does not know this node yet."""
        try:
            return decode_word(self._network.call(node, BEGINNING, _REQUEST, _CALL_S))
        except PeerUnavailableError:
            return None
        except UnknownPeerError as error:
            if error.message != self._said:
                self._said = error.message
                logger.warning("this node waits to be added to its cluster: %s", error)
            return None

    def probe(self, node: NodeId, address: Address) -> Word:
        """The word of a node that is no peer yet. Errors as ``ClusterNetwork.ask``."""
        return decode_word(self._network.ask(node, address, BEGINNING, _REQUEST, _CALL_S))

    def _answer(self, request: bytes) -> bytes:
        del request
        held_back = self.is_held_back  # first: the note is durable before the replica takes part
        identity = self._identity.identity
        new = held_back and not identity.begun and not identity.cluster_id
        word = Word(
            identity.directory_id, new, self._voters, identity.begun, identity.cluster_id, self._peers()
        )
        return encode_word(word)


def encode_word(word: Word) -> bytes:
    fields = {
        "version": 1,
        "directory_id": word.directory_id,
        "new": word.new,
        "voters": sorted(word.voters),
        "begun": {str(node): directory for node, directory in word.begun.items()},
        "cluster_id": word.cluster_id,
        "peers": [[node, host, port] for node, (host, port) in sorted(word.peers.items())],
    }
    return json.dumps(fields, ensure_ascii=True).encode("ascii")


def decode_word(data: bytes) -> Word:
    """InvalidRecordError, DamagedStoreError."""
    try:
        fields = table(json.loads(data), "the answer", _WHERE)
    except (ValueError, RecursionError) as error:
        if isinstance(error, LogStoreError):
            raise
        raise InvalidRecordError(f"{_WHERE} that is no JSON: {error}") from None
    return Word(
        text(fields.get("directory_id"), "directory_id", _WHERE),
        truth(fields.get("new"), "new", _WHERE),
        frozenset(
            whole(node, "a voter", _WHERE, 0, _MAX_NODE)
            for node in items(fields.get("voters"), "voters", _WHERE)
        ),
        read_directories(fields.get("begun"), _WHERE),
        text(fields.get("cluster_id", ""), "cluster_id", _WHERE),
        _read_peers(fields.get("peers", [])),
    )


def _read_peers(value: object) -> Mapping[NodeId, Address]:
    found: dict[NodeId, Address] = {}
    for row in items(value, "peers", _WHERE):
        node, host, port = items(row, "a peer", _WHERE, 3)
        address = (text(host, "host", _WHERE), whole(port, "port", _WHERE, 0, 65_535))
        found[whole(node, "a peer", _WHERE, 0, _MAX_NODE)] = address
    return MappingProxyType(found)


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)
