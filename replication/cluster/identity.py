"""``cluster.json``: of which cluster a directory is, and which node's.

A directory that was a store before it became a node's is ``joined`` once the cluster has its topics; until then nothing
of it is taken away because the cluster does not know it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logstore.errors import from_os_error
from logstore.format.json_document import decode_document, encode_document, text, truth, whole
from logstore.seams.fs import FileSystem, read_file, replace_file
from replication.errors import ClusterMismatchError
from replication.raft.types import NodeId

FILE_NAME: Final = "cluster.json"
FORMAT_VERSION: Final = 1
_KEYS: Final = frozenset({"cluster_id", "node_id", "joined"})


class NodeIdentity(NamedTuple):
    """``cluster_id`` empty: no cluster has taken it up yet."""

    node_id: NodeId
    cluster_id: str = ""
    joined: bool = False


class IdentityFile:
    """The identity in ``root``. One thread at a time. ClusterMismatchError: the directory is another node's;
    DamagedStoreError, StorageError."""

    def __init__(self, fs: FileSystem, root: str, node_id: NodeId) -> None:
        self._fs = fs
        self._path = f"{root}/{FILE_NAME}"
        self.identity = self._load(node_id)

    def _load(self, node_id: NodeId) -> NodeIdentity:
        try:
            data = read_file(self._fs, self._path)
        except FileNotFoundError:
            return NodeIdentity(node_id)
        except OSError as error:
            raise from_os_error(error, "read", self._path) from error
        fields = decode_document(data, FORMAT_VERSION, _KEYS, self._path)
        found = NodeIdentity(
            whole(fields["node_id"], "node_id", self._path),
            text(fields["cluster_id"], "cluster_id", self._path),
            truth(fields["joined"], "joined", self._path),
        )
        if found.node_id != node_id:
            raise ClusterMismatchError(
                f"{self._path}: the directory is node {found.node_id}'s, not node {node_id}'s",
                hint="give each node a directory of its own, and always the same one",
            )
        return found

    def take_up(self, cluster_id: str) -> None:
        """The cluster that the node is of from now on, durably. ClusterMismatchError: it is of another one."""
        now = self.identity
        if now.cluster_id == cluster_id:
            return
        if now.cluster_id:
            raise ClusterMismatchError(
                f"{self._path}: the directory is of cluster {now.cluster_id}, not of {cluster_id}",
                hint="give the node an empty directory, or its own cluster's peers",
            )
        self._save(now._replace(cluster_id=cluster_id))

    def join(self) -> None:
        """The cluster has all that the directory had, durably."""
        if not self.identity.joined:
            self._save(self.identity._replace(joined=True))

    def _save(self, identity: NodeIdentity) -> None:
        try:
            replace_file(self._fs, self._path, encode_document(FORMAT_VERSION, identity._asdict()))
        except OSError as error:
            raise from_os_error(error, "write", self._path) from error
        self.identity = identity
