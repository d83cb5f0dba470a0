"""Verification of a whole store: its catalogue, its topics' states, what lies in its root, each partition."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from logstore.config import parse_topic_config
from logstore.directory import topic_state
from logstore.directory.catalogue import CATALOGUE_NAME, Catalogue, CatalogueFile, TopicEntry
from logstore.directory.layout import NODE_FILE, PROBE_FILE, DirectoryKind, classify_directory
from logstore.directory.partition_folder import deletion_note_path
from logstore.directory.topic_state import TopicState
from logstore.errors import (
    DamagedStoreError,
    LogStoreError,
    StorageError,
    UnsupportedStoreVersionError,
    from_os_error,
)
from logstore.kafka_directory.verify_broker import verify_broker
from logstore.log.checkpoints import METADATA_FILE, decode_metadata
from logstore.log.inspection.inspect import (
    PartitionFolder,
    is_folder,
    list_folder,
    partition_folders,
    read_small,
)
from logstore.log.inspection.verify import Fault, PartitionFacts, Totals, verify_partition
from logstore.seams.fs import FileSystem, exists

logger = logging.getLogger(__name__)

_ROOT_NAMES = re.compile(
    r"topics\.json(\.tmp)?|\.state|\.security|\.(live|heartbeats)(\.tmp)?|\.reserve|\.locks.*|lost\+found"
    r"|\.cache|\.staging"  # what layers above keep beside the logs: may go at any time, is no part of a backup
    rf"|{re.escape(NODE_FILE)}(\.tmp)?|{re.escape(PROBE_FILE)}"
)
_NODES_TOPICS = frozenset({"__cluster_metadata"})  # in no catalogue; their nodes check them
_SET_ASIDE = re.compile(r".+-\d+\.damaged-\d+")
_LOOKS = 3  # at what seems wrong while somebody is at work
_DELETED_FOLDER = re.compile(r".+-\d+\..+-delete")


def verify_store(
    fs: FileSystem, root: str, boot_id: str, totals: Totals, *, topics: Collection[str] | None = None
) -> Iterator[Fault]:
    """All faults of a store, or of some of its topics. ``boot_id``: the running boot's (``Clock.boot_id``).

    Writers and administrators may be at work: what only shows because a file was replaced or removed while it was
    looked at is no fault. A damaged catalogue is one, and the partitions are verified by their folders alone.
    Raises StoreNotFoundError, ForeignDirectoryError and the like for a directory that is no store.
    """
    if classify_directory(fs, root) is DirectoryKind.KAFKA:
        yield from verify_broker(fs, root, totals, topics=topics)
        return
    try:
        catalogue = _load_catalogue(fs, root)
    except (DamagedStoreError, UnsupportedStoreVersionError) as error:
        yield Fault(f"{root}/{CATALOGUE_NAME}", 0, "catalogue", error.message)
        for folder in partition_folders(fs, root):
            if topics is None or folder.topic in topics:
                yield from verify_partition(fs, folder, PartitionFacts(), totals)
        return
    chosen = sorted(catalogue.topics) if topics is None else sorted(topics)
    entries = [catalogue.topic(name) for name in chosen]
    check = _StoreCheck(fs, root, boot_id, totals, catalogue)
    if topics is None:
        yield from check.root()
    for entry in entries:
        yield from check.topic(entry)


def _load_catalogue(fs: FileSystem, root: str) -> Catalogue:
    file = CatalogueFile(fs, root)
    try:
        return file.load()
    finally:
        file.close()


class _StoreCheck:
    """One walk over a store whose catalogue can be read. ``_catalogue``: as last seen."""

    def __init__(self, fs: FileSystem, root: str, boot_id: str, totals: Totals, catalogue: Catalogue) -> None:
        self._fs = fs
        self._root = root
        self._boot_id = boot_id
        self._totals = totals
        self._catalogue = catalogue

    # --- the root ---

    def root(self) -> Iterator[Fault]:
        known = {folder.path: folder for folder in partition_folders(self._fs, self._root)}
        names = list_folder(self._fs, self._root)
        nodes = NODE_FILE in names
        for name in names:
            path = f"{self._root}/{name}"
            folder = known.get(path)
            if folder is not None:
                if not self._has(folder) and not (nodes and folder.topic in _NODES_TOPICS):
                    yield from self._stray(folder)
            elif _DELETED_FOLDER.fullmatch(name):
                yield Fault(path, -1, "leftover", "a deleted topic's folder on its way out", warning=True)
            elif nodes and _SET_ASIDE.fullmatch(name):
                yield Fault(path, -1, "leftover", "a replica's damaged log, kept aside", warning=True)
            elif not _ROOT_NAMES.fullmatch(name):
                yield Fault(path, -1, "name", "nothing in a store has such a name; move it elsewhere")

    def _has(self, folder: PartitionFolder) -> bool:
        entry = self._catalogue.topics.get(folder.topic)
        return entry is not None and folder.partition < entry.partitions

    def _stray(self, folder: PartitionFolder) -> Iterator[Fault]:
        """A folder that the catalogue did not have when it was last seen."""
        path = folder.path
        text = "the catalogue has no such partition: an interrupted creation or deletion, or a stray"
        leftover = self._is_being_deleted(path) or not any(map(self._size, _logs(self._fs, path)))
        self._catalogue = _load_catalogue(self._fs, self._root)
        if not self._has(folder) and exists(self._fs, path):
            yield Fault(path, -1, "name", text, warning=leftover)

    def _size(self, path: str) -> int:
        try:
            return self._fs.stat(path).size
        except FileNotFoundError:
            return 0  # its topic is being deleted
        except OSError as error:
            raise from_os_error(error, "look at", path) from error

    def _is_being_deleted(self, path: str) -> bool:
        """Whether a deletion that came past the catalogue is noted: the next opening finishes it."""
        metadata = f"{path}/{METADATA_FILE}"
        try:
            topic_id = decode_metadata(read_small(self._fs, metadata), metadata)
            return exists(self._fs, deletion_note_path(self._root, topic_id))
        except (LogStoreError, FileNotFoundError):
            return False

    # --- topics ---

    def topic(self, entry: TopicEntry) -> Iterator[Fault]:
        yield from self._settled(entry, self._look_at_topic, None)
        for partition in range(entry.partitions):
            yield from self._settled(entry, partial(self._look_at_partition, partition), partition)

    def _settled(
        self,
        entry: TopicEntry,
        look: Callable[[TopicEntry, Totals], Iterable[Fault]],
        partition: int | None,
    ) -> list[Fault]:
        """What is found wrong, and stays. A look takes its time, and may see one file from before a change and
        another from after it: it is repeated if anything has changed, and what does not show again is no fault."""
        found: list[Fault] = []
        stays: set[tuple[str, int, str]] | None = None
        totals = self._totals
        for _ in range(_LOOKS):
            before = self._stamp(entry, partition)
            totals = Totals(progress=self._totals.progress)
            found = list(look(entry, totals))
            wrong = {fault[:3] for fault in found if not fault.warning}
            stays = wrong if stays is None else stays & wrong
            if not wrong:
                break
            settled = self._stamp(entry, partition) == before
            self._catalogue = _load_catalogue(self._fs, self._root)
            now = self._catalogue.topics.get(entry.name)
            if now is None or now.topic_id != entry.topic_id:
                return []  # deleted meanwhile
            if settled and now == entry:
                stays = wrong
                break
            entry = now
        self._totals.add(totals)
        return [fault for fault in found if fault.warning or fault[:3] in (stays or ())]

    def _stamp(self, entry: TopicEntry, partition: int | None) -> object:
        """Differs if a file has changed that a look sees."""
        parts: list[object] = [self._identity(f"{self._root}/{CATALOGUE_NAME}")]
        parts.append(self._identity(topic_state.state_path(self._root, entry.name)))
        if partition is not None:
            folder = f"{self._root}/{entry.name}-{partition}"
            try:
                names = sorted(self._fs.listdir(folder))
            except OSError:
                names = []  # it says so itself when it is looked at
            parts += [(name, self._identity(f"{folder}/{name}")) for name in names]
        return parts

    def _identity(self, path: str) -> object:
        try:
            return self._fs.stat(path)
        except OSError as error:
            return error.errno

    def _look_at_topic(self, entry: TopicEntry, totals: Totals) -> Iterator[Fault]:
        del totals
        path = topic_state.state_path(self._root, entry.name)
        try:
            state = topic_state.load(self._fs, self._root, entry.name)
        except LogStoreError as error:
            yield Fault(path, 0, "state", error.message)
        else:
            if state is not None and state.topic_id != entry.topic_id:
                text = f"it belongs to the topic id {state.topic_id}, the catalogue says {entry.topic_id}"
                yield Fault(path, -1, "state", text, warning=True)  # an earlier topic's: not believed
        try:
            parse_topic_config(entry.config)
        except LogStoreError as error:
            text = f"topic {entry.name!r}: {error.message}"
            yield Fault(f"{self._root}/{CATALOGUE_NAME}", -1, "config", text)

    def _look_at_partition(self, partition: int, entry: TopicEntry, totals: Totals) -> Iterator[Fault]:
        state: TopicState | None = None
        try:
            state = topic_state.load(self._fs, self._root, entry.name)
        except LogStoreError as error:
            logger.debug("verified without its state, which is a fault of its own: %s", error)
        if state is not None and state.topic_id != entry.topic_id:
            state = None
        folder = PartitionFolder(entry.name, partition, f"{self._root}/{entry.name}-{partition}")
        if not is_folder(self._fs, folder.path):
            yield from _missing_folder(folder.path, partition, state)
            return
        facts = partition_facts(entry, partition, state, self._boot_id)
        try:
            yield from verify_partition(self._fs, folder, facts, totals)
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            yield Fault(folder.path, -1, "missing", error.message)


def _logs(fs: FileSystem, folder: str) -> list[str]:
    """Paths of the segments in a folder; none if it is gone."""
    try:
        names = sorted(fs.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_os_error(error, "list", folder) from error
    return [f"{folder}/{name}" for name in names if name.endswith(".log")]


def _missing_folder(path: str, partition: int, state: TopicState | None) -> Iterator[Fault]:
    """A partition gets its folder at its first append: only one that had records is missed."""
    row = state.partitions.get(partition) if state is not None else None
    if row is not None and max(row.recovery_point, row.log_end_offset) > row.log_start_offset:
        text = f"the folder is missing, with offsets {row.log_start_offset} to {row.log_end_offset - 1}"
        yield Fault(path, -1, "missing", text)


def partition_facts(
    entry: TopicEntry, partition: int, state: TopicState | None, boot_id: str
) -> PartitionFacts:
    """What the catalogue and the topic's state say of a partition."""
    if state is None:
        return PartitionFacts(topic_id=entry.topic_id)
    same_boot = state.boot_of(partition) == boot_id
    row = state.partitions.get(partition)
    if row is None:  # first opened by an owner that wrote no state since
        return PartitionFacts(topic_id=entry.topic_id, same_boot=same_boot, recovery_point=0)
    return PartitionFacts(
        topic_id=entry.topic_id,
        clean=state.is_clean(partition),
        same_boot=same_boot,
        recovery_point=row.recovery_point,
        log_start_offset=row.log_start_offset,
        log_end_offset=row.log_end_offset,
    )


def store_bytes(fs: FileSystem, root: str, topics: Collection[str] | None = None) -> int:
    """Bytes of the segments that ``verify_store`` reads: the full length of a progress bar."""
    total = 0
    for folder in partition_folders(fs, root):
        if topics is not None and folder.topic not in topics:
            continue
        for path in _logs(fs, folder.path):
            try:
                total += fs.stat(path).size
            except FileNotFoundError:
                continue  # a writer removed it since
            except OSError as error:
                raise from_os_error(error, "look at", path) from error
    return total
