"""``ReplicatedCatalogue``: the cluster's catalogue in the place of a store's own file.

What a node shows is the newest committed image, and its directory's ``topics.json`` follows it, so that the directory
of a node that was stopped opens as a store by itself. Slots of ``.locks`` and ``.live`` are given by each directory for
itself, and its store id stays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from logstore.directory import deletion
from logstore.directory.catalogue import Catalogue, CatalogueFile, TopicEntry
from logstore.errors import DiskFullError, LogStoreError, StorageError, TopicLockedError
from logstore.invariants import invariant
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem
from replication.cluster.changes import CatalogueChange, changes_between
from replication.cluster.identity import IdentityFile
from replication.cluster.metadata import ClusterMetadata
from replication.errors import MetadataConflictError

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0


class ReplicatedCatalogue:
    """A ``CatalogueSource`` whose changes are decided by the controller (``SharedCatalogue``). Thread-safe.

    ``metadata``: None until the node's replica of the metadata runs, which is after its store was opened; until then
    the directory's own file is the catalogue. ``leaving``: told of topics before their files go.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        local: CatalogueFile,
        identity: IdentityFile,
        clock: Clock,
        leaving: Callable[[TopicEntry], None],
    ) -> None:
        self.path = local.path
        self._fs = fs
        self._root = root
        self._local = local
        self._identity = identity
        self._clock = clock
        self._leaving = leaving
        self._lock = threading.RLock()
        self._changing = threading.Lock()  # one change of this node at a time: the others would only conflict
        self._held: Catalogue | None = None  # as the file has it
        self._shown = -1  # revision of the image that ``load`` gave last
        self._refused_until_s = 0.0  # by the disk, of what an image changes
        self.metadata: ClusterMetadata | None = None

    # --- as a file of a catalogue ---

    def create(self, store_id: str) -> Catalogue:
        with self._lock:
            self._held = self._local.create(store_id)
            return self._held

    def load(self) -> Catalogue:
        """The newest committed one; the directory's file is the same when this returns. Where the disk refuses that,
        the one that the file has: this node is behind then, as one that hears nothing, and answers what it can.
        StorageError, DiskFullError: at the first load since it joined; the errors of ``CatalogueFile.load``."""
        with self._lock:
            held = self._file()
            if self.metadata is None or not self._identity.identity.joined:
                return held  # what the cluster takes over is the directory's own, and nothing that it deleted since
            image = self.metadata.follower.newest()
            merged = self._merged(held, image.catalogue)
            if merged is not held and not self._try_to_follow(held, merged):
                return held
            self._shown = image.revision
            return merged

    def save(self, catalogue: Catalogue) -> None:
        """As ``change``, for callers that know no more than a file."""
        self.change(lambda _: catalogue, 30.0)

    def changed(self) -> bool:
        """Whether ``load`` would give another, or try to: not at once where the disk has just refused. Cheap."""
        if self.metadata is None or self._clock.monotonic_s() < self._refused_until_s:
            return False
        if not self._identity.identity.joined:
            return False
        return self.metadata.follower.newest().revision != self._shown

    def close(self) -> None:
        self._local.close()

    def _file(self) -> Catalogue:
        if self._held is None:
            self._held = self._local.load()
        return self._held

    # --- following ---

    def _merged(self, held: Catalogue, image: Catalogue) -> Catalogue:
        """``held`` itself where the image has nothing newer: right after a start it may be far behind."""
        joined = self._identity.identity.joined
        if joined and image.revision <= held.revision:
            return held
        merged = followed(held, image, add_only=not joined)
        return held if merged == held else merged

    def _try_to_follow(self, held: Catalogue, merged: Catalogue) -> bool:
        """False: the disk refused what ``_follow`` writes. It is tried again, though not at every call."""
        now_s = self._clock.monotonic_s()
        if now_s < self._refused_until_s:
            return False
        try:
            self._follow(held, merged)
        except (StorageError, DiskFullError) as error:
            if self._shown < 0:
                raise
            if not self._refused_until_s:
                logger.error("the catalogue stays at revision %d here: %s", held.revision, error)
            self._refused_until_s = now_s + _PAUSE_S
            return False
        self._refused_until_s = 0.0
        return True

    def _follow(self, held: Catalogue, merged: Catalogue) -> None:
        """The directory first, then its file: a crash in between finds notes of what is gone."""
        gone = [
            entry
            for name, entry in held.topics.items()
            if name not in merged.topics or merged.topics[name].topic_id != entry.topic_id
        ]
        for entry in gone:
            self._leaving(entry)
            deletion.announce(self._fs, self._root, entry)
        rest = replace(
            held,
            topics=MappingProxyType({name: one for name, one in held.topics.items() if one not in gone}),
        )
        for name, entry in merged.topics.items():
            known = rest.topics.get(name)
            first = 0 if known is None else known.partitions
            if first < entry.partitions:
                deletion.free_names(self._fs, self._root, rest, name, range(first, entry.partitions))
        self._local.save(merged)
        self._held = merged
        for entry in gone:
            logger.info("topic %s was deleted by the cluster", entry.name)

    def joined(self) -> None:
        """The cluster has all topics of this directory, as this node has followed: from now on what it does not have is
        taken away here. The file's revision is one of the cluster's before that is so, just below what was followed:
        an image of before the take-over, as after a start, changes nothing."""
        with self._lock:
            if not self._identity.identity.joined:
                revision = 0 if self.metadata is None else self.metadata.follower.newest().revision
                held = replace(self._file(), revision=max(revision - 1, 0))
                self._local.save(held)
                self._held = held
            self._identity.join()
            self._shown = -1

    def local(self) -> Catalogue:
        """What the directory has now."""
        with self._lock:
            return self._file()

    # --- changing ---

    def change(
        self,
        change: Callable[[Catalogue], Catalogue],
        timeout_s: float,
        replication_factor: int | None = None,
    ) -> Catalogue:
        """What ``change`` makes of the newest catalogue, committed and known here; it is called again where another
        node was first. Slots in what is returned mean nothing. TopicLockedError: another thread is at it for too long;
        the errors of ``ClusterMetadata.change``, and those of ``change`` on what the controller knows."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        metadata = self.metadata
        invariant(metadata is not None, "a node changes its catalogue once its metadata run")
        if metadata is None or not self._changing.acquire(timeout=max(timeout_s, 0)):
            raise TopicLockedError(f"the cluster's catalogue is being changed; waited {timeout_s:.1f} s")

        def left_s() -> float:
            return max(deadline_s - self._clock.monotonic_s(), 0.0)

        try:
            while True:
                changed, changes = self._decided(metadata, change, left_s)
                if not changes:
                    return changed
                try:
                    revision = metadata.change(changes, replication_factor, left_s())
                except MetadataConflictError:
                    if left_s() <= 0:
                        raise
                    metadata.catch_up(left_s())
                    continue
                metadata.follower.wait_for(revision, left_s())
                return changed
        finally:
            self._changing.release()

    def _decided(
        self,
        metadata: ClusterMetadata,
        change: Callable[[Catalogue], Catalogue],
        left_s: Callable[[], float],
    ) -> tuple[Catalogue, Sequence[CatalogueChange]]:
        """What ``change`` makes of the newest catalogue, and what that changes. It refuses, or finds that nothing is to
        be done, only on what the controller knows: this node may be behind. Changes are looked at by the controller
        itself."""
        try:
            base = self._newest(metadata)
            changed = change(base)
            if changes := changes_between(base, changed):
                return changed, changes
        except LogStoreError as error:
            logger.debug("a change is looked at again with what the controller knows: %s", error)
        metadata.catch_up(left_s())
        base = self._newest(metadata)
        changed = change(base)
        return changed, changes_between(base, changed)

    def _newest(self, metadata: ClusterMetadata) -> Catalogue:
        with self._lock:
            return self._merged(self._file(), metadata.follower.newest().catalogue)


def followed(local: Catalogue, image: Catalogue, *, add_only: bool) -> Catalogue:
    """The image with the slots of ``local``. ``add_only``: what the image does not have stays, and of what both have
    under one name the local one."""
    merged = local
    for name, entry in local.topics.items():
        there = image.topics.get(name)
        if not add_only and (there is None or there.topic_id != entry.topic_id):
            merged = merged.without_topic(name)
    for entry in _in_order(image.topics.values()):
        mine = merged.topics.get(entry.name)
        if mine is None:
            merged = merged.with_topic(
                entry.name,
                topic_id=entry.topic_id,
                partitions=entry.partitions,
                config=entry.config,
                created_ms=entry.created_ms,
                internal=entry.internal,
            )
        elif mine.topic_id == entry.topic_id:
            if mine.partitions < entry.partitions:
                merged = merged.with_partitions(entry.name, entry.partitions)
            if dict(mine.config) != dict(entry.config):
                merged = merged.with_config(entry.name, entry.config)
    producers, next_id = image.producers, image.next_producer_id
    if add_only:
        producers = MappingProxyType({**local.producers, **image.producers})
        next_id = max(next_id, local.next_producer_id)
    return replace(merged, revision=image.revision, producers=producers, next_producer_id=next_id)


def _in_order(entries: Iterable[TopicEntry]) -> list[TopicEntry]:
    """As they were made, which gives every directory that follows from its beginning the same slots."""
    return sorted(entries, key=lambda entry: entry.lock_slot)
