"""``ClusterMetadata``: the cluster's metadata as a node changes it: by its own decision while it is the controller,
else by asking the node that is.

Calls between nodes carry JSON; a request that comes twice does no harm (``changes.py``). What clients of this node need
to be served (internal topics, producer ids, named producers) this node asks for itself, again and again until somebody
is the controller; what administrators ask for is refused elsewhere, ``NotLeaderError``, and their client goes there.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from logstore.coordination.runtime import CoordinatorRuntime
from logstore.coordination.store_view import StoreView
from logstore.directory import catalogue as catalogues
from logstore.directory.catalogue import Catalogue, encode_uuid
from logstore.errors import InvalidRecordError, LogStoreError
from logstore.format.json_document import INT64_MAX, items, table, text, truth, whole
from logstore.machine import Decision
from replication.cluster.changes import (
    CatalogueChange,
    decode_changes,
    encode_changes,
    may_be_forwarded,
)
from replication.cluster.follower import MetadataFollower
from replication.cluster.image import AccessKey, BrokerRegistration, PeerAddress
from replication.cluster.machine import (
    AccessChange,
    Candidates,
    ClusterMachine,
    Incumbent,
    check_incumbent,
)
from replication.cluster.metadata_log import MetadataLog, MetadataPartition
from replication.errors import (
    DuplicateBrokerError,
    LeaderNotReadyError,
    NotLeaderError,
    PeerUnavailableError,
    UnknownPeerError,
)
from replication.raft.types import NO_NODE, NodeId
from replication.transport import PeerNetwork

logger = logging.getLogger(__name__)
Reply = TypeVar("Reply")

CHANGE: Final = "metadata.change"
REGISTER: Final = "metadata.register"
IMPORT: Final = "metadata.import"
ACCESS: Final = "metadata.access"
REVISION: Final = "metadata.revision"

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
_CALL_S: Final = 10.0
_SUCCESSION_S: Final = 5.0  # more than a process of before can count as alive without a word
_WHERE: Final = "a call about the cluster's metadata"
_AGAIN: Final = (NotLeaderError, LeaderNotReadyError, PeerUnavailableError, UnknownPeerError)


class ClusterMetadata:
    """Thread-safe. ``partition``: of the metadata group; ``candidates``: brokers that may get replicas, as this node
    knows them; ``random_bytes``: makes the cluster's id; ``pause``: as of the follower; ``peers``: who is asked, in
    turn, while this node has heard of no controller; ``incumbent``: what is known of a registered process."""

    def __init__(
        self,
        node_id: NodeId,
        store: StoreView,
        partition: MetadataPartition,
        follower: MetadataFollower,
        network: PeerNetwork,
        *,
        candidates: Callable[[], Candidates],
        random_bytes: Callable[[int], bytes],
        pause: Callable[[float], None] | None = None,
        peers: Sequence[NodeId] = (),
        incumbent: Callable[[BrokerRegistration], Incumbent] = lambda _: Incumbent.GONE,
    ) -> None:
        self.node_id = node_id
        self._peers = [peer for peer in peers if peer != node_id]
        self.follower = follower
        self._store = store
        self._partition = partition
        self._network = network
        self._candidates = candidates
        self._random_bytes = random_bytes
        self._pause = pause or _wait
        self._incumbent = incumbent
        self._runtime = CoordinatorRuntime(store, MetadataLog(partition, store.clock), ClusterMachine)

    def serve(self) -> None:
        """Answer other nodes' calls. Before the network is started."""
        self._network.serve(CHANGE, lambda _, request: self._revision(self._changed(request)))
        self._network.serve(REGISTER, self._answer_register)
        self._network.serve(IMPORT, self._answer_import)
        self._network.serve(ACCESS, lambda _, request: self._revision(self._access_changed(request)))
        self._network.serve(REVISION, lambda _, request: self._revision(self._own_revision(request)))

    # --- the controller ---

    @property
    def is_controller(self) -> bool:
        return self._partition.is_leader

    @property
    def controller(self) -> NodeId:
        """-1: not known."""
        return self.node_id if self._partition.is_leader else self._partition.leader_id

    def decide(self, decide: Callable[[ClusterMachine], Decision[Reply]]) -> Reply:
        """As the controller. NotLeaderError, LeaderNotReadyError, OutcomeUnknownError, and the errors of ``decide``."""
        return self._runtime.decide(decide)

    # --- changes of the catalogue ---

    def change(
        self, changes: Sequence[CatalogueChange], replication_factor: int | None, timeout_s: float
    ) -> int:
        """The revision from which on they are seen. MetadataConflictError: they were decided on what is no more so;
        NotLeaderError: only the controller may be asked for such; and the errors of the machine."""
        if not may_be_forwarded(changes):
            return self._change_here(changes, replication_factor)
        request = encode_changes(changes, replication_factor)
        return self._asked(CHANGE, request, timeout_s, lambda: self._change_here(changes, replication_factor))

    def _change_here(self, changes: Sequence[CatalogueChange], replication_factor: int | None) -> int:
        candidates = self._candidates()
        return self.decide(lambda machine: machine.decide_changes(changes, replication_factor, candidates))

    def _changed(self, request: bytes) -> int:
        changes, replication_factor = decode_changes(request)
        return self._change_here(changes, replication_factor)

    # --- nodes that come ---

    def register(
        self,
        host: str,
        port: int,
        rack: str,
        cluster_id: str | None,
        timeout_s: float,
        *,
        directory_id: str = "",
        held_back: bool = False,
        peer: PeerAddress | None = None,
        incarnation: int = 0,
    ) -> tuple[BrokerRegistration, str]:
        """This node is a broker of the cluster: its registration, and the cluster's id. See ``decide_register_broker``.
        ClusterMismatchError, RemovedBrokerError; DuplicateBrokerError: another process is that broker, and was still
        there after some seconds."""
        fields = {
            "host": host,
            "port": port,
            "rack": rack,
            "cluster_id": cluster_id,
            "directory_id": directory_id,
            "held_back": held_back,
            "peer": None if peer is None else [peer.host, peer.port],
            "incarnation": incarnation,
        }
        answer: list[bytes] = []

        def here() -> int:
            answer.append(self._register(self.node_id, fields))
            return 0

        self._await_number(lambda: self._asked(REGISTER, _request(fields), timeout_s, here, answer.append))
        found = _fields(answer[-1])
        epoch = whole(found.get("epoch"), "epoch", _WHERE)
        broker = BrokerRegistration(
            self.node_id, host, port, rack, epoch, directory_id=directory_id, incarnation=incarnation
        )
        return broker, text(found.get("cluster_id"), "cluster_id", _WHERE)

    def _await_number(self, ask: Callable[[], object]) -> None:
        """A process that was started anew is refused until the one of before counts as gone."""
        now_s = self._store.clock.monotonic_s
        deadline_s = now_s() + _SUCCESSION_S
        while True:
            try:
                ask()
                return
            except DuplicateBrokerError as error:
                left_s = deadline_s - now_s()
                if left_s <= 0:
                    raise
                logger.warning("waiting for %.1f s at the most: %s", left_s, error.message)
                self._pause(min(_LONGEST_PAUSE_S, left_s))

    def _answer_register(self, node: NodeId, request: bytes) -> bytes:
        return self._register(node, _fields(request))

    def _register(self, node: NodeId, fields: Mapping[str, Any]) -> bytes:
        host, rack = (text(fields.get(name), name, _WHERE) for name in ("host", "rack"))
        port = whole(fields.get("port"), "port", _WHERE, 0, 65_535)
        known = fields.get("cluster_id")
        own = None if known is None else text(known, "cluster_id", _WHERE)
        self._check_unclaimed(node, fields)
        fresh = own or encode_uuid(
            self._random_bytes(16)
        )  # a cluster whose metadata are new keeps the id it had
        cluster_id = self.decide(lambda machine: machine.decide_begin(fresh))
        directory_id = text(fields.get("directory_id", ""), "directory_id", _WHERE)
        held_back = truth(fields.get("held_back", False), "held_back", _WHERE)
        peer = _peer_of(fields.get("peer"))
        incarnation = whole(fields.get("incarnation", 0), "incarnation", _WHERE)

        def register(machine: ClusterMachine) -> Decision[BrokerRegistration]:
            known = machine.image.brokers.get(node)
            return machine.decide_register_broker(
                node,
                host,
                port,
                rack,
                own,
                directory_id=directory_id,
                held_back=held_back,
                peer=peer,
                incarnation=incarnation,
                incumbent=Incumbent.GONE if known is None else self._incumbent(known),
            )

        broker = self.decide(register)
        return _request({"epoch": broker.epoch, "cluster_id": cluster_id})

    def _check_unclaimed(self, node: NodeId, fields: Mapping[str, Any]) -> None:
        """DuplicateBrokerError, also by a node that is not the controller: that may be the very broker whose number the
        process wants, which it cannot ask."""
        incarnation = whole(fields.get("incarnation", 0), "incarnation", _WHERE)
        known = self.follower.image.brokers.get(node)
        if known is None or incarnation in (0, known.incarnation) or self.is_controller:
            return
        incumbent = self._incumbent(known)
        if incumbent is Incumbent.LIVES:
            check_incumbent(known, text(fields.get("directory_id", ""), "directory_id", _WHERE), incumbent)

    def import_catalogue(self, catalogue: Catalogue, timeout_s: float) -> int:
        """The topics of this node's directory are the cluster's from now on; the revision. See ``decide_import``."""

        def here() -> int:
            return self.decide(lambda machine: machine.decide_import(self.node_id, catalogue))

        return self._asked(IMPORT, catalogues.encode(catalogue), timeout_s, here)

    def _answer_import(self, node: NodeId, request: bytes) -> bytes:
        catalogue = catalogues.decode(request, _WHERE)
        return self._revision(self.decide(lambda machine: machine.decide_import(node, catalogue)))

    # --- who may do what ---

    def change_access(self, changes: Sequence[AccessChange], timeout_s: float) -> int:
        """The revision from which on they count; of any node. MetadataConflictError."""
        rows = [[*change.key, change.before, change.after] for change in changes]
        request = _request({"changes": rows})
        return self._asked(ACCESS, request, timeout_s, lambda: self._access_changed(request))

    def import_access(self, access: Mapping[AccessKey, Any], timeout_s: float) -> int:
        """Those of this node's directory that the cluster does not have are the cluster's from now on."""
        request = _request({"import": [[*key, None, value] for key, value in access.items()]})
        return self._asked(ACCESS, request, timeout_s, lambda: self._access_changed(request))

    def _access_changed(self, request: bytes) -> int:
        fields = _fields(request)
        if "import" in fields:
            access = {change.key: change.after for change in _access_changes(fields["import"])}
            return self.decide(lambda machine: machine.decide_import_access(access))
        changes = _access_changes(fields.get("changes"))
        return self.decide(lambda machine: machine.decide_access(changes))

    # --- what the controller knows ---

    def catch_up(self, timeout_s: float) -> None:
        """Have this node know all that was decided before the call. LeaderNotReadyError: not in time."""
        deadline_s = self._store.clock.monotonic_s() + timeout_s
        revision = self._asked(REVISION, b"{}", timeout_s, lambda: self._own_revision(b"{}"))
        self.follower.wait_for(revision, deadline_s - self._store.clock.monotonic_s())

    def _own_revision(self, request: bytes) -> int:
        del request
        self._runtime.confirm()
        return self._runtime.look(lambda machine: machine.image.revision)

    @staticmethod
    def _revision(revision: int) -> bytes:
        return _request({"revision": revision})

    # --- asking whoever it is ---

    def _asked(
        self,
        operation: str,
        request: bytes,
        timeout_s: float,
        here: Callable[[], int],
        take: Callable[[bytes], None] | None = None,
    ) -> int:
        """What the controller says, whichever node that is by then. ``take``: gets the answer instead of its revision
        being read. The last error if none has answered in time."""
        clock = self._store.clock
        deadline_s, pause_s = clock.monotonic_s() + timeout_s, _FIRST_PAUSE_S
        hint, tries = NO_NODE, 0
        while True:
            self._store.check_usable()
            try:
                to, hint = (self.controller if hint == NO_NODE else hint), NO_NODE
                if to == NO_NODE and self._peers:
                    to = self._peers[tries % len(self._peers)]
                    tries += 1
                if to == self.node_id:
                    return here()
                if to == NO_NODE:
                    raise NotLeaderError("this node does not know yet who the controller is")
                left_s = min(max(deadline_s - clock.monotonic_s(), 0.001), _CALL_S)
                answer = self._network.call(to, operation, request, left_s)
                if take is not None:
                    take(answer)
                    return 0
                return whole(_fields(answer).get("revision"), "revision", _WHERE, 0, INT64_MAX)
            except _AGAIN as error:
                left_s = deadline_s - clock.monotonic_s()
                if left_s <= 0:
                    raise
                if isinstance(error, NotLeaderError) and error.leader_id != self.node_id:
                    hint = error.leader_id
                self._pause(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _access_changes(value: object) -> list[AccessChange]:
    """InvalidRecordError, DamagedStoreError."""
    found = []
    for row in items(value, "changes", _WHERE):
        of, name, before, after = items(row, "a change", _WHERE, 4)
        found.append(AccessChange((text(of, "of", _WHERE), text(name, "name", _WHERE)), before, after))
    return found


def _peer_of(value: object) -> PeerAddress | None:
    """InvalidRecordError, DamagedStoreError."""
    if value is None:
        return None
    host, port = items(value, "peer", _WHERE, 2)
    return PeerAddress(text(host, "host", _WHERE), whole(port, "port", _WHERE, 0, 65_535))


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _request(fields: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": 1, **fields}, ensure_ascii=True).encode("ascii")


def _fields(data: bytes) -> dict[str, Any]:
    try:
        return table(json.loads(data), "the request", _WHERE)
    except (ValueError, RecursionError) as error:
        if isinstance(error, LogStoreError):
            raise
        raise InvalidRecordError(f"{_WHERE} that is no JSON: {error}") from None
