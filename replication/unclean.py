"""Unclean recovery: one node goes on alone with what its directory holds, as a majority of its cluster is gone.

What the lost nodes had and this one has not is lost, acknowledged or not; what this one has that was never committed
counts from now on. So it is an operator's step, on the directory of a node that does not run, after a look at what it
means. Nodes of the old cluster must not come back with their directories: they would go on with another truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logstore.directory import topic_state
from logstore.directory.layout import DirectoryKind, classify_directory, missing_store
from logstore.errors import InvalidArgumentError, from_os_error
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem
from logstore.store import LogStore
from replication.cluster.identity import IdentityFile
from replication.node_lock import lock_node
from replication.raft.types import Membership, NodeId
from replication.replicas.member_file import MemberFile


class UncleanPartition(NamedTuple):
    """``voters``: those that the partition has now. ``high_watermark``: up to there the records here are known to be
    committed; ``log_end_offset``: up to there they were durable when the state was last written, there may be more.
    What others acknowledged behind that is lost; what is here behind ``high_watermark`` counts although it may never
    have been acknowledged."""

    topic: str
    partition: int
    voters: tuple[NodeId, ...]
    high_watermark: int
    log_end_offset: int


def recover(
    fs: FileSystem, root: str, node_id: NodeId, clock: Clock, *, dry_run: bool
) -> Sequence[UncleanPartition]:
    """What the node is to have alone from its next start on; ``dry_run``: nothing is changed. In order of names.

    TopicLockedError: the node runs; StoreNotFoundError, ClusterMismatchError: the directory is none of this node's;
    DamagedStoreError, StorageError: partitions before the one that failed are done, and the call may be repeated.
    """
    kind = classify_directory(fs, root)
    if kind is not DirectoryKind.STORE:
        raise missing_store(kind, root)
    if not IdentityFile(fs, root, node_id).identity.cluster_id:
        raise InvalidArgumentError(
            f"{root} is no directory of a cluster's node", hint="a store that is alone needs no recovery"
        )
    store = LogStore(root, fs=fs, clock=clock, threads=False, maintenance_s=0)
    try:
        unlock = lock_node(store._context)
        try:
            return [
                _one(fs, store.root, folder, node_id, dry_run=dry_run) for folder in _folders(fs, store.root)
            ]
        finally:
            unlock()
    finally:
        store.close()


def _folders(fs: FileSystem, root: str) -> list[tuple[str, int, MemberFile]]:
    found = []
    try:
        names = sorted(fs.listdir(root))
    except OSError as error:
        raise from_os_error(error, "list", root) from error
    for name in names:
        topic, dash, number = name.rpartition("-")
        if not dash or not number.isascii() or not number.isdigit():
            continue
        members = MemberFile.open(fs, f"{root}/{name}")
        if members is not None:
            found.append((topic, int(number), members))
    return found


def _one(
    fs: FileSystem, root: str, folder: tuple[str, int, MemberFile], node_id: NodeId, *, dry_run: bool
) -> UncleanPartition:
    topic, number, members = folder
    state = topic_state.load(fs, root, topic)
    row = None if state is None else state.partitions.get(number)
    voters = members.rows[-1].membership.voters
    if not dry_run and voters != {node_id}:
        members.reset(0, Membership(frozenset({node_id})))
    return UncleanPartition(
        topic,
        number,
        tuple(sorted(voters)),
        0 if row is None else row.high_watermark,
        0 if row is None else row.log_end_offset,
    )
