"""Verification of a whole store: its catalogue, its topics' states, what lies in its root, each partition."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from logstore.config import parse_topic_config
from logstore.directory import topic_state
from logstore.directory.catalogue import CATALOGUE_NAME, Catalogue, CatalogueFile, TopicEntry
from logstore.directory.layout import DirectoryKind, classify_directory
from logstore.directory.topic_state import TopicState
from logstore.errors import DamagedStoreError, LogStoreError, UnsupportedStoreVersionError, from_os_error
from logstore.kafka_directory.verify_broker import verify_broker
from logstore.log.inspection.inspect import PartitionFolder, list_folder, partition_folders
from logstore.log.inspection.verify import Fault, PartitionFacts, Totals, verify_partition
from logstore.seams.fs import FileSystem

_ROOT_NAMES = re.compile(
    r"topics\.json(\.tmp)?|\.state|\.(live|heartbeats)(\.tmp)?|\.locks.*|lost\+found"
    r"|\.cache|\.staging"  # what layers above keep beside the logs: may go at any time, is no part of a backup
)
_DELETED_FOLDER = re.compile(r".+-\d+\..+-delete")


def verify_store(
    fs: FileSystem, root: str, boot_id: str, totals: Totals, *, topics: Collection[str] | None = None
) -> Iterator[Fault]:
    """All faults of a store, or of some of its topics. ``boot_id``: the running boot's (``Clock.boot_id``).

    A damaged catalogue is a fault, and the partitions are verified by their folders alone. Raises
    StoreNotFoundError, ForeignDirectoryError and the like for a directory that is no store.
    """
    if classify_directory(fs, root) is DirectoryKind.KAFKA:
        yield from verify_broker(fs, root, totals, topics=topics)
        return
    try:
        catalogue = _load_catalogue(fs, root)
    except (DamagedStoreError, UnsupportedStoreVersionError) as error:
        yield Fault(f"{root}/{CATALOGUE_NAME}", 0, "catalogue", error.message)
        catalogue = None
    folders = partition_folders(fs, root)
    if catalogue is None:
        for folder in folders:
            if topics is None or folder.topic in topics:
                yield from verify_partition(fs, folder, PartitionFacts(), totals)
        return
    chosen = sorted(catalogue.topics) if topics is None else sorted(topics)
    entries = [catalogue.topic(name) for name in chosen]
    if topics is None:
        yield from _check_root(fs, root, catalogue, folders)
    for entry in entries:
        yield from _verify_topic(fs, root, boot_id, entry, folders, totals)


def _load_catalogue(fs: FileSystem, root: str) -> Catalogue | None:
    file = CatalogueFile(fs, root)
    try:
        return file.load()
    finally:
        file.close()


def _check_root(
    fs: FileSystem, root: str, catalogue: Catalogue, folders: list[PartitionFolder]
) -> Iterator[Fault]:
    known = {folder.path: folder for folder in folders}
    for name in list_folder(fs, root):
        path = f"{root}/{name}"
        folder = known.get(path)
        if folder is not None:
            entry = catalogue.topics.get(folder.topic)
            if entry is None or folder.partition >= entry.partitions:
                text = "the catalogue has no such partition: an interrupted creation or deletion, or a stray"
                empty = all(fs.stat(f"{path}/{inner}").size == 0 for inner in _logs(fs, path))
                yield Fault(path, -1, "name", text, warning=empty)
        elif _DELETED_FOLDER.fullmatch(name):
            yield Fault(path, -1, "leftover", "a deleted topic's folder on its way out", warning=True)
        elif not _ROOT_NAMES.fullmatch(name):
            yield Fault(path, -1, "name", "nothing in a store has such a name; move it elsewhere")


def _logs(fs: FileSystem, folder: str) -> list[str]:
    return [name for name in list_folder(fs, folder) if name.endswith(".log")]


def _verify_topic(
    fs: FileSystem,
    root: str,
    boot_id: str,
    entry: TopicEntry,
    folders: list[PartitionFolder],
    totals: Totals,
) -> Iterator[Fault]:
    path = topic_state.state_path(root, entry.name)
    state: TopicState | None = None
    try:
        state = topic_state.load(fs, root, entry.name)
    except LogStoreError as error:
        yield Fault(path, 0, "state", error.message)
    if state is not None and state.topic_id != entry.topic_id:
        text = f"it belongs to the topic id {state.topic_id}, the catalogue says {entry.topic_id}"
        yield Fault(path, -1, "state", text, warning=True)  # an earlier topic of that name: not believed
        state = None
    try:
        parse_topic_config(entry.config)
    except LogStoreError as error:
        yield Fault(f"{root}/{CATALOGUE_NAME}", -1, "config", f"topic {entry.name!r}: {error.message}")
    present = {folder.partition: folder for folder in folders if folder.topic == entry.name}
    for partition in range(entry.partitions):
        folder = present.get(partition)
        if folder is None:
            yield from _missing_folder(f"{root}/{entry.name}-{partition}", partition, state)
            continue
        yield from verify_partition(fs, folder, partition_facts(entry, partition, state, boot_id), totals)


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
    gaps_allowed = "compact" in entry.config.get("cleanup.policy", "delete")
    if state is None:
        return PartitionFacts(topic_id=entry.topic_id, gaps_allowed=gaps_allowed)
    same_boot = state.boot_id == boot_id
    row = state.partitions.get(partition)
    if row is None:  # first opened by an owner that wrote no state since
        return PartitionFacts(
            topic_id=entry.topic_id, same_boot=same_boot, recovery_point=0, gaps_allowed=gaps_allowed
        )
    return PartitionFacts(
        topic_id=entry.topic_id,
        clean=state.clean,
        same_boot=same_boot,
        recovery_point=row.recovery_point,
        log_start_offset=row.log_start_offset,
        log_end_offset=row.log_end_offset,
        gaps_allowed=gaps_allowed,
    )


def store_bytes(fs: FileSystem, root: str, topics: Collection[str] | None = None) -> int:
    """Bytes of the segments that ``verify_store`` reads: the full length of a progress bar."""
    total = 0
    for folder in partition_folders(fs, root):
        if topics is not None and folder.topic not in topics:
            continue
        for name in _logs(fs, folder.path):
            path = f"{folder.path}/{name}"
            try:
                total += fs.stat(path).size
            except FileNotFoundError:
                continue  # a writer removed it since
            except OSError as error:
                raise from_os_error(error, "look at", path) from error
    return total
