"""``StoreReplication``: what a node of a cluster puts into the store that it opens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from logstore.directory.catalogue import Catalogue, CatalogueFile
from logstore.partition.leadership import Leadership
from logstore.partition.partition import Partition
from logstore.partition.topic import Topic


class CatalogueSource(Protocol):
    """Where the catalogue of a store is kept; see ``CatalogueFile``, which is one. ``path``: for messages."""

    @property
    def path(self) -> str: ...
    def load(self) -> Catalogue: ...
    def create(self, store_id: str) -> Catalogue: ...
    def save(self, catalogue: Catalogue) -> None: ...
    def changed(self) -> bool: ...
    def close(self) -> None: ...


@runtime_checkable
class SharedCatalogue(Protocol):
    """A catalogue that other nodes change, too: a change is decided elsewhere, and comes back by ``load``."""

    def change(
        self,
        change: Callable[[Catalogue], Catalogue],
        timeout_s: float,
        replication_factor: int | None = None,
    ) -> Catalogue:
        """What ``change`` makes of the newest catalogue, and ``load`` gives from now on; slots in it mean nothing.
        ``change`` may be called again, on a newer one. ``replication_factor``: of topics that it makes."""
        ...


class StoreReplication(Leadership, Protocol):
    """Thread-safe. The store then owns all of its topics, internal ones among them: one process, one node."""

    def partition(self, topic: Topic, number: int) -> Partition:
        """The partition as this node serves it."""
        ...

    def catalogue(self, local: CatalogueFile) -> CatalogueSource:
        """The cluster's catalogue, in place of the store's own file."""
        ...
