"""``LogStore``: a directory of topics, opened. The composition root of the embedded product."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Literal

from logstore import arguments
from logstore.client.store_client import StoreClient
from logstore.directory import deletion
from logstore.directory.backup import BackupReport
from logstore.directory.catalogue import CatalogueFile, encode_uuid
from logstore.directory.layout import (
    CATALOGUE_FILE,
    DirectoryKind,
    classify_directory,
    make_root,
    missing_store,
)
from logstore.directory.reserve import Reserve, reserve_size
from logstore.embedded.backend import EmbeddedBackend
from logstore.embedded.cluster_replication import ClusterReplication
from logstore.embedded.store_parts import StoreParts, watch
from logstore.embedded.topic_handle import TopicHandle
from logstore.errors import InvalidArgumentError, LogStoreError, from_os_error
from logstore.kafka_directory.directory import BrokerDirectory
from logstore.log.cleaning.retirement import Retirement
from logstore.log.recovery.recovery import RecoveredPartition
from logstore.log.recovery.salvage import require_new, require_outside
from logstore.log.segments.file_pool import FilePool, default_capacity
from logstore.log.segments.tail_cache import TailBudget
from logstore.ownership.heartbeats import HeartbeatBoard
from logstore.ownership.live import LiveBoard, LiveFile, MemoryLive
from logstore.ownership.lock import CATALOGUE_SLOT, Locks
from logstore.ownership.lock_view import LockView
from logstore.ownership.locks import FileLocks, MemoryLocks, refuse_network_file_system
from logstore.ownership.name_lock import sweep
from logstore.partition.committer import Committer
from logstore.partition.context import StoreContext
from logstore.partition.partition_log import PartitionLog
from logstore.partition.store_replication import CatalogueSource
from logstore.partition.topic_registry import TopicRegistry
from logstore.seams.clock import Clock, SystemClock
from logstore.seams.fs import Access, FileSystem, OsFileSystem, access_like
from logstore.seams.memory_fs import MemoryFileSystem
from logstore.types import Isolation, MaintenanceReport
from logstore.upkeep.backups import back_up, check_backup
from logstore.upkeep.cleaner import DEFAULT_DUTY
from logstore.upkeep.cleaning_manager import DEFAULT_KEY_MAP_BYTES, CleaningManager, check_settings
from logstore.upkeep.clock_guard import ClockGuard
from logstore.upkeep.housekeeper import Housekeeper
from logstore.upkeep.maintenance import Maintenance
from logstore.upkeep.retention_task import RetentionTask

Mode = Literal["r", "rw"]
MEMORY = ":memory:"
_RECOVERY_THREADS = 16
_INTERVALS = ("lock_timeout_s", "lock_idle_release_s", "retention_check_s")

_stores: weakref.WeakSet[LogStore] = weakref.WeakSet()


class LogStore(StoreClient):
    """A log store in a directory. Any thread may use it; a child after ``os.fork()`` may not.

    ``path``: the directory, made if it is not there (``mode="rw"``), or ``":memory:"``. ``mode="r"``: takes no
    lock and changes nothing, and opens a Kafka broker's log directory, too (``kafka_directory/broker_log.py`` says
    what is shown), or a list of all directories of its ``log.dirs`` as one.
    ``lock_timeout_s``: longest wait for a lock of another process.
    ``lock_idle_release_s``: a topic unused for this long is given up, so that other processes may write it.
    ``retention_check_s``: how often retention looks at the topics. ``mode_bits``: permissions of new files, e.g.
    0o660 for a group that shares; None: those that the store has, 0o600 for a new one.
    ``max_open_files``: descriptors that segments and mappings may take together; None: 400, or fewer where the
    process may not open as many.
    ``tail_cache_bytes``: memory for the newest batches. ``cleaner_duty``: share of the time that compaction may
    work in the background; ``cleaner_key_map_bytes``: memory that it may take for the keys of one partition.
    ``offsets_retention_s``: how long committed offsets outlive their group's last member and their commit.
    ``prepared_max_age_s``: how long a prepared transaction, and readers behind it, wait for its coordinator's decision.
    ``maintenance_s``: how long ``close`` may go on with retention and compaction that is due; 0: not at all.
    ``reserve_bytes``: room that is kept on the disk for deleting and retaining once it is full; 0 keeps none. None:
    128 KiB, none in memory.

    ``fs``, ``clock``, ``locks``, ``live``, ``heartbeats``, ``random_bytes``: the seams, for simulators and tests; with
    ``threads=False`` nothing runs in the background, and ``step()`` does what is due. ``replication``: a cluster's.

    Errors: ``StoreNotFoundError`` (mode "r"), ``ForeignDirectoryError``, ``DamagedStoreError``,
    ``UnsupportedStoreVersionError``, ``PermissionDeniedError``, ``UnsupportedPlatformError`` (Windows, network
    file systems), ``TopicLockedError`` (another process holds the catalogue too long).
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        mode: Mode = "rw",
        *,
        lock_timeout_s: float = 30.0,
        lock_idle_release_s: float = 10.0,
        retention_check_s: float = 30.0,
        mode_bits: int | None = None,
        max_open_files: int | None = None,
        tail_cache_bytes: int = 32 << 20,
        cleaner_duty: float = DEFAULT_DUTY,
        cleaner_key_map_bytes: int = DEFAULT_KEY_MAP_BYTES,
        offsets_retention_s: float = 7 * 86_400.0,
        prepared_max_age_s: float = 86_400.0,
        maintenance_s: float = 0.5,
        reserve_bytes: int | None = None,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        locks: Locks | None = None,
        live: LiveBoard | None = None,
        heartbeats: HeartbeatBoard | None = None,
        threads: bool = True,
        replication: ClusterReplication | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.mode = _checked_mode(mode)
        path, *others = directories(path, mode)
        intervals_s = (lock_timeout_s, lock_idle_release_s, retention_check_s)
        _check_settings(intervals_s, mode_bits, max_open_files, tail_cache_bytes, threads)
        check_settings(cleaner_duty, cleaner_key_map_bytes)
        self._clock = clock or SystemClock()
        self.root = "/store" if path == MEMORY else os.path.realpath(path)
        if path == MEMORY or not (fs is None or isinstance(fs, OsFileSystem)):
            locks = locks or MemoryLocks(clock=self._clock)
            fs, live = fs or MemoryFileSystem(), live or MemoryLive()
        else:
            refuse_network_file_system(self.root)
            fs = fs or OsFileSystem(self._file_access(mode_bits))
        self.fs: FileSystem = fs
        self._parts = parts = StoreParts()
        self._housekeeper = self._make_housekeeper(threads, lock_idle_release_s, retention_check_s)
        self._broker = self._prepare_directory(others)
        self._context = StoreContext(
            root=self.root,
            fs=self.fs,
            clock=self._clock,
            locks=self._open_locks(locks),
            live=MemoryLive() if live is None else live,
            pool=self._file_pool(max_open_files),
            tails=TailBudget(tail_cache_bytes),
            read_only=mode == "r",
            broker=self._broker,
            longest_lock_wait_s=lock_timeout_s,
            recovery_threads=_RECOVERY_THREADS if threads else 1,
            committer=Committer(self._clock, threads=threads),
            note_dirty=self._housekeeper.note_dirty,
            longest_dirty=self._housekeeper.longest_dirty,
            note_owned=self._housekeeper.note_owned,
            reserve=Reserve(self.fs, self.root, reserve_size(reserve_bytes, on_disk=locks is None)),
            threads=threads,
            heartbeats=heartbeats,
            offsets_retention_s=arguments.seconds(offsets_retention_s, "offsets_retention_s"),
            prepared_max_age_s=arguments.seconds(prepared_max_age_s, "prepared_max_age_s"),
            make_partition=None if replication is None else replication.partition,
            leadership=replication,
            random_bytes=random_bytes,
        )
        parts.context, parts.housekeeper = self._context, self._housekeeper
        self._registry = parts.registry = self._open_registry(live, replication)
        self._make_upkeep(cleaner_duty, cleaner_key_map_bytes)
        self._backend = parts.make_backend(replication)
        self._maintenance = parts.maintenance = self._make_maintenance(maintenance_s)
        super().__init__(self._backend, self._context, self._clock)
        self._enlist(threads=threads)

    # --- opening ---

    def _enlist(self, *, threads: bool) -> None:
        """From now on the store is looked after: by its housekeeper, at a fork, and when it is dropped."""
        if self.mode == "rw" and self._registry.retains:
            self._housekeeper.note_owned()
        _stores.add(self)
        if threads:
            watch(self, self._parts, warn=self.mode == "rw" and isinstance(self.fs, OsFileSystem))

    def _make_housekeeper(
        self, threads: bool, lock_idle_release_s: float, retention_check_s: float
    ) -> Housekeeper:
        parts = self._parts  # the thread must not hold the store, which could then never be collected
        return Housekeeper(
            self._clock,
            lambda: parts.registry.opened(),
            lambda: parts.registry.retained(),
            lambda: parts.registry.look_around(),
            lambda: parts.retention,
            lambda: parts.cleaning.cleaner,
            lambda: parts.backend.transactions.reaper,
            lambda: parts.backend.groups.expiry,
            lambda: parts.context.locks.any_wanted(),
            threads=threads,
            idle_release_s=lock_idle_release_s,
            retention_check_s=retention_check_s,
        )

    def _make_upkeep(self, duty: float, key_map_bytes: int) -> None:
        """What takes segments away, and what writes them anew: files that either retires wait in one place."""
        retirement = Retirement(self._context.pool)
        topics, guard = self._registry.cleaned, ClockGuard(self._context)
        self._cleaning = self._parts.cleaning = CleaningManager(
            self._context, retirement, topics, guard, duty=duty, key_map_bytes=key_map_bytes
        )
        self._parts.retention = RetentionTask(self._context, retirement, guard)

    def _make_maintenance(self, before_close_s: float) -> Maintenance:
        return Maintenance(
            self._context,
            self._registry,
            self._parts.retention,
            self._cleaning.kit,
            self._backend.transactions.reaper.step,
            self._backend.groups.expiry,
            before_close_s=arguments.seconds(before_close_s, "maintenance_s"),
        )

    def _prepare_directory(self, others: Sequence[str]) -> BrokerDirectory | None:
        """Make the directory if it is ours to make; what it is if it is a Kafka broker's, with ``others``."""
        kind = classify_directory(self.fs, self.root)
        if others:
            for root in (self.root, *others):
                if (other := classify_directory(self.fs, root)) is not DirectoryKind.KAFKA:
                    raise _no_log_dir(other, root)
        if kind is DirectoryKind.KAFKA and self.mode == "r":
            return BrokerDirectory(self.fs, self.root, *others)
        if kind is DirectoryKind.STORE:
            return None
        if self.mode == "r" or kind not in (DirectoryKind.MISSING, DirectoryKind.EMPTY):
            raise missing_store(kind, self.root)
        make_root(self.fs, self.root)
        return None

    def _file_pool(self, max_open_files: int | None) -> FilePool:
        pool = FilePool(self.fs, default_capacity() if max_open_files is None else max_open_files)
        if isinstance(self.fs, OsFileSystem):
            self.fs.when_exhausted = pool.shrink
        return pool

    def _file_access(self, mode_bits: int | None) -> Access:
        try:
            return access_like(os.path.join(self.root, CATALOGUE_FILE), self.root, mode_bits)
        except OSError as error:
            raise from_os_error(error, "look at", self.root) from error

    def _open_locks(self, locks: Locks | None) -> Locks:
        if locks is not None:
            return locks
        directory = f"{self.root}/.locks"
        if self.mode == "r":
            return LockView(f"{directory}/topics")
        try:
            self.fs.mkdir(directory)
        except FileExistsError:
            pass  # the usual case: the store was opened before
        except OSError as error:
            raise from_os_error(error, "create", directory) from error
        sweep(directory, self._clock, self.fs.access)
        return FileLocks(f"{directory}/topics", clock=self._clock, access=self.fs.access)

    def _open_registry(self, live: LiveBoard | None, replication: ClusterReplication | None) -> TopicRegistry:
        file: CatalogueSource | BrokerDirectory = self._broker or CatalogueFile(self.fs, self.root)
        if replication is not None and isinstance(file, CatalogueFile):
            file = replication.catalogue(file)
        try:
            return self._open_catalogue(file, live)
        except BaseException:
            file.close()
            self._context.live.close()
            self._context.locks.close()
            raise

    def _open_catalogue(
        self, file: CatalogueSource | BrokerDirectory, live: LiveBoard | None
    ) -> TopicRegistry:
        """Load the catalogue, or make it, under its lock; finish what a crash left half deleted."""
        context = self._context
        if self.mode == "r" or isinstance(file, BrokerDirectory):
            catalogue = file.load()
            if self._broker is None and live is None:
                context.live = LiveFile(f"{self.root}/.live", self._clock.boot_id(), writable=False)
            return TopicRegistry(context, file, catalogue, context.random_bytes)
        context.locks.acquire(CATALOGUE_SLOT, context.lock_timeout_s, "the catalogue topics.json")
        try:
            if classify_directory(self.fs, self.root) is DirectoryKind.STORE:
                catalogue = file.load()
            else:
                catalogue = file.create(encode_uuid(context.random_bytes(16)))
            if live is None:
                context.live = LiveFile(
                    f"{self.root}/.live", self._clock.boot_id(), writable=True, access=self.fs.access
                )
            context.reserve.keep()
            deletion.resume(self.fs, self.root, catalogue)
            deletion.sweep_temporaries(self.fs, self.root, catalogue.topics)
        finally:
            context.locks.release(CATALOGUE_SLOT)
        return TopicRegistry(context, file, catalogue, context.random_bytes)

    # --- clients ---

    @property
    def backend(self) -> EmbeddedBackend:
        return self._backend

    @property
    def store_id(self) -> str:
        """The store's uuid as Kafka prints it, from its first opening on."""
        return self._registry.catalogue.store_id

    # --- topics ---

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> TopicHandle:
        """Make a topic, durably; see ``Admin.create_topic``. ``exist_ok``: one that is there is given, if it has
        these partitions and settings."""
        self.admin.create_topic(name, partitions, config, exist_ok=exist_ok)
        return self.topic(name)

    def topic(self, name: str) -> TopicHandle:
        """A handle on one topic. ``UnknownTopicError``."""
        self._registry.entry(name)
        return TopicHandle(self._registry, self._backend, self.partition, name, self)

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """One partition. ``UnknownTopicError``, ``UnknownPartitionError``."""
        return self._parts.partition(topic, partition, self)

    def release(self, topic: str) -> None:
        """Give up ownership of a topic now: synced, marked clean, its lock free for other processes."""
        self._context.check_usable()
        self._registry.get(topic).release()

    def pin(self, topic: str) -> None:
        """Own a topic until ``release`` or ``close``, also while idle: keeps other writers out."""
        held = self._registry.get(topic)
        with held.using():
            held.pinned = True

    def unpin(self, topic: str) -> None:
        """End a ``pin`` and keep the topic for now: until another process waits for it, or it is idle."""
        self._context.check_usable()
        self._registry.get(topic).pinned = False
        self._housekeeper.note_owned()

    def pin_all(self) -> None:
        """Own every topic, and those that are made later, until ``close``: what a server does. Does not wait:
        ``TopicLockedError`` names all topics that other processes own, and their owners; nothing is pinned then."""
        self._registry.own_all()

    # --- copies ---

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        topics: Collection[str] | None = None,
        link: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> BackupReport:
        """Copy the store, as it is at one moment, to the new directory ``target``; writers go on meanwhile and
        wait for nothing. In the copy transactions that were decided are whole and the others aborted, and
        committed offsets agree with the records. Also for stores opened with ``mode="r"``.

        ``topics``: only these and the internal ones. ``link=False`` copies every byte instead of sharing closed
        segments by hard links. ``progress`` is called with bytes copied or linked. Errors:
        ``NoConsistentCutError``, ``ForeignDirectoryError`` (the target is not empty), ``InvalidArgumentError``
        (it lies inside the store), ``DamagedStoreError`` (a batch to be copied is bad), ``StorageError``,
        ``DiskFullError``.
        """
        place = os.path.normpath(arguments.directory(target))
        return back_up(self._context, self.partition, place, topics=topics, link=link, progress=progress)

    # --- state ---

    @property
    def recovery_report(self) -> Sequence[RecoveredPartition]:
        """What recovery did since this store was opened, one entry per partition that was not closed in
        order. Topics are recovered when they are first written to."""
        return tuple(self._context.recovered)

    def metrics(self) -> dict[str, float]:
        """Numbers of this moment, by the names the broker will export."""
        topics = self._registry.opened()
        logs = [log for topic in topics for log in topic.open_logs()]
        return {
            "logstore_open_files": len(self._context.pool),
            "logstore_owned_topics": sum(topic.owned for topic in topics),
            "logstore_open_partitions": len(logs),
            "logstore_unsynced_records": sum(log.unsynced_records for log in logs),
            "logstore_poisoned_partitions": sum(log.poisoned and log.dirty for log in logs),
            "logstore_tail_cache_bytes": self._context.tails.used_bytes,
            "logstore_recovered_partitions": len(self._context.recovered),
            "logstore_clock_jump_ms": self._parts.retention.clock_jump_ms,
            "logstore_group_commits_total": self._context.committer.groups,
            "logstore_syncs_total": sum(log.syncs for log in logs),
            **self._cleaning.cleaner.metrics(),
        }

    def step(self) -> float | None:
        """Do the background work that is due (``threads=False``); seconds until more will be."""
        self._context.check_usable()
        waits = [self._housekeeper.step(), self._backend.groups.step()]
        return min((wait for wait in waits if wait is not None), default=None)

    def maintain(
        self, topics: Collection[str] | None = None, *, time_limit_s: float | None = None
    ) -> MaintenanceReport:
        """Do all the maintenance that is due now, of ``topics`` or of the whole store: retention, compaction, what
        dead processes left (open transactions, retired files), expiry of committed offsets.

        What runs in the background while a store is open is done at once and at full speed. Topics that another
        process owns are left to that process; a topic that no process owns is taken for as long as it takes.
        ``time_limit_s``: a compaction that is under way then is ended early, and begun anew by the next call.
        ``UnknownTopicError``; what fails for one topic is in its row of the report.
        """
        self._context.check_writable()
        limit_s = math.inf if time_limit_s is None else arguments.seconds(time_limit_s, "time_limit_s")
        if topics is not None:
            topics = arguments.names(topics, "topics")
        return self._maintenance.run(limit_s, topics)

    # --- ending ---

    def close(self) -> None:
        """Flush and close producers and consumers, retain and compact what is due for ``maintenance_s`` at the most,
        release every topic, end the threads. Idempotent.

        What this store lent (clients, partitions) raises ``StoreClosedError`` afterwards. A failure to make
        something durable is raised, after everything else was closed.
        """
        self._close(maintain=True)

    def _close(self, *, maintain: bool) -> None:
        if self._context.forked:
            return  # the parent's to close; its lock may be held by a thread that does not exist here
        with self._parts.lock:
            if self._context.closed:
                return
            failures = self._close_clients()
            failures += self._parts.close(maintain=self.mode == "rw" and maintain and not failures)
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Drop the store without any input or output, as if the process had been killed here."""
        self._registry.abandon()
        self._context.closed = True
        self._backend.groups.abandon()
        self._backend.transactions.abandon()
        self._context.locks.abandon()

    def __enter__(self) -> LogStore:
        self._context.check_usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(maintain=kind is None)  # what was interrupted is to end soon

    def __repr__(self) -> str:
        state = "closed" if self._context.closed else self.mode
        return f"LogStore({self.root!r}, {state})"


def restore(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    topics: Collection[str] | None = None,
    link: bool = False,
    progress: Callable[[int], None] | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> BackupReport:
    """Put the backup in ``source`` into the new directory ``target``, after all of it was read and found sound.

    ``topics``: only these and the internal ones. ``link``: share closed segments by hard links instead of copying
    them. ``progress`` is called with bytes read, then with bytes copied. Errors: ``DamagedStoreError`` (names the
    faults; nothing was written), ``StoreNotFoundError``, and those of ``LogStore.backup``.
    """
    place, root = (os.path.normpath(arguments.directory(path)) for path in (target, source))
    disk: FileSystem = OsFileSystem() if fs is None else fs
    require_outside(place, root)
    require_new(disk, place)
    with LogStore(root, mode="r", fs=fs, clock=clock) as store:
        check_backup(disk, root, store._clock, topics=topics, progress=progress)
        return store.backup(place, topics=topics, link=link, progress=progress)


def directories(path: object, mode: Mode) -> list[str]:
    """The directory, then the others of a broker. InvalidArgumentError."""
    if not isinstance(path, list | tuple) or not path:
        return [arguments.directory(path)]
    places = [arguments.directory(one) for one in path]
    if len(places) == 1:
        return places
    if MEMORY in places or mode != "r":
        raise InvalidArgumentError(
            f"path={arguments.shown(path)} with mode={mode!r}",
            hint="several directories are opened as one only if they are a Kafka broker's log.dirs, with mode='r'",
        )
    roots = [os.path.realpath(place) for place in places]
    for root in roots:
        if roots.count(root) > 1:
            raise InvalidArgumentError(f"path={arguments.shown(path)} names {root} more than once")
        refuse_network_file_system(root)
    return roots


def _no_log_dir(kind: DirectoryKind, root: str) -> LogStoreError:
    """Why ``root`` cannot be one of several directories."""
    if kind is DirectoryKind.STORE:
        return InvalidArgumentError(
            f"{root} is a log store, no Kafka broker's directory",
            hint="open a store by itself; several directories are one only as a broker's log.dirs",
        )
    return missing_store(kind, root)


def _checked_mode(mode: Mode) -> Mode:
    if not isinstance(mode, str) or mode not in ("r", "rw"):
        raise InvalidArgumentError(f"mode={arguments.shown(mode)} is not known", hint="use 'r' or 'rw'")
    return mode


def _check_settings(
    intervals_s: tuple[float, ...], mode_bits: int | None, files: int | None, tail_bytes: int, threads: bool
) -> None:
    """InvalidArgumentError names the setting."""
    arguments.truth(threads, "threads")
    for value, name in zip(intervals_s, _INTERVALS, strict=True):
        arguments.seconds(value, name)
    if mode_bits is not None:
        arguments.whole(mode_bits, "mode_bits", 0o400, 0o777)
    if files is not None:
        arguments.whole(files, "max_open_files", 1)
    arguments.whole(tail_bytes, "tail_cache_bytes")


def _mark_forked() -> None:
    for store in list(_stores):
        store._context.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)


__all__ = ["Isolation", "LogStore", "MEMORY"]
