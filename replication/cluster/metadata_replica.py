"""``MetadataReplica``: this node's replica of the cluster's metadata, with its files, outside of any catalogue."""

from __future__ import annotations

import logging
import random
from functools import partial

from logstore.config import TopicConfig
from logstore.errors import LogStoreError
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem
from replication.node import ReplicationNode
from replication.node_settings import NodeSettings
from replication.raft.types import Membership
from replication.replicas.replica import Replica
from replication.replicas.replica_manager import is_poisoned
from replication.replicas.standalone_log import StandaloneLog
from replication.replicas.vote_store import VoteStore
from replication.transport import METADATA_GROUP, METADATA_TOPIC

logger = logging.getLogger(__name__)


class MetadataReplica:
    """Opened by its constructor; ``node`` has the replica from then on. Errors as of ``StandaloneLog``."""

    def __init__(
        self,
        node: ReplicationNode,
        settings: NodeSettings,
        fs: FileSystem,
        root: str,
        config: TopicConfig,
        clock: Clock,
        randomness: random.Random,
    ) -> None:
        self._node = node
        self._settings = settings
        self._fs = fs
        self._randomness = randomness
        self._lost = False  # its log is to be opened anew
        self._said = ""
        self.files = StandaloneLog(
            fs,
            root,
            METADATA_TOPIC,
            METADATA_GROUP.topic_id,
            config,
            clock,
            Membership(settings.voters),
            held_back=settings.voters != {node.node_id},
            keeps_state=True,
        )
        self._add()

    def _add(self) -> None:
        files, settings = self.files, self._settings
        self._node.add(
            Replica(
                METADATA_GROUP,
                self._node.node_id,
                files.log,
                files.votes,
                files.members,
                settings.raft,
                self._node,
                random.Random(self._randomness.random()),
                fs=self._fs,
                open_votes=partial(VoteStore.open, self._fs, files.directory),
                save_state=files.save_state,
                lag_s=settings.lag_s,
                states=files.states,
            )
        )

    def look(self) -> None:
        """Now and then, by one thread: a log that the disk failed is opened anew once the disk takes writes."""
        replica = self._node.replica(METADATA_GROUP)
        if replica is not None and is_poisoned(replica):
            self._lost = True
        if not self._lost or self._node.disk_refuses(self._node.node_id):
            return
        self._node.remove(METADATA_GROUP)
        try:
            self.files.reopen()
        except LogStoreError as error:
            if self._said != error.message:
                logger.error("the log of the cluster's metadata cannot be opened anew yet: %s", error)
            self._said = error.message
            return
        self._lost, self._said = False, ""
        self._add()
        logger.warning("the log of the cluster's metadata was opened anew, as after a power loss")
