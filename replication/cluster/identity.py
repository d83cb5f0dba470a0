"""``cluster.json``: of which cluster a directory is, which node's, and which directory.

A directory's id is drawn when a node first uses it, and never changes: a node that comes with another directory under
its old number is told by it. ``begun``: the directories of all nodes that the cluster was begun with
(``beginning.py``).

A directory that was a store before it became a node's is ``joined`` once the cluster has its topics; until then nothing
of it is taken away because the cluster does not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from logstore.directory.catalogue import encode_uuid
from logstore.directory.layout import NODE_FILE
from logstore.errors import from_os_error
from logstore.format.json_document import damaged, decode_document, encode_document, table, text, truth, whole
from logstore.seams.fs import FileSystem, read_file, replace_file
from replication.errors import ClusterMismatchError
from replication.raft.types import NodeId

FORMAT_VERSION: Final = 2
_KEYS_1: Final = frozenset({"cluster_id", "node_id", "joined"})
_KEYS: Final = _KEYS_1 | {"directory_id", "begun"}
_NONE: Final[Mapping[NodeId, str]] = MappingProxyType({})


class NodeIdentity(NamedTuple):
    """``cluster_id`` empty: no cluster has taken it up yet. ``directory_id`` empty: none was drawn yet; ``begun``: node
    -> directory id, empty: the node did not take part in the cluster's beginning."""

    node_id: NodeId
    cluster_id: str = ""
    joined: bool = False
    directory_id: str = ""
    begun: Mapping[NodeId, str] = _NONE


class IdentityFile:
    """The identity in ``root``. One thread at a time. ClusterMismatchError: the directory is another node's;
    DamagedStoreError, StorageError."""

    def __init__(self, fs: FileSystem, root: str, node_id: NodeId) -> None:
        self._fs = fs
        self._path = f"{root}/{NODE_FILE}"
        self.identity = self._load(node_id)

    def _load(self, node_id: NodeId) -> NodeIdentity:
        try:
            data = read_file(self._fs, self._path)
        except FileNotFoundError:
            return NodeIdentity(node_id)
        except OSError as error:
            raise from_os_error(error, "read", self._path) from error
        fields = decode_document(data, FORMAT_VERSION, _KEYS, self._path, older={1: _KEYS_1})
        found = NodeIdentity(
            whole(fields["node_id"], "node_id", self._path),
            text(fields["cluster_id"], "cluster_id", self._path),
            truth(fields["joined"], "joined", self._path),
            text(fields.get("directory_id", ""), "directory_id", self._path),
            read_directories(fields.get("begun", {}), self._path),
        )
        if found.node_id != node_id:
            raise ClusterMismatchError(
                f"{self._path}: the directory is node {found.node_id}'s, not node {node_id}'s",
                hint="give each node a directory of its own, and always the same one",
            )
        return found

    def draw_directory_id(self, random_bytes: Callable[[int], bytes]) -> None:
        """Unless the directory has one. Durable when it returns."""
        if not self.identity.directory_id:
            self._save(self.identity._replace(directory_id=encode_uuid(random_bytes(16))))

    def begin(self, directories: Mapping[NodeId, str]) -> None:
        """The cluster begins with these directories, durably."""
        self._save(self.identity._replace(begun=MappingProxyType(dict(directories))))

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
            replace_file(self._fs, self._path, encode_document(FORMAT_VERSION, _fields(identity)))
        except OSError as error:
            raise from_os_error(error, "write", self._path) from error
        self.identity = identity


def _fields(identity: NodeIdentity) -> dict[str, Any]:
    return {**identity._asdict(), "begun": {str(node): one for node, one in sorted(identity.begun.items())}}


def read_directories(value: object, where: str) -> Mapping[NodeId, str]:
    """Directory ids by node, of JSON. DamagedStoreError."""
    found: dict[NodeId, str] = {}
    for number, directory in table(value, "directories", where).items():
        if not number.isascii() or not number.isdigit():
            raise damaged(where, f"{number!r} is no node's number")
        found[int(number)] = text(directory, "a directory id", where)
    return MappingProxyType(found)
