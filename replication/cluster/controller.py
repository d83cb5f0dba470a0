"""``Controller``: what the leader of the metadata group does for its cluster, and what administrators ask of it.

Leadership goes back to preferred leaders, partitions move to the replicas that they shall have, brokers are emptied,
new ones get the metadata. Each step looks anew at what there is, so that any of them may fail or come twice, and the
next controller goes on where this one ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from logstore.errors import LogStoreError
from logstore.machine import Decision
from logstore.seams.clock import Clock
from logstore.seams.step_thread import Complaints, StepThread
from replication.cluster import duties
from replication.cluster.beginning import Word
from replication.cluster.duties import ChangeMembers, Duty, Moved, MoveProgress, Readmitted, Transfer
from replication.cluster.image import BrokerRegistration, ClusterImage, PeerAddress
from replication.cluster.leader_calls import LeaderCalls
from replication.cluster.machine import Candidates, ClusterMachine
from replication.cluster.metadata import ClusterMetadata
from replication.cluster.placement import Replicas
from replication.cluster_status import ClusterStatus, PartitionStatus
from replication.errors import (
    BrokerUnreachableError,
    ClusterMismatchError,
    InvalidMembershipError,
    LastMajorityError,
    LeaderNotReadyError,
    MembershipChangeError,
    NotLeaderError,
    PeerUnavailableError,
    UnknownBrokerError,
)
from replication.raft.types import Membership, NodeId
from replication.transport import METADATA_GROUP, Address

logger = logging.getLogger(__name__)

_NOT_NOW: Final = (NotLeaderError, LeaderNotReadyError, MembershipChangeError, PeerUnavailableError)


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerSettings:
    """Times are seconds."""

    look_s: float = 5.0
    """Between two looks while nothing moves."""
    busy_s: float = 0.2
    """Between two looks while partitions move."""
    settle_s: float = 10.0
    """For so long a preferred leader must be able to lead until it gets its partition back: one that is about to stop
    has given it up."""
    most_transfers: int = 50
    """Of leadership in one look."""
    most_moves: int = 20
    """Partitions that may fill new replicas at one time."""


class Controller:
    """``step`` does what is due; of one thread. The administrators' methods: any thread. ``gather``: what these brokers
    say of what they lead; ``candidates``: as of the metadata; ``probe``: the word of a node that is no peer yet."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        gather: Callable[[Collection[NodeId]], ClusterStatus],
        calls: LeaderCalls,
        candidates: Callable[[], Candidates],
        clock: Clock,
        probe: Callable[[NodeId, Address], Word],
        *,
        settings: ControllerSettings | None = None,
        threads: bool = True,
    ) -> None:
        self._metadata = metadata
        self._gather = gather
        self._calls = calls
        self._candidates = candidates
        self._clock = clock
        self._probe = probe
        self._settings = settings or ControllerSettings()
        self._since_s: dict[Transfer, float] = {}  # since when a preferred leader could lead and does not
        self._complaints = Complaints(logger, "the controller's")
        self._thread = StepThread("logstore-controller", self.step, enabled=threads)

    # --- for administrators; NotLeaderError elsewhere than at the controller ---

    def add(self, node: NodeId, host: str, port: int) -> None:
        """Have a broker that runs, and listens there for its peers, join the cluster: it registers, is sent the
        metadata, and gets a vote. May be repeated until it has registered. BrokerExistsError; BrokerUnreachableError:
        it does not answer; UnknownPeerError: it is another node; ClusterMismatchError: its directory is of another
        cluster."""
        peer = PeerAddress(host, port)
        self._metadata.decide(lambda machine: _checked(machine, node, peer))
        try:
            word = self._probe(node, (host, port))
        except PeerUnavailableError as error:
            raise BrokerUnreachableError(
                f"no broker answers at {host}:{port}: {error.message}",
                hint="start it first, with its number and with this broker among its `peers`",
            ) from error
        cluster_id = self._metadata.follower.newest().cluster_id
        if word.cluster_id not in ("", cluster_id):
            raise ClusterMismatchError(
                f"the directory of broker {node} is of cluster {word.cluster_id}, this is cluster {cluster_id}",
                hint="give it an empty directory",
            )
        self._metadata.decide(lambda machine: machine.decide_add_broker(node, peer))
        self._thread.wake()

    def drain(self, node: NodeId, draining: bool = True) -> BrokerRegistration:
        """Have a broker give up its replicas, and get no others; or let it have some again. UnknownBrokerError."""
        broker = self._metadata.decide(lambda machine: machine.decide_drain(node, draining))
        self._thread.wake()
        return broker

    def remove(self, node: NodeId) -> None:
        """Forget a broker that was drained, and has stopped or is about to. May be repeated. UnknownBrokerError;
        BrokerInUseError: it has replicas; LastMajorityError; MembershipChangeError: not now."""
        now = self._status(self._metadata.follower.newest()).partitions.get(METADATA_GROUP)
        is_member = now is not None and any(one.node_id == node for one in now.replicas)
        if now is not None:
            self._check_majority_left(now, node)
        try:
            self._metadata.decide(lambda machine: machine.decide_unregister_broker(node))
        except UnknownBrokerError:
            if not is_member:
                raise
        if now is None or not is_member:
            return
        voters = frozenset(one.node_id for one in now.replicas if not one.learner) - {node}
        learners = frozenset(one.node_id for one in now.replicas if one.learner) - {node}
        self._calls.change_members(
            ChangeMembers(METADATA_GROUP, now.leader, Membership(voters, learners).checked())
        )

    def _check_majority_left(self, now: PartitionStatus, node: NodeId) -> None:
        """LastMajorityError."""
        voters = frozenset(one.node_id for one in now.replicas if not one.learner)
        left = voters - {node}
        alive = left & frozenset(self._candidates().alive)
        if node in voters and 2 * len(alive) <= len(left):
            raise LastMajorityError(
                f"without broker {node}, {len(alive)} of {len(left)} brokers with a vote on the metadata are heard of, "
                "which is no majority",
                hint="start brokers that are away, or add others first",
            )

    def reassign(self, wanted: Mapping[tuple[str, int], Replicas | None]) -> None:
        """Have partitions, (topic, partition), move to other replicas; None: no further. See ``decide_reassign``."""
        self._metadata.decide(lambda machine: machine.decide_reassign(wanted))
        self._thread.wake()

    def progress(self) -> list[MoveProgress]:
        """Of the partitions that move. Of any node."""
        image = self._metadata.follower.newest()
        return duties.progress(image, self._status(image))

    # --- what is due ---

    def step(self) -> float:
        """Seconds until the next step."""
        settings = self._settings
        if not self._metadata.is_controller:
            self._since_s.clear()
            return settings.look_s
        try:
            busy = self._look()
        except _NOT_NOW as error:
            logger.debug("the controller looks again in a moment: %s", error)
            busy = True
        except LogStoreError as error:
            self._complaints.tell("look", error)
            busy = False
        return settings.busy_s if busy else settings.look_s

    def _look(self) -> bool:
        """Whether something moves, so that the next look is soon."""
        image = self._metadata.follower.newest()
        status = self._status(image)
        candidates = self._candidates()
        self._drain(image)
        due: list[Duty] = duties.vacated(image, status, self._settings.most_transfers)
        due += duties.metadata_members(image, status)
        due += duties.refilled(image, status)
        due += duties.moves(image, status, self._settings.most_moves)
        due += self._settled(duties.misled(image, status, candidates.alive))
        for duty in due:
            self._carry_out(duty)
        return bool(image.targets or image.vacated) or any(isinstance(duty, ChangeMembers) for duty in due)

    def _status(self, image: ClusterImage) -> ClusterStatus:
        brokers = {*image.brokers, *self._candidates().expected}
        return self._gather(sorted(brokers))

    def _drain(self, image: ClusterImage) -> None:
        if not any(one.draining for one in image.brokers.values()):
            return
        candidates = self._candidates()

        def targets(machine: ClusterMachine) -> Mapping[tuple[str, int], Replicas | None]:
            now = machine.image
            names = {entry.topic_id: name for name, entry in now.catalogue.topics.items()}
            found = duties.drains(now, machine.spots(candidates), self._settings.most_moves)
            return {(names[topic_id], number): target for (topic_id, number), target in found.items()}

        self._metadata.decide(lambda machine: machine.decide_reassign(targets(machine)))

    def _settled(self, found: list[Transfer]) -> list[Transfer]:
        """Those that have been so for long enough, the longest first."""
        now_s = self._clock.monotonic_s()
        self._since_s = {duty: self._since_s.get(duty, now_s) for duty in found}
        due = [duty for duty, since_s in self._since_s.items() if now_s - since_s >= self._settings.settle_s]
        return due[: self._settings.most_transfers]

    def _carry_out(self, duty: Duty) -> None:
        try:
            match duty:
                case Transfer():
                    self._calls.transfer(duty)
                case ChangeMembers():
                    self._calls.change_members(duty)
                case Moved(place, replicas):
                    self._metadata.decide(lambda machine: machine.decide_moved(place, replicas, done=True))
                    logger.info("partition %d of %s has moved to %s", place[1], place[0], list(replicas))
                case Readmitted(place, node):
                    self._metadata.decide(lambda machine: machine.decide_readmitted(place, node))
        except _NOT_NOW as error:
            logger.debug("%s waits for the next look: %s", duty, error)
        except (InvalidMembershipError, LogStoreError) as error:
            self._complaints.tell(str(type(duty).__name__), error)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()


def _checked(machine: ClusterMachine, node: NodeId, peer: PeerAddress) -> Decision[None]:
    machine.check_addable(node, peer)
    return Decision((), None)
