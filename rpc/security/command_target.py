"""What `logstore acl` and `logstore user` work on: files of a store (--path), or a broker (--bootstrap-server)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from logstore.cli.target import Target

if TYPE_CHECKING:
    from rpc.security.access import AccessAdministration


@contextmanager
def access_of(target: Target) -> Iterator[AccessAdministration]:
    """Users and rules of the target. UsageError, StoreNotFoundError, and errors of the connection."""
    if target.path is None and target.bootstrap_server is not None:
        with target.client() as store:
            from rpc.client.store import RemoteStore

            if not isinstance(store, RemoteStore):
                raise TypeError(f"{target.bootstrap_server} was connected to by {type(store).__name__}")
            yield store.security
        return
    from logstore.directory.layout import DirectoryKind, classify_directory, is_node_directory, missing_store
    from logstore.errors import InvalidArgumentError
    from logstore.seams.fs import OsFileSystem
    from rpc.security.access import AccessFiles

    directory = target.directory()
    fs = OsFileSystem()
    kind = classify_directory(fs, directory)
    if kind is not DirectoryKind.STORE:
        raise missing_store(kind, directory)
    if is_node_directory(fs, directory):
        raise InvalidArgumentError(
            f"{directory} is a directory of a cluster's node, whose users and rules the cluster has",
            hint="ask a broker: --bootstrap-server HOST:PORT",
        )
    yield AccessFiles(directory)
