"""``ReplicaManager``: the replicas that this node has of its store's partitions, opened and given up as metadata says.

A replica's files are its partition's folder in the store, with the vote and the members beside the segments. Opening
takes the log from its topic, which the store owns for good; what the store does to a log by itself (retention,
compaction, checkpoints) goes on beside Raft.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, Protocol

from logstore.config import TopicConfig
from logstore.directory.catalogue import Catalogue
from logstore.errors import (
    CorruptBatchError,
    DamagedStoreError,
    InvariantError,
    LogStoreError,
    from_os_error,
)
from logstore.log.owned_log import OwnedLog
from logstore.log.replica_log import ReplicaLog
from logstore.partition.topic import Topic
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem, exists
from replication.errors import LostReplicaError
from replication.node import ReplicationNode
from replication.partition import ReplicatedPartition
from replication.raft.types import Membership, NodeId, RaftSettings
from replication.replicas import leaving, repair
from replication.replicas.member_file import FILE_NAME as MEMBER_FILE
from replication.replicas.member_file import MemberFile
from replication.replicas.replica import Replica
from replication.replicas.standalone_log import open_promises
from replication.replicas.vote_store import VoteStore
from replication.transport import METADATA_GROUP, GroupId

logger = logging.getLogger(__name__)

_STANDS: Final = 20
_AGAIN_S: Final = 5.0
"""After how long a replica that could not be opened is tried again."""


class Topics(Protocol):
    """The topics of this node's store (``TopicRegistry``)."""

    @property
    def catalogue(self) -> Catalogue: ...

    def get(self, name: str) -> Topic: ...


def is_poisoned(replica: Replica) -> bool:
    """Whether the disk failed its log, so that it is to be opened anew, as after a power loss."""
    return replica.failure is not None and replica.log.poisoned and not replica.is_damaged


class ReplicaManager:
    """Thread-safe. ``check``: raises where the store must not be used; ``leader_hint(topic, partition)``: the node that
    may lead a partition of which this one has no replica; ``lag_s``: Kafka's ``replica.lag.time.max.ms``."""

    def __init__(
        self,
        node: ReplicationNode,
        settings: RaftSettings,
        fs: FileSystem,
        root: str,
        clock: Clock,
        *,
        check: Callable[[], None],
        leader_hint: Callable[[str, int], NodeId],
        lag_s: float = 10.0,
    ) -> None:
        self._node = node
        self._settings = settings
        self._fs = fs
        self._root = root
        self._clock = clock
        self._check = check
        self._leader_hint = leader_hint
        self._lag_s = lag_s
        self._opening = threading.Lock()
        self._fresh: dict[Replica, int] = {}  # and how often they may stand yet
        self._failed: dict[GroupId, tuple[LogStoreError, float]] = {}
        self._left: set[GroupId] = set()  # of which this node has no files, as far as it has looked

    # --- partitions ---

    def partition(self, topic: Topic, number: int) -> ReplicatedPartition:
        """See ``StoreReplication``."""
        group = GroupId(topic.entry.topic_id, number)

        def config() -> TopicConfig:
            return topic.config

        def find() -> Replica | None:
            topic.entry.live_slot(number)  # refuses a partition that the topic does not have
            return self._node.replica(group)

        return ReplicatedPartition(
            topic.name,
            number,
            config,
            self._clock,
            find,
            lambda: self._leader_hint(topic.name, number),
            check=self._check,
            save_state=topic.save_state,
        )

    # --- replicas ---

    def adjust(
        self,
        topics: Topics,
        wanted: Mapping[GroupId, tuple[str, Collection[NodeId]]],
        vacated: Collection[GroupId] = (),
    ) -> None:
        """Have the replicas that are ``wanted``, by group: the topic's name, and who has the partition from its
        beginning. ``vacated``: those of which this node's was in a directory that was exchanged. What fails is logged,
        and tried again by a later call; other replicas go on."""
        self._readmit(vacated)
        for replica in self._node.replicas():
            if replica.group not in wanted and replica.group != METADATA_GROUP:
                self._node.remove(replica.group)
        self._leave_unwanted(topics, wanted)
        for group, (name, voters) in wanted.items():
            try:
                self._have(topics.get(name), group, voters, vacated=group in vacated)
            except LogStoreError as error:
                self._note_failure(group, name, error)

    def _have(self, topic: Topic, group: GroupId, voters: Collection[NodeId], *, vacated: bool) -> None:
        if topic.entry.topic_id != group.topic_id:
            return  # the store still has the deleted topic of that name: once it has looked at its catalogue
        known = self._node.replica(group)
        if known is not None and known.is_damaged and len(known.membership.voters) > 1:
            self._begin_anew(topic, known)
        elif known is not None and is_poisoned(known) and not self._node.disk_refuses(self._node.node_id):
            logger.warning("%s: its log is opened anew, as after a power loss", known.where)
            self._node.remove(group)
        if self._node.replica(group) is None and self._may_try(group):
            self._open(topic, group, voters, vacated=vacated)
            self._failed.pop(group, None)

    def _leave_unwanted(self, topics: Topics, wanted: Collection[GroupId]) -> None:
        """Replicas that others have instead: the cluster has committed that, and theirs are whole."""
        self._left.difference_update(wanted)
        for name, entry in topics.catalogue.topics.items():
            for number in range(entry.partitions):
                group = GroupId(entry.topic_id, number)
                if group in wanted or group in self._left or not self._may_try(group):
                    continue
                try:
                    self._leave(topics.get(name), number)
                    self._left.add(group)
                    self._failed.pop(group, None)
                except LogStoreError as error:
                    self._note_failure(group, name, error)

    def _leave(self, topic: Topic, number: int) -> None:
        directory = self._directory(topic, number)
        if not leaving.has_files(self._fs, directory):
            return
        members = MemberFile.open(self._fs, directory)
        if members is not None and members.rows[-1].membership.voters == {self._node.node_id}:
            # After an unclean recovery whose metadata are older than the move here: it may be the only copy.
            logger.error(
                "%s-%d: this node has it alone, and the cluster knows nothing of that: its files stay in %s",
                topic.name,
                number,
                directory,
            )
            return
        with self._opening, topic.using(counts_as_use=False):
            leaving.leave(self._fs, directory, lambda: topic.forget_row(number))
        logger.info("%s-%d: other nodes have it, and its files here are gone", topic.name, number)

    def _readmit(self, vacated: Collection[GroupId]) -> None:
        """Groups have counted their replicas here out since."""
        for replica in self._node.replicas():
            if replica.is_held_back and replica.group not in vacated:
                try:
                    replica.readmit()
                except LogStoreError as error:
                    logger.error("%s: this node's replica stays held back: %s", replica.where, error)

    def _may_try(self, group: GroupId) -> bool:
        failed = self._failed.get(group)
        return failed is None or self._clock.monotonic_s() >= failed[1]

    def _note_failure(self, group: GroupId, name: str, error: LogStoreError) -> None:
        known = self._failed.get(group)
        if known is None or known[0].message != error.message:
            logger.error("%s-%d: this node's replica cannot be opened: %s", name, group.partition, error)
        self._failed[group] = (error, self._clock.monotonic_s() + _AGAIN_S)

    def failures(self) -> dict[GroupId, LogStoreError]:
        """Replicas that cannot be opened, and why."""
        return {group: error for group, (error, _) in self._failed.items()}

    def _open(self, topic: Topic, group: GroupId, voters: Collection[NodeId], *, vacated: bool) -> None:
        with self._opening, topic.using(counts_as_use=False):
            if self._node.replica(group) is not None:
                return
            log = self._log(topic, group.partition, voters)
            if not isinstance(log, ReplicaLog):
                raise InvariantError(f"{log.where} is not opened as a replica's log")
            if vacated:
                self._hold_back(log.directory, voters)
            votes, members = open_promises(self._fs, log.directory, Membership(frozenset(voters)))
            replica = Replica(
                group,
                self._node.node_id,
                log,
                votes,
                members,
                self._settings,
                self._node,
                random.Random(self._node.randomness.random()),
                fs=self._fs,
                open_votes=partial(VoteStore.open, self._fs, log.directory),
                save_state=topic.save_state,
                lag_s=self._lag_s,
                recovery=self._node.recovery,
            )
            self._node.add(replica)
        if self._node.node_id == next(iter(voters), None) and log.log_end_offset == 0:
            self._fresh[replica] = (
                _STANDS  # the preferred leader of a new partition waits for no election time
            )
            replica.stand()

    def _hold_back(self, directory: str, voters: Collection[NodeId]) -> None:
        """Another directory under this node's number had the replica, and what it promised is not known here.
        LostReplicaError: and no other node has one."""
        if set(voters) - {self._node.node_id}:
            repair.hold_back(self._fs, directory)
        elif not exists(self._fs, f"{directory}/{MEMBER_FILE}"):
            raise LostReplicaError(f"the only replica of {directory} was in another directory of this node")

    def _log(self, topic: Topic, number: int, voters: Collection[NodeId]) -> OwnedLog:
        """One that is damaged is set aside, if others have it. With the topic in use."""
        directory = self._directory(topic, number)
        if leaving.is_unfinished(self._fs, directory):
            leaving.leave(self._fs, directory, lambda: topic.forget_row(number))
        if repair.is_unfinished(self._fs, directory):
            self._set_aside(topic, number)
        try:
            log = topic.log_to_append(number)
            if log.poisoned:  # its replica was closed for that
                topic.forget_row(number, recover=True)
                log = topic.log_to_append(number)
            if isinstance(log, ReplicaLog):
                log.check_whole()
            return log
        except OSError as error:
            raise from_os_error(error, "read", directory) from error
        except (DamagedStoreError, CorruptBatchError) as error:
            if len(voters) < 2:
                raise
            logger.error("%s-%d is damaged, and is filled from the others: %s", topic.name, number, error)
            self._set_aside(topic, number)
            return topic.log_to_append(number)

    def _begin_anew(self, topic: Topic, replica: Replica) -> None:
        """Damage that was met while the replica ran: it is opened anew, filled by the others."""
        with self._opening, topic.using(counts_as_use=False):
            logger.error("%s is damaged, and is filled from the others: %s", replica.where, replica.failure)
            self._node.remove(replica.group)
            self._set_aside(topic, replica.group.partition)

    def _directory(self, topic: Topic, number: int) -> str:
        return f"{self._root}/{topic.name}-{number}"

    def _set_aside(self, topic: Topic, number: int) -> None:
        now_ms = self._clock.wall_ms()
        aside = repair.set_aside(
            self._fs, self._directory(topic, number), now_ms, lambda: topic.forget_row(number)
        )
        logger.error("the damaged files of %s-%d are kept in %s", topic.name, number, aside)

    def stand_again(self) -> bool:
        """Preferred leaders of new partitions stand again, as the others may have made their replicas only now. Whether
        any of them is to be asked once more."""
        with self._opening:  # the adjuster and calls of other nodes look at the same time
            for replica, left in list(self._fresh.items()):
                if replica.leader_id >= 0 or left == 0:
                    del self._fresh[replica]
                else:
                    self._fresh[replica] = left - 1
                    replica.stand()
            return bool(self._fresh)
