"""Settings and partition counts of a Kafka cluster's topics, as its `__cluster_metadata-0` log and newest snapshot
have them.

A record's value is a frame (Kafka's ``AbstractApiMessageSerde``; numbers are unsigned varints):

    frame version (0 or 1) | record kind | record version | the record

Of the kinds only four are read (``TopicRecord.json``, ``PartitionRecord.json``, ``RemoveTopicRecord.json``,
``ConfigRecord.json``, all versions alike; a compact string is ``length + 1 varint, UTF-8 bytes``, 0 for null):

    2   topic   name compact string | topic id 16 bytes
    3   partition  number i32 | topic id 16 bytes | where its replicas are, which is not read
    9   remove  topic id 16 bytes
    4   config  resource type i8 (2: topic) | resource compact string | key compact string | value compact string

Settings that stand in the broker's own configuration are in no file of its data: they are not seen here.
"""

from __future__ import annotations

import base64
import re

from logstore.directory.catalogue import MAX_PARTITIONS
from logstore.errors import LogStoreError, from_os_error
from logstore.format.batch import decode_batches
from logstore.log.inspection.inspect import (
    BadSpan,
    is_folder,
    list_folder,
    scan_segment,
    segment_base_offsets,
    segment_path,
)
from logstore.seams.fs import FileSystem

FOLDER = "__cluster_metadata-0"
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_TOPIC, _PARTITION, _CONFIG, _REMOVE = 2, 3, 4, 9
_TOPIC_RESOURCE = 2
_UUID_BYTES = 16


class BrokerSettings:
    """Replays metadata records. ``topics``: a topic's name -> its settings, text to text; ``partitions``: its name
    -> how many it has in the whole cluster; ``known``: whether there was a metadata log to read."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, str]] = {}
        self.partitions: dict[str, int] = {}
        self.known = False
        self._names: dict[bytes, str] = {}

    def topic_id(self, name: str) -> str:
        """The id of a topic that is there, as text."""
        raw = next((raw for raw, known in self._names.items() if known == name), bytes(_UUID_BYTES))
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    def replay(self, value: bytes) -> None:
        """One record's value. Kinds that say nothing of settings, and what is cut short, are passed over: a
        setting is a description here, no record depends on it."""
        try:
            self._apply(_Fields(value))
        except (IndexError, UnicodeDecodeError):
            return

    def _apply(self, fields: _Fields) -> None:
        frame, kind, _ = fields.varint(), fields.varint(), fields.varint()
        if frame > 1:
            return
        if kind == _TOPIC:
            name = fields.string() or ""
            self._names[fields.raw(_UUID_BYTES)] = name
            self.topics[name] = {}
            self.partitions[name] = 0
        elif kind == _PARTITION:
            number = int.from_bytes(fields.raw(4), "big")
            partition_of = self._names.get(fields.raw(_UUID_BYTES), "")
            if partition_of in self.partitions and number < MAX_PARTITIONS:
                self.partitions[partition_of] = max(self.partitions[partition_of], number + 1)
        elif kind == _REMOVE:
            removed = self._names.pop(fields.raw(_UUID_BYTES), "")
            self.topics.pop(removed, None)
            self.partitions.pop(removed, None)
        elif kind == _CONFIG and fields.raw(1)[0] == _TOPIC_RESOURCE:
            resource, key, text = fields.string() or "", fields.string() or "", fields.string()
            settings = self.topics.setdefault(resource, {})
            if text is None:
                settings.pop(key, None)
            else:
                settings[key] = text


class _Fields:
    """Reads fields one after the other; IndexError past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def raw(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise IndexError(length)
        return self._data[start : self._at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 35:
                return value

    def string(self) -> str | None:
        length = self.varint()
        return None if length == 0 else self.raw(length - 1).decode()


def load_settings(fs: FileSystem, root: str) -> BrokerSettings:
    """What the metadata log in ``root`` says; nothing, and not ``known``, when it lies elsewhere (it may have its
    own ``metadata.log.dir``). What is not readable of it is left out: no record of the directory depends on it."""
    folder = f"{root}/{FOLDER}"
    settings = BrokerSettings()
    try:
        if not is_folder(fs, folder):
            return settings
        names = list_folder(fs, folder)
        settings.known = True
        snapshot = max((name for name in names if _SNAPSHOT.fullmatch(name)), default=None)
        covered = 0
        if snapshot is not None:
            covered = int(snapshot[:20])
            _replay(fs, f"{folder}/{snapshot}", 0, 0, settings)
        for base in segment_base_offsets(fs, folder):
            _replay(fs, segment_path(folder, base), base, covered, settings)
    except LogStoreError:
        return settings  # a live broker took a file away, or the log is not here
    except OSError as error:
        raise from_os_error(error, "read", folder) from error
    return settings


def _replay(fs: FileSystem, path: str, base: int, start: int, settings: BrokerSettings) -> None:
    for span in scan_segment(fs, path, base):
        if isinstance(span, BadSpan):
            return  # the unfinished end
        if span.header.next_offset > start:
            for record in decode_batches(span.data, FOLDER, 0, start_offset=start, check=False):
                if record.value is not None:
                    settings.replay(record.value)
