"""``topics.json``: the store's catalogue of topics, their ids, partitions, settings and slots, and of producers.

``Catalogue`` is a value: its methods return a changed one and raise the named error of a change that is not
allowed. ``CatalogueFile`` loads and saves it. A change is made by whoever holds the catalogue's lock (lock
slot 0): load, change, save; the file is replaced as a whole, durably, so a reader without the lock sees the
old catalogue or the new one.

Slots of ``.locks`` and ``.live`` are handed out once and never again: a slot of a deleted topic may still be
held, or show its last state, in another process.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from logstore.arguments import refuse_internal, shown
from logstore.directory import topic_state
from logstore.directory.layout import DirectoryKind, classify_directory, missing_store
from logstore.directory.named_producers import (
    NamedProducer,
    decode_producers,
    encode_producers,
    validate_producer_name,
)
from logstore.errors import (
    InvalidArgumentError,
    InvalidPartitionsError,
    InvalidTopicError,
    TopicExistsError,
    UnknownPartitionError,
    UnknownTopicError,
    from_os_error,
)
from logstore.format.json_document import (
    damaged,
    decode_document,
    encode_document,
    items,
    table,
    text,
    truth,
    whole,
)
from logstore.invariants import invariant
from logstore.log.producers.producer_state import FIRST_NAMED_ID
from logstore.seams.fs import File, FileStat, FileSystem, read_whole, replace_file

FORMAT_VERSION: Final = 2
CATALOGUE_NAME: Final = "topics.json"
MAX_PARTITIONS: Final = 100_000  # a folder "<249 characters>-99999" has the 255 bytes that a name may have
INTERNAL_PREFIX: Final = "__"

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# Version 1 had no named producers. It is read as a catalogue without any; the next change writes this version,
# as a whole or not at all.
_KEYS_1: Final = frozenset(
    {"revision", "store_id", "next_lock_slot", "next_live_slot", "next_producer_id", "topics"}
)
_KEYS: Final = _KEYS_1 | {"producers"}
_TOPIC_KEYS: Final = frozenset(
    {"topic_id", "partitions", "config", "lock_slot", "live_slots", "created_ms", "internal"}
)


def validate_topic_name(name: str, *, internal: bool = False) -> None:
    """InvalidTopicError unless ``name`` may name a topic. Names with "__" in front are for internal topics.

    Two names that differ only in "." and "_" are both allowed: they collide in Kafka's metrics, not here.
    """
    if not isinstance(name, str):
        raise InvalidTopicError(f"a topic name is text, not {type(name).__name__}")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        shown = name if len(name) <= 60 else name[:60] + "..."
        raise InvalidTopicError(f"{shown!r} ({len(name)} characters) cannot name a topic")
    if name.startswith(INTERNAL_PREFIX) and not internal:
        raise InvalidTopicError(
            f"{name!r} cannot name a topic: names that start with '__' are for internal topics",
            hint="choose a name that does not start with '__'",
        )
    invariant(not internal or name.startswith(INTERNAL_PREFIX), "an internal topic's name starts with '__'")


def encode_uuid(random_bytes: bytes) -> str:
    """16 bytes as Kafka prints a uuid: base64url, no padding. Version bits are set as in RFC 9562's v4.

    Kafka never hands out ids that start with "-", which a command line would take for an option.
    """
    invariant(len(random_bytes) == 16, "a uuid has 16 bytes")
    raw = bytearray(random_bytes)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    if raw[0] >> 2 == 62:  # the six bits that base64url writes as "-"
        raw[0] ^= 0x80
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicEntry:
    """One topic. ``config``: the settings that were given, as text; ``live_slots``: (first slot, count)
    runs that hold partitions 0, 1, 2, ... in order; ``created_ms``: ms since 1970 UTC."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, str]
    lock_slot: int
    live_slots: tuple[tuple[int, int], ...]
    created_ms: int
    internal: bool = False

    def refuse_internal(self) -> None:
        """InvalidTopicError if it is the store's own."""
        refuse_internal(self.name, self.internal)

    def live_slot(self, partition: int) -> int:
        """The partition's slot in ``.live``. UnknownPartitionError if the topic has no such partition."""
        rest = partition
        if rest >= 0:
            for start, count in self.live_slots:
                if rest < count:
                    return start + rest
                rest -= count
        raise UnknownPartitionError(
            f"topic {self.name!r} has no partition {partition}",
            hint=f"its partitions are 0 to {self.partitions - 1}",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """All topics and named producers of a store, by name. ``revision`` goes up with every change; ``next_*``:
    what is handed out next (lock slot 0 is the catalogue's own)."""

    store_id: str
    format_version: int = FORMAT_VERSION
    revision: int = 0
    topics: Mapping[str, TopicEntry] = field(default_factory=lambda: MappingProxyType({}))
    next_lock_slot: int = 1
    next_live_slot: int = 0
    next_producer_id: int = 0
    producers: Mapping[str, NamedProducer] = field(default_factory=lambda: MappingProxyType({}))

    def topic(self, name: str) -> TopicEntry:
        """UnknownTopicError if there is none of that name."""
        entry = self.topics.get(name) if isinstance(name, str) else None
        if entry is None:
            raise UnknownTopicError(f"there is no topic {shown(name)}")
        return entry

    def with_topic(
        self,
        name: str,
        *,
        topic_id: str,
        partitions: int,
        config: Mapping[str, str] | None = None,
        created_ms: int,
        internal: bool = False,
    ) -> Catalogue:
        """With one more topic. InvalidTopicError, TopicExistsError, InvalidPartitionsError."""
        validate_topic_name(name, internal=internal)
        if name in self.topics:
            raise TopicExistsError(f"topic {name!r} exists already", hint="choose another name, or use it")
        _validate_partitions(name, partitions)
        invariant(is_uuid(topic_id), "a topic id is a uuid in base64url")
        entry = TopicEntry(
            name=name,
            topic_id=topic_id,
            partitions=partitions,
            config=MappingProxyType(dict(config or {})),
            lock_slot=self.next_lock_slot,
            live_slots=((self.next_live_slot, partitions),),
            created_ms=created_ms,
            internal=internal,
        )
        return replace(
            self._with_entry(entry),
            next_lock_slot=self.next_lock_slot + 1,
            next_live_slot=self.next_live_slot + partitions,
        )

    def without_topic(self, name: str) -> Catalogue:
        """UnknownTopicError if there is none of that name."""
        self.topic(name)
        rest = {other: entry for other, entry in self.topics.items() if other != name}
        return replace(self, revision=self.revision + 1, topics=MappingProxyType(rest))

    def with_partitions(self, name: str, total: int) -> Catalogue:
        """With ``total`` partitions, more than now. UnknownTopicError, InvalidPartitionsError."""
        entry = self.topic(name)
        _validate_partitions(name, total)
        more = total - entry.partitions
        if more <= 0:
            raise InvalidPartitionsError(
                f"topic {name!r} has {entry.partitions} partitions, {total} would not be more",
                hint="partitions can be added, never taken away",
            )
        runs = entry.live_slots
        start, count = runs[-1]
        if start + count == self.next_live_slot:
            runs = (*runs[:-1], (start, count + more))
        else:
            runs = (*runs, (self.next_live_slot, more))
        grown = self._with_entry(replace(entry, partitions=total, live_slots=runs))
        return replace(grown, next_live_slot=self.next_live_slot + more)

    def with_config(self, name: str, config: Mapping[str, str]) -> Catalogue:
        """With ``config`` (validated by the caller) in place of the topic's settings. UnknownTopicError."""
        return self._with_entry(replace(self.topic(name), config=MappingProxyType(dict(config))))

    # --- producers ---

    def producer(self, name: str) -> NamedProducer:
        """InvalidArgumentError if there is none of that name."""
        entry = self.producers.get(name) if isinstance(name, str) else None
        if entry is None:
            raise InvalidArgumentError(
                f"there is no producer {shown(name)}", hint="list_producers() shows them"
            )
        return entry

    def with_producer_ids(self, count: int) -> Catalogue:
        """With ``count`` ids handed out: those from ``next_producer_id`` as it was."""
        return replace(self, revision=self.revision + 1, next_producer_id=self.next_producer_id + count)

    def with_opened_producer(self, name: str) -> Catalogue:
        """With the name's next epoch, and the name itself if it is new. InvalidArgumentError."""
        validate_producer_name(name)
        entry = self.producers.get(name) or NamedProducer(name=name)
        return self._with_producer(entry.reopened()).with_producer_id(name, 0)

    def with_producer_id(self, name: str, era: int) -> Catalogue:
        """With an id for the name's records of ``era``, if it has none in its generation."""
        entry = self.producer(name)
        if entry.id_of(era) is not None:
            return self
        changed = self._with_producer(entry.with_id(era, FIRST_NAMED_ID + self.next_producer_id))
        return replace(changed, next_producer_id=self.next_producer_id + 1)

    def with_spread(self, name: str, topic: str) -> Catalogue:
        """With the topic's partitions of now noted as those over which the name deals its rows, unless some
        were noted before. InvalidArgumentError, UnknownTopicError."""
        entry, of = self.producer(name), self.topic(topic)
        if of.topic_id in entry.spread:
            return self
        known = [other.topic_id for other in self.topics.values()]
        return self._with_producer(entry.with_spread(of.topic_id, of.partitions, known))

    def without_producer(self, name: str) -> Catalogue:
        """InvalidArgumentError if there is none of that name."""
        self.producer(name)
        rest = {other: entry for other, entry in self.producers.items() if other != name}
        return replace(self, revision=self.revision + 1, producers=MappingProxyType(rest))

    def _with_producer(self, entry: NamedProducer) -> Catalogue:
        producers = MappingProxyType({**self.producers, entry.name: entry})
        return replace(self, revision=self.revision + 1, producers=producers)

    def _with_entry(self, entry: TopicEntry) -> Catalogue:
        topics = MappingProxyType({**self.topics, entry.name: entry})
        return replace(self, revision=self.revision + 1, topics=topics)


def _validate_partitions(name: str, partitions: int) -> None:
    if type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidPartitionsError(
            f"topic {name!r} cannot have {partitions!r} partitions", hint=f"use 1 to {MAX_PARTITIONS}"
        )


# --- bytes ------------------------------------------------------------------------------------------


def encode_topic(entry: TopicEntry) -> dict[str, Any]:
    """JSON values of what a document says of a topic under its name."""
    return {
        "topic_id": entry.topic_id,
        "partitions": entry.partitions,
        "config": dict(entry.config),
        "lock_slot": entry.lock_slot,
        "live_slots": [list(run) for run in entry.live_slots],
        "created_ms": entry.created_ms,
        "internal": entry.internal,
    }


def encode(catalogue: Catalogue) -> bytes:
    topics = {name: encode_topic(entry) for name, entry in sorted(catalogue.topics.items())}
    fields = {
        "revision": catalogue.revision,
        "store_id": catalogue.store_id,
        "next_lock_slot": catalogue.next_lock_slot,
        "next_live_slot": catalogue.next_live_slot,
        "next_producer_id": catalogue.next_producer_id,
        "topics": topics,
        "producers": encode_producers(catalogue.producers),
    }
    return encode_document(catalogue.format_version, fields)


def decode(data: bytes, path: str) -> Catalogue:
    """DamagedStoreError with ``path`` if malformed; UnsupportedStoreVersionError if newer than this code."""
    fields = decode_document(data, FORMAT_VERSION, _KEYS, path, older={1: _KEYS_1})
    topics = {
        name: decode_topic(name, value, path)
        for name, value in table(fields["topics"], "topics", path).items()
    }
    next_producer_id = whole(fields["next_producer_id"], "next_producer_id", path)
    producers = decode_producers(fields.get("producers", {}), path, next_producer_id)
    catalogue = Catalogue(
        store_id=_uuid(fields["store_id"], "store_id", path),
        revision=whole(fields["revision"], "revision", path),
        topics=MappingProxyType(topics),
        next_lock_slot=whole(fields["next_lock_slot"], "next_lock_slot", path, low=1),
        next_live_slot=whole(fields["next_live_slot"], "next_live_slot", path),
        next_producer_id=next_producer_id,
        producers=MappingProxyType(producers),
    )
    _check_slots(catalogue, path)
    return catalogue


def decode_topic(name: str, value: object, path: str) -> TopicEntry:
    """What ``encode_topic`` made. DamagedStoreError with ``path``."""
    what = f"topic {name!r}"
    fields = table(value, what, path)
    if fields.keys() != _TOPIC_KEYS:
        odd = sorted(fields.keys() ^ _TOPIC_KEYS)
        raise damaged(path, f"{what}: fields missing or unknown: {', '.join(odd)}")
    internal = truth(fields["internal"], f"internal of {what}", path)
    if not _NAME.fullmatch(name) or name in (".", "..") or internal != name.startswith(INTERNAL_PREFIX):
        raise damaged(path, f"{name!r} cannot name a topic")
    partitions = whole(fields["partitions"], f"partitions of {what}", path, 1, MAX_PARTITIONS)
    runs = tuple(
        _decode_run(run, f"live slots of {what}", path)
        for run in items(fields["live_slots"], f"live slots of {what}", path)
    )
    if sum(count for _, count in runs) != partitions:
        raise damaged(path, f"{what} has {partitions} partitions, but other live slots")
    config = {
        key: text(setting, f"setting {key!r} of {what}", path)
        for key, setting in table(fields["config"], f"config of {what}", path).items()
    }
    return TopicEntry(
        name=name,
        topic_id=_uuid(fields["topic_id"], f"topic_id of {what}", path),
        partitions=partitions,
        config=MappingProxyType(config),
        lock_slot=whole(fields["lock_slot"], f"lock slot of {what}", path, low=1),
        live_slots=runs,
        created_ms=whole(fields["created_ms"], f"created_ms of {what}", path),
        internal=internal,
    )


def _decode_run(run: object, name: str, path: str) -> tuple[int, int]:
    start, count = items(run, name, path, 2)
    return whole(start, name, path), whole(count, name, path, 1, MAX_PARTITIONS)


@lru_cache(maxsize=1 << 14)
def decode_uuid(topic_id: str) -> bytes:
    """The 16 bytes of what ``encode_uuid`` made."""
    return base64.urlsafe_b64decode(topic_id + "==")


def is_uuid(value: str) -> bool:
    """Whether ``value`` is 16 bytes in base64url without padding."""
    try:
        return len(value) == 22 and len(base64.b64decode(value + "==", altchars=b"-_", validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _uuid(value: object, name: str, path: str) -> str:
    uuid = text(value, name, path)
    if not is_uuid(uuid):
        raise damaged(path, f"{name} is {uuid!r}, not a uuid in base64url")
    return uuid


def _check_slots(catalogue: Catalogue, path: str) -> None:
    """No slot may belong to two topics, or be handed out again."""
    lock_slots = [entry.lock_slot for entry in catalogue.topics.values()]
    if len(set(lock_slots)) != len(lock_slots) or max(lock_slots, default=0) >= catalogue.next_lock_slot:
        raise damaged(path, "a lock slot has two owners or is still to be handed out")
    end = 0
    for start, count in sorted(run for entry in catalogue.topics.values() for run in entry.live_slots):
        if start < end:
            raise damaged(path, f"live slot {start} has two owners")
        end = start + count
    if end > catalogue.next_live_slot:
        raise damaged(path, f"live slot {end - 1} is still to be handed out")


# --- the file ---------------------------------------------------------------------------------------


class CatalogueFile:
    """``topics.json`` in ``root``. Loads take no lock; ``create`` and ``save`` need the catalogue's.

    The file last seen is kept open, so that its inode number cannot be given to a later version of the file
    and hide a change from ``changed``; ``close`` gives it back.
    """

    def __init__(self, fs: FileSystem, root: str) -> None:
        self.path = os.path.join(root, CATALOGUE_NAME)
        self._fs = fs
        self._root = root
        self._seen: FileStat | None = None
        self._pin: File | None = None

    def create(self, store_id: str) -> Catalogue:
        """Make an empty store in the directory ``root``, which is there and empty.

        ForeignDirectoryError, DamagedStoreError when it holds something else. A store that is there
        already (another process was first) is loaded instead.
        """
        kind = classify_directory(self._fs, self._root)
        if kind is DirectoryKind.STORE:
            return self.load()
        if kind is not DirectoryKind.EMPTY:
            raise missing_store(kind, self._root)
        catalogue = Catalogue(store_id=store_id)
        try:
            topic_state.make_directory(self._fs, self._root)
        except OSError as error:
            raise from_os_error(error, "create a store in", self._root) from error
        self.save(catalogue)
        return catalogue

    def load(self) -> Catalogue:
        """StoreNotFoundError, ForeignDirectoryError, DamagedStoreError, UnsupportedStoreVersionError."""
        try:
            data = self._read()
        except (FileNotFoundError, NotADirectoryError):
            raise missing_store(classify_directory(self._fs, self._root), self._root) from None
        except OSError as error:
            raise from_os_error(error, "read", self.path) from error
        return decode(data, self.path)

    def save(self, catalogue: Catalogue) -> None:
        """Durable when it returns; on an error the old catalogue stands or, if only the directory's sync
        failed, either may after a power loss. StorageError, DiskFullError."""
        try:
            replace_file(self._fs, self.path, encode(catalogue))
        except OSError as error:
            raise from_os_error(error, "write", self.path) from error
        try:
            self._look()
        except OSError:
            self._seen = None  # it is saved; not seen counts as changed, and the load will say what is wrong

    def changed(self) -> bool:
        """Whether the file is another than the one last loaded or saved. One ``stat``.

        A file that is gone counts as changed: the load that follows says what is wrong.
        """
        try:
            return self._fs.stat(self.path) != self._seen
        except FileNotFoundError:
            return True
        except OSError as error:
            raise from_os_error(error, "look at", self.path) from error

    def close(self) -> None:
        pin, self._pin = self._pin, None
        if pin is not None:
            pin.close()

    def _look(self) -> File:
        """Note which file is in place now, and keep it open. Looked at before it is opened: a replacement
        between the two shows as a change later, never the other way round."""
        seen = self._fs.stat(self.path)
        pin = self._fs.open(self.path, "r")
        self.close()
        self._pin, self._seen = pin, seen
        return pin

    def _read(self) -> bytes:
        file = self._look()
        return read_whole(file)
