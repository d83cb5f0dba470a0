"""A Kafka broker's log directories (KRaft `log.dirs`), seen as one catalogue of topics and their states.

Read-only, without a lock, also beside the live broker. A topic is what has folders `<topic>-<partition>`;
those on their way out or in (`...-delete`, `-future`, `-stray`) are no topics. What a folder does not say
comes from the root's text files: `meta.properties` (the layout's version), `.kafka_cleanshutdown` (stopped in
order) and the checkpoints of recovery points, log starts and high watermarks, each replaced as a whole by the
broker every few seconds. Each of several directories has its own; a partition is in one of them.

How many partitions a topic has, and its settings, are in the metadata log. Where that is in none of the directories
the count is that of the highest partition that is here. What lies elsewhere is named in a warning.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NoReturn, TypeVar

from logstore.config import SETTINGS, parse_topic_config
from logstore.directory.catalogue import INTERNAL_PREFIX, Catalogue, TopicEntry, decode_uuid
from logstore.directory.topic_state import PartitionState
from logstore.errors import (
    DamagedStoreError,
    InvalidArgumentError,
    LogStoreError,
    ReadOnlyStoreError,
    UnknownPartitionError,
    UnsupportedStoreVersionError,
    from_os_error,
)
from logstore.kafka_directory.settings import FOLDER as METADATA_FOLDER
from logstore.kafka_directory.settings import BrokerSettings, load_settings
from logstore.log.checkpoints import METADATA_FILE, decode_metadata, decode_offsets
from logstore.log.inspection.inspect import LOG_SUFFIX, partition_folders
from logstore.seams.fs import FileStat, FileSystem, exists, read_file

META_FILE: Final = "meta.properties"
CLEAN_MARK: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_POINTS: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_POINTS)

METADATA_TOPIC: Final = "__cluster_metadata"
_LAYOUT_VERSIONS: Final = ("0", "1")  # before KRaft, and since
_NO_ID: Final = "A" * 22  # Kafka's zero uuid: a folder of a broker older than topic ids
_REMOTE: Final = "remote.storage.enable"
_NAMED: Final = 10  # partitions in a warning
Content = TypeVar("Content")
logger = logging.getLogger(__name__)


class BrokerDirectory:
    """Stands where ``CatalogueFile`` stands for a store of ours. Not thread-safe beyond what its registry's lock
    gives; ``state`` and ``is_remote`` may be called from any thread. ``others``: more directories of the broker."""

    def __init__(self, fs: FileSystem, root: str, *others: str) -> None:
        self.path = os.path.join(root, META_FILE)
        self._fs = fs
        self._root = root
        self._roots = (root, *others)
        self._seen: list[FileStat] | None = None
        self._catalogue: Catalogue | None = None
        self._present: Mapping[str, Mapping[int, str]] = {}  # topic -> partition -> directory
        self._counts: Mapping[str, int] = {}  # what the metadata log says
        self._warned = ""
        self.settings_known = False
        self._unfinished = False
        self._remote: frozenset[str] = frozenset()
        self._files: dict[str, tuple[FileStat, object]] = {}

    # --- as a catalogue ---

    def load(self, *, warn: bool = True) -> Catalogue:
        """The topics that are in the directories now, and those that the metadata log has beside them. ``warn``: of
        what lies elsewhere. DamagedStoreError, UnsupportedStoreVersionError, InvalidArgumentError."""
        try:
            self._seen = [self._fs.stat(root) for root in self._roots]
        except OSError as error:
            raise from_os_error(error, "look at", self._root) from error
        self._check_properties()
        metadata = BrokerSettings()
        for root in self._roots:
            if not metadata.known:
                metadata = load_settings(self._fs, root)
        settings, self._counts, self.settings_known = metadata.topics, metadata.partitions, metadata.known
        present, ids = self._folders()
        entries: dict[str, TopicEntry] = {}
        slot = 0
        for number, name in enumerate(sorted({*present, *self._counts})):
            count = max(max(present.get(name, ()), default=-1) + 1, self._counts.get(name, 0))
            if not count:
                continue  # its partitions are not in the metadata log yet
            topic_id = ids.get(name) or metadata.topic_id(name)
            entries[name] = _entry(name, topic_id, count, settings.get(name, {}), number, slot)
            slot += count
        self._present = present
        self._remote = frozenset(name for name, given in settings.items() if given.get(_REMOTE) == "true")
        self._catalogue = self._revised(entries, slot)
        if warn:
            self._warn()
        return self._catalogue

    def _folders(self) -> tuple[dict[str, dict[int, str]], dict[str, str]]:
        """Topic -> partition -> its directory, and topic -> id. DamagedStoreError for a partition that two have."""
        present: dict[str, dict[int, str]] = {}
        ids: dict[str, str] = {}
        self._unfinished = False
        for root in self._roots:
            for folder in partition_folders(self._fs, root):
                topic_id = self._topic_id(folder.path)
                if topic_id is None and not self._has_records(folder.path):
                    self._unfinished = (
                        True  # the broker is just making it: its id comes before its first record
                    )
                    continue
                first = present.setdefault(folder.topic, {}).setdefault(folder.partition, root)
                if first != root and folder.topic != METADATA_TOPIC:
                    raise DamagedStoreError(
                        f"both {first} and {root} hold {folder.topic}-{folder.partition}",
                        hint="name each directory of one broker once; of two copies of a partition the broker "
                        "would not start with either, move one away",
                        path=folder.path,
                    )
                ids.setdefault(folder.topic, topic_id or _NO_ID)
        return present, ids

    def _check_properties(self) -> None:
        """That each directory is of a layout that is known, and all are of one broker. InvalidArgumentError."""
        first: dict[str, str] = {}
        for root in self._roots:
            path = os.path.join(root, META_FILE)
            properties = self._properties(path)
            check_meta(properties, path)
            for key in ("cluster.id", "node.id", "broker.id"):
                if key in properties and first.setdefault(key, properties[key]) != properties[key]:
                    raise InvalidArgumentError(
                        f"{self._root} and {root} are directories of two brokers: their {key} are "
                        f"{first[key]!r} and {properties[key]!r}",
                        hint="open the directories of one broker (its log.dirs) together",
                    )

    def _warn(self) -> None:
        """Say what these directories do not tell, once until that changes."""
        present, gone = self._present, []
        for name in sorted({*self._counts, *present}):
            gone += [f"{name}-{number}" for number in self.missing(name)]
        said = []
        if gone:
            more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
            said.append(f"partitions lie elsewhere: {', '.join(gone[:_NAMED])}{more}")
        if not self.settings_known and present:
            said.append(
                f"settings and partition counts of topics are not known ({METADATA_FOLDER} is not here), so there may "
                "be more partitions than the highest that is here"
            )
        text = "; ".join(said)
        if text and text != self._warned:
            logger.warning(
                "Kafka broker's directory %s: %s; open all directories of its log.dirs together",
                ", ".join(self._roots),
                text,
            )
        self._warned = text

    def _revised(self, entries: dict[str, TopicEntry], slots: int) -> Catalogue:
        """A broker counts no revisions: ours goes up when the topics are others than last time."""
        old = self._catalogue
        if old is not None and dict(old.topics) == entries:
            return old
        made = Catalogue(
            store_id=_NO_ID,
            topics=MappingProxyType(entries),
            next_lock_slot=len(entries) + 1,
            next_live_slot=slots,
        )
        return made if old is None else replace(made, revision=old.revision + 1)

    def changed(self) -> bool:
        """Whether names in the directory changed since it was last loaded. One ``stat``."""
        try:
            return self._unfinished or [self._fs.stat(root) for root in self._roots] != self._seen
        except FileNotFoundError:
            return True
        except OSError as error:
            raise from_os_error(error, "look at", self._root) from error

    def save(self, catalogue: Catalogue) -> NoReturn:
        del catalogue
        raise ReadOnlyStoreError(f"{self._root} is a Kafka broker's directory: it is only read")

    def close(self) -> None:
        """Nothing is held open."""

    # --- of one partition ---

    @property
    def stopped_in_order(self) -> bool:
        """Whether the broker left its mark of a clean stop; it removes it when it starts again."""
        try:
            return exists(self._fs, os.path.join(self._root, CLEAN_MARK))
        except OSError as error:
            raise from_os_error(error, "look at", os.path.join(self._root, CLEAN_MARK)) from error

    def state(self, topic: str, partition: int) -> PartitionState:
        """What the checkpoints say, 0 where they say nothing; the log start may lag behind the first segment,
        the high watermark (written every 5 s) behind what consumers have seen."""
        place, root = (topic, partition), self._root_of(topic, partition)
        points, marks, starts, cleaned = (self.checkpoint(name, root).get(place, 0) for name in CHECKPOINTS)
        return PartitionState(
            recovery_point=points,
            log_start_offset=starts,
            high_watermark=marks,
            log_end_offset=max(points, marks),
            cleaner_point=cleaned,
        )

    def checkpoint(self, name: str, root: str | None = None) -> Mapping[tuple[str, int], int]:
        """One of ``CHECKPOINTS``, (topic, partition) -> offset; empty if it was never written. ``root``: the
        directory, None for the first."""
        path = os.path.join(root or self._root, name)
        return self._content(path, decode_offsets) or {}

    def is_remote(self, topic: str) -> bool:
        """Whether older segments of the topic may lie in remote storage only."""
        return topic in self._remote

    def partitions(self, topic: str) -> tuple[int, ...]:
        """The partitions that have a folder here: other brokers, or other directories, may hold the rest."""
        return tuple(sorted(self._present.get(topic, ())))

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic's name by its id, as its folders or the metadata log have it; None: there is none."""
        known = {} if self._catalogue is None else self._catalogue.topics
        return next((name for name, entry in known.items() if decode_uuid(entry.topic_id) == topic_id), None)

    def missing(self, topic: str) -> tuple[int, ...]:
        """The partitions that the topic has elsewhere, as far as that is known here."""
        here = self._present.get(topic, {})
        count = max(self._counts.get(topic, 0), max(here, default=-1) + 1)
        return tuple(number for number in range(count) if number not in here)

    def folder(self, topic: str, partition: int) -> str:
        """The partition's folder, whether it is there or not."""
        return f"{self._root_of(topic, partition)}/{topic}-{partition}"

    def _root_of(self, topic: str, partition: int) -> str:
        return self._present.get(topic, {}).get(partition, self._root)

    def not_here(self, topic: str, partition: int) -> UnknownPartitionError:
        """The error for a partition without a folder."""
        here = ", ".join(map(str, self.partitions(topic))) or "none"
        return UnknownPartitionError(
            f"{', '.join(self._roots)} has no folder {topic}-{partition}: another broker, or another of its "
            "directories, holds that partition",
            hint=f"name the partitions that are here: {here}",
        )

    # --- files ---

    def _properties(self, path: str) -> dict[str, str]:
        try:
            return decode_properties(read_file(self._fs, path))
        except OSError as error:
            raise from_os_error(error, "read", path) from error

    def _topic_id(self, folder: str) -> str | None:
        return self._content(f"{folder}/{METADATA_FILE}", decode_metadata)

    def _has_records(self, folder: str) -> bool:
        try:
            names = [name for name in self._fs.listdir(folder) if name.endswith(LOG_SUFFIX)]
            return any(self._fs.stat(f"{folder}/{name}").size for name in names)
        except FileNotFoundError:
            return False  # it went away meanwhile
        except OSError as error:
            raise from_os_error(error, "look at", folder) from error

    def _content(self, path: str, decode: Callable[[bytes, str], Content]) -> Content | None:
        """A small file, decoded again only when it was replaced; None if there is none."""
        try:
            seen = self._fs.stat(path)
            known = self._files.get(path)
            if known is not None and known[0] == seen:
                return known[1]  # type: ignore[return-value]
            content = decode(read_file(self._fs, path), path)
        except FileNotFoundError:
            self._files.pop(path, None)
            return None
        except OSError as error:
            raise from_os_error(error, "read", path) from error
        self._files[path] = seen, content
        return content


def _entry(
    name: str, topic_id: str, partitions: int, settings: Mapping[str, str], number: int, slot: int
) -> TopicEntry:
    return TopicEntry(
        name=name,
        topic_id=topic_id,
        partitions=partitions,
        config=MappingProxyType(known_settings(settings)),
        lock_slot=number + 1,
        live_slots=((slot, partitions),),
        created_ms=0,
        internal=name.startswith(INTERNAL_PREFIX),
    )


def known_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of a broker's topic settings that this library knows, with values that it takes: they describe the
    topic, nothing is written by them."""
    known: dict[str, str] = {}
    for key, text in sorted(settings.items()):
        if key in SETTINGS:
            try:
                parse_topic_config({**known, key: text})
            except LogStoreError:
                continue  # a value of the broker's that ours has no counterpart for
            known[key] = text
    return known


def decode_properties(content: bytes) -> dict[str, str]:
    """Java's properties, as far as `meta.properties` goes: `key=value` lines, `#` and `!` start comments."""
    found: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        text = line.strip()
        if text and text[0] not in "#!":
            key, _, value = text.partition("=")
            found[key.strip()] = value.strip()
    return found


def check_meta(properties: Mapping[str, str], path: str) -> None:
    """UnsupportedStoreVersionError unless the layout's version is one that is known; DamagedStoreError if none
    of what the file always says is there."""
    version = properties.get("version", "")
    if version in _LAYOUT_VERSIONS:
        return
    if not version or not version.lstrip("-").isdigit():
        raise DamagedStoreError(
            f"{path} is damaged: its version is {version[:40]!r}",
            hint="restore the file from a backup; its `version` is 1 under KRaft",
            path=path,
        )
    raise UnsupportedStoreVersionError(
        f"{path} has version {version[:40]}; {' and '.join(_LAYOUT_VERSIONS)} are supported",
        hint="a newer Kafka wrote it: read it with a newer version of logstore",
    )
