"""The settings of a Kafka broker's topics, as its `__cluster_metadata-0` log and newest snapshot have them.

A record's value is a frame (Kafka's ``AbstractApiMessageSerde``; numbers are unsigned varints):

    frame version (0 or 1) | record kind | record version | the record

Of the kinds only three are read (``TopicRecord.json``, ``RemoveTopicRecord.json``, ``ConfigRecord.json``, all
versions alike; a compact string is ``length + 1 varint, UTF-8 bytes``, 0 for null):

    2   topic   name compact string | topic id 16 bytes
    9   remove  topic id 16 bytes
    4   config  resource type i8 (2: topic) | resource compact string | key compact string | value compact string

Settings that stand in the broker's own configuration are in no file of its data: they are not seen here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from logstore.errors import LogStoreError, from_os_error
from logstore.format.batch import decode_batches
from logstore.log.inspection.inspect import (
    BadSpan,
    list_folder,
    scan_segment,
    segment_base_offsets,
    segment_path,
)
from logstore.seams.fs import FileSystem

FOLDER = "__cluster_metadata-0"
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_TOPIC, _CONFIG, _REMOVE = 2, 4, 9
_TOPIC_RESOURCE = 2
_UUID_BYTES = 16


class BrokerSettings:
    """Replays metadata records; ``topics`` maps a topic's name to its settings, text to text."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, str]] = {}
        self._names: dict[bytes, str] = {}

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
        elif kind == _REMOVE:
            self.topics.pop(self._names.pop(fields.raw(_UUID_BYTES), ""), None)
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


def load_settings(fs: FileSystem, root: str) -> Mapping[str, Mapping[str, str]]:
    """Settings by topic; empty when the metadata log lies elsewhere (it has its own ``metadata.log.dir``), or
    is not readable: nothing else of the directory depends on it."""
    folder = f"{root}/{FOLDER}"
    settings = BrokerSettings()
    try:
        names = list_folder(fs, folder)
        snapshot = max((name for name in names if _SNAPSHOT.fullmatch(name)), default=None)
        covered = 0
        if snapshot is not None:
            covered = int(snapshot[:20])
            _replay(fs, f"{folder}/{snapshot}", 0, 0, settings)
        for base in segment_base_offsets(fs, folder):
            _replay(fs, segment_path(folder, base), base, covered, settings)
    except LogStoreError:
        return settings.topics  # a live broker took a file away, or the log is not here
    except OSError as error:
        raise from_os_error(error, "read", folder) from error
    return settings.topics


def _replay(fs: FileSystem, path: str, base: int, start: int, settings: BrokerSettings) -> None:
    for span in scan_segment(fs, path, base):
        if isinstance(span, BadSpan):
            return  # the unfinished end
        if span.header.next_offset > start:
            for record in decode_batches(span.data, FOLDER, 0, start_offset=start, check=False):
                if record.value is not None:
                    settings.replay(record.value)
