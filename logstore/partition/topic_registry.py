"""The topics of an opened store: the catalogue as last seen, and one ``Topic`` for each that is in use.

Locks are always taken in one order: topics by their slot, the catalogue last and for a moment only. Changes
made by other processes are noticed by a ``stat`` of the catalogue file.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from logstore.config import changed_config, parse_topic_config
from logstore.directory import deletion
from logstore.directory.catalogue import Catalogue, TopicEntry, encode_uuid
from logstore.errors import (
    InvalidArgumentError,
    InvalidPartitionsError,
    LogStoreError,
    StoreReplacedError,
    TopicLockedError,
    UnknownTopicError,
    from_os_error,
)
from logstore.format.batch import decode_batches
from logstore.kafka_directory.directory import BrokerDirectory
from logstore.ownership.lock import CATALOGUE_SLOT
from logstore.ownership.lock_turns import acquire_in_process, holder_text
from logstore.partition.cleaned_topic import CleanedTopic
from logstore.partition.context import StoreContext
from logstore.partition.coordinator_log import CoordinatorLogs
from logstore.partition.coordinator_log_cleaning import SharedCleaning
from logstore.partition.fan_out import fan_out
from logstore.partition.store_replication import CatalogueSource, SharedCatalogue
from logstore.partition.topic import Topic

logger = logging.getLogger(__name__)

_HOLDERS_SHOWN = 10


class TopicRegistry:
    """Thread-safe. ``random_bytes`` makes topic ids."""

    def __init__(
        self,
        context: StoreContext,
        file: CatalogueSource | BrokerDirectory,
        catalogue: Catalogue,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._context = context
        self._file = file
        self._catalogue = catalogue
        self._look_again_s = 0.0
        self._random_bytes = random_bytes
        self._lock = threading.RLock()
        self._changing = threading.Lock()  # held by the thread that has, or waits for, the catalogue's lock
        self._open: dict[str, Topic] = {}
        self._retained = _retained_names(catalogue)
        self._compacted = self._compacted_names(catalogue)
        self.coordinator_logs = CoordinatorLogs(context)
        self._shared: dict[str, SharedCleaning] = {}
        self._loading = False  # a newer catalogue is in the file's hands, but not in ours yet
        self._gone: list[Topic] = []  # deleted by the cluster, their files are still here
        self._replaced = False  # the file belongs to another store than the one that was opened
        self._owns_all = False  # topics made later are owned, too

    # --- looking ---

    @property
    def catalogue(self) -> Catalogue:
        """The newest catalogue: loaded again if another process changed it."""
        self._context.check_usable()
        self.look_for_changes()
        return self._catalogue

    def recent_revision(self) -> int:
        """The catalogue's revision, another process's change at most 10 ms late. Asked once a batch: a stat
        each time gives up the GIL, and a busy sender keeps it for a whole switch interval."""
        now_s = self._context.clock.monotonic_s()
        if now_s >= self._look_again_s:
            self._look_again_s = now_s + 0.01
            self._context.check_usable()
            self.look_for_changes()
        return self._catalogue.revision

    def _adopt(self, catalogue: Catalogue) -> None:
        before, self._catalogue = self._catalogue, catalogue
        if self._context.replicated:
            self._take_out_gone(before, catalogue)
        self._retained = _retained_names(catalogue)
        self._compacted = self._compacted_names(catalogue)
        if self.retains and not self._context.read_only:
            self._context.note_owned()  # the housekeeper has something to look at, whoever owns them
        for name, topic in list(self._open.items()):
            entry = catalogue.topics.get(name)
            if entry is None or entry.topic_id != topic.entry.topic_id:
                if not topic.owned:
                    del self._open[name]  # deleted by another process, perhaps made anew
                    topic.forget_files()
            elif entry != topic.entry:
                topic.update(entry)

    def _take_out_gone(self, before: Catalogue, now: Catalogue) -> None:
        """Topics that the cluster has deleted: ``remove_gone`` removes what is left of them here."""
        for name, entry in before.topics.items():
            there = now.topics.get(name)
            if there is None or there.topic_id != entry.topic_id:
                topic = self._open.pop(name, None)
                self._gone.append(topic or Topic(self._context, entry, self.entry))

    def remove_gone(self) -> None:
        """Close and remove the files of topics that the cluster has deleted; their replicas run no more. Errors are
        logged: what cannot be removed now is when the store is opened."""
        context = self._context
        while self._gone:
            topic = self._gone.pop()
            topic.discard()
            topic.give_up_lock()
            if not self._gone:
                try:
                    with self._catalogue_locked():
                        deletion.resume(context.fs, context.root, self._catalogue)
                except LogStoreError as error:
                    logger.warning("files of deleted topics are not all gone yet: %s", error)

    def entry(self, name: str) -> TopicEntry:
        return self.catalogue.topic(name)

    def get(self, name: str) -> Topic:
        """The topic, from memory if it was used before. ``UnknownTopicError``."""
        topic = self._open.get(name) if isinstance(name, str) else None
        if topic is not None and topic.owned:
            return topic  # nobody else can delete it or make it anew
        with self._lock:
            entry = self.catalogue.topic(name)
            topic = self._open.get(name)
            if topic is None:
                topic = self._open[name] = Topic(self._context, entry, self.entry)
            return topic

    def look_for_changes(self) -> None:
        """Take over what other processes changed; the housekeeper calls this now and then for owners.
        ``StoreReplacedError``, from then on at each call, if the directory was removed and made anew."""
        self._check_same_store()
        if self._loading or self._file.changed():
            with self._lock:
                if self._file.changed():
                    self._load()

    def look_around(self) -> None:
        """The housekeeper's look: changes of other processes, and topics to own among them."""
        self.look_for_changes()
        self.remove_gone()
        self.own_new_topics()

    def _load(self) -> Catalogue:
        """The lock is held. Whatever was loaded is adopted at once: it does not count as changed any more."""
        self._loading = True
        try:
            catalogue = self._file.load()
            self._replaced = catalogue.store_id != self._catalogue.store_id
            self._check_same_store()
            self._adopt(catalogue)
            return catalogue
        finally:
            self._loading = False

    def _check_same_store(self) -> None:
        if self._replaced:
            # Open logs, `.live` and the groups' offsets in memory are of the store that is gone.
            raise StoreReplacedError(
                f"the directory of {self._file.path} was removed and made anew since it was opened"
            )

    @property
    def retains(self) -> bool:
        """Whether any topic's settings let segments go, or have them cleaned, or there are internal ones: they are
        cleaned, too, and transactions may have to be ended for a process that died."""
        return bool(self._retained or self._compacted or self._internal_names())

    @property
    def has_internal(self) -> bool:
        """Whether there are internal topics, as far as this process knows."""
        return bool(self._internal_names())

    def has_seen(self, name: str) -> bool:
        """Whether there is such a topic, as far as this process knows: no look at the file."""
        return name in self._catalogue.topics

    def retained(self) -> list[Topic]:
        """Topics whose settings let segments go."""
        return self._found(self._retained)

    def compacted(self) -> list[Topic]:
        """Topics whose settings have them cleaned."""
        return self._found(self._compacted)

    def looked_after(self) -> list[Topic]:
        """Topics whose settings let segments go or have them cleaned, internal ones apart."""
        return self._found(list(dict.fromkeys([*self._retained, *self._compacted])))

    def cleaned(self) -> list[CleanedTopic]:
        """All that is compacted, internal topics among them."""
        found: list[CleanedTopic] = []
        for name in [] if self._context.read_only else self._shared_names():
            try:
                found.append(self.shared_cleaning(name))
            except UnknownTopicError:
                continue  # just deleted
        return [*self.compacted(), *found]

    def _internal_names(self) -> list[str]:
        return [name for name, entry in self._catalogue.topics.items() if entry.internal]

    def is_shared(self, entry: TopicEntry) -> bool:
        """Whether many processes write the topic by turns, so that none owns it."""
        return entry.internal and not self._context.replicated

    def _shared_names(self) -> list[str]:
        return [name for name, entry in self._catalogue.topics.items() if self.is_shared(entry)]

    def _compacted_names(self, catalogue: Catalogue) -> list[str]:
        """Topics that are compacted by their owner, or by whichever process has time; shared ones are cleaned in
        another way (``coordinator_log_cleaning.py``)."""
        return [
            name
            for name, entry in catalogue.topics.items()
            if not self.is_shared(entry) and "compact" in entry.config.get("cleanup.policy", "")
        ]

    def shared_cleaning(self, name: str) -> SharedCleaning:
        """An internal topic for its cleaner. ``UnknownTopicError``."""
        with self._lock:
            entry = self._catalogue.topic(name)
            found = self._shared.get(entry.topic_id)
            if found is None:
                log = self.coordinator_logs.of(entry)
                found = self._shared[entry.topic_id] = SharedCleaning(self._context, log)
            return found

    def _found(self, names: list[str]) -> list[Topic]:
        found: list[Topic] = []
        for name in [] if self._context.read_only else names:
            try:
                found.append(self.get(name))
            except UnknownTopicError:
                continue  # just deleted
        return found

    def opened(self) -> list[Topic]:
        return list(self._open.values())

    # --- changing ---

    def _change(
        self, change: Callable[[Catalogue], Catalogue], replication_factor: int | None = None
    ) -> Catalogue:
        """Load, change, save under the catalogue's lock; one that other nodes share is changed by its own way."""
        context = self._context
        context.check_writable()
        if isinstance(self._file, SharedCatalogue):
            changed = self._file.change(change, context.lock_timeout_s, replication_factor)
            self.look_for_changes()
            return changed
        if replication_factor not in (None, 1):
            raise InvalidArgumentError(
                f"replication_factor={replication_factor!r}: a store without a cluster has one copy of each partition",
                hint="start brokers with --peers, or leave it out",
            )
        with self._catalogue_locked():
            try:
                loaded = self._load()
                changed = change(loaded)
                if changed is loaded:
                    return changed
                self._loading = True
                self._file.save(changed)
                self._adopt(changed)
            finally:
                self._loading = False
            return changed

    @contextmanager
    def _catalogue_locked(self) -> Iterator[None]:
        """The catalogue's lock first: while it is waited for, other threads find their topics."""
        context, what = self._context, "the catalogue topics.json"
        acquire_in_process(self._changing, context.lock_timeout_s, what, context.locks, CATALOGUE_SLOT)
        try:
            context.locks.acquire(CATALOGUE_SLOT, context.lock_timeout_s, what)
            try:
                with self._lock:
                    yield
            finally:
                context.locks.release(CATALOGUE_SLOT)
        finally:
            self._changing.release()

    def _free_names(self, catalogue: Catalogue, name: str, partitions: Iterable[int]) -> None:
        deletion.free_names(self._context.fs, self._context.root, catalogue, name, partitions)

    def create(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str],
        *,
        internal: bool = False,
        replication_factor: int | None = None,
    ) -> TopicEntry:
        """``InvalidTopicError``, ``TopicExistsError``, ``InvalidPartitionsError``, ``InvalidConfigError``;
        ``InvalidArgumentError`` for a ``replication_factor`` that cannot be."""
        parse_topic_config(config)
        topic_id = encode_uuid(self._random_bytes(16))
        now_ms = self._context.clock.wall_ms()

        def add(catalogue: Catalogue) -> Catalogue:
            changed = catalogue.with_topic(
                name,
                topic_id=topic_id,
                partitions=partitions,
                config=config,
                created_ms=now_ms,
                internal=internal,
            )
            self._free_names(catalogue, name, range(partitions))
            return changed

        made = self._change(add, replication_factor).topic(name)
        if not self.is_shared(made):
            self.own_new_topics()
        return made

    def add_partitions(self, name: str, total: int, *, allow_keyed: bool) -> None:
        """Keys move to other partitions when their number changes, so a topic whose records have keys needs
        ``allow_keyed``. ``InvalidPartitionsError``; ``InvalidTopicError`` for an internal one."""
        self.entry(name).refuse_internal()
        if not allow_keyed:
            self._refuse_if_keyed(name)

        def grow(catalogue: Catalogue) -> Catalogue:
            changed = catalogue.with_partitions(name, total)
            self._free_names(catalogue, name, range(catalogue.topic(name).partitions, total))
            return changed

        self._change(grow)

    def _refuse_if_keyed(self, name: str) -> None:
        self.refuse_keyed(name, self.is_keyed)

    def refuse_keyed(self, name: str, is_keyed: Callable[[str, int], bool]) -> None:
        """``InvalidPartitionsError`` where keys would move. ``is_keyed``: of a partition, see there."""
        topic = self.get(name)
        if topic.config.partitioner != "round_robin" and any(
            is_keyed(name, number) for number in range(topic.entry.partitions)
        ):
            raise InvalidPartitionsError(
                f"topic {name!r} holds records with keys: with more partitions, new records of a key land in "
                "another partition than its old ones",
                hint="pass allow_keyed=True (--allow-keyed) if order per key across the change does not matter",
            )

    def is_keyed(self, name: str, partition: int) -> bool:
        """Whether the first record of the partition has a key."""
        reader = self.get(name).partition(partition).reader()
        bounds = reader.bounds()
        try:
            chunk = reader.read(bounds.log_start_offset, 1, bounds.high_watermark)
        except OSError as error:
            raise from_os_error(error, "read", reader.where) from error
        return chunk is not None and any(
            record.key is not None for record in decode_batches(chunk.data, name, partition)
        )

    def alter(self, name: str, change: Mapping[str, str | None]) -> None:
        self.entry(name).refuse_internal()
        self._context.check_writable()
        with self._context.reserve.opened():
            self._change(
                lambda catalogue: catalogue.with_config(
                    name, changed_config(catalogue.topic(name).config, change)
                )
            )

    def delete(self, name: str) -> TopicEntry:
        """Own the topic, forget it durably, then remove its files. ``TopicLockedError`` names an owner."""
        context = self._context
        topic = self.get(name)
        if topic.entry.internal:
            raise UnknownTopicError(
                f"{name!r} is internal and cannot be deleted",
                hint="groups can be deleted, and unused ids are",
            )
        context.check_writable()
        with context.reserve.opened(), topic.using():
            entry = topic.entry

            def forget(catalogue: Catalogue) -> Catalogue:
                nonlocal entry
                entry = catalogue.topic(name)  # partitions that another process has just added among them
                deletion.announce(context.fs, context.root, entry)
                return catalogue.without_topic(name)

            self._change(forget)
            with self._lock:
                self._open.pop(name, None)
            topic.discard()
            try:
                with self._catalogue_locked():
                    deletion.move_aside(context.fs, context.root, name, entry.topic_id, entry.partitions)
                deletion.finish(context.fs, context.root, name, entry.topic_id)
            except LogStoreError as error:
                logger.warning("topic %s is deleted, its files are not all gone yet: %s", name, error)
        topic.give_up_lock()
        logger.info("topic %s is deleted, with %d partitions", name, entry.partitions)
        return entry

    # --- owning all ---

    def own_all(self) -> None:
        """Own every topic, without waiting, and topics that are made later, also while they are idle.
        ``TopicLockedError`` names those that other processes own, and their owners; nothing is kept then."""
        self._context.check_writable()
        owned: list[Topic] = []
        held: list[str] = []
        try:
            for name in self._ownable_names():
                topic = self.get(name)
                if topic.pin_if_free():
                    owned.append(topic)
                else:
                    held.append(f"{name!r} by {holder_text(self._context.locks, topic.entry.lock_slot)}")
            if held:
                raise TopicLockedError(
                    f"{len(held)} topics of {self._context.root} are written by other processes: "
                    + ", ".join(held[:_HOLDERS_SHOWN])
                    + (", ..." if len(held) > _HOLDERS_SHOWN else ""),
                    hint="end those processes, or have them release their topics (store.release, store.close)",
                )
        except LogStoreError:
            for topic in owned:
                topic.release()
            raise
        self._owns_all = True

    def own_new_topics(self) -> None:
        """After ``own_all``: own what was made since then, unless another process does."""
        if not self._owns_all:
            return
        for name in self._ownable_names():
            try:
                self.get(name).pin_if_free()
            except LogStoreError as error:  # its first append tells the caller
                logger.warning("topic %s cannot be owned yet: %s", name, error)

    def _ownable_names(self) -> list[str]:
        return [name for name, entry in self.catalogue.topics.items() if not self.is_shared(entry)]

    # --- producers ---

    def take_producer_ids(self, count: int) -> int:
        """Make ``count`` ids this process's own, durably; the first of them."""
        return self._change(lambda catalogue: catalogue.with_producer_ids(count)).next_producer_id - count

    def change_producers(self, change: Callable[[Catalogue], Catalogue]) -> Catalogue:
        """Change named producers, durably; the catalogue after it. Nothing is written if nothing changes."""
        return self._change(change)

    # --- ending ---

    def close(self) -> None:
        """Release every topic; the first failure is raised when all had their chance."""
        for shared in list(self._shared.values()):
            shared.close()
        self.coordinator_logs.close()
        try:
            fan_out(Topic.release, self.opened(), self._context.recovery_threads)
        finally:
            self._file.close()

    def abandon(self) -> None:
        for topic in self.opened():
            topic.abandon()
        for shared in self._shared.values():
            shared.abandon()
        self._open.clear()


def _retained_names(catalogue: Catalogue) -> list[str]:
    keys = ("retention.ms", "retention.bytes")
    return [
        name
        for name, entry in catalogue.topics.items()
        if not entry.internal and any(key in entry.config for key in keys)
    ]
