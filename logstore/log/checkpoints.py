"""The small text files of a partition: `leader-epoch-checkpoint` and `partition.metadata`.

Checkpoints are Kafka's: line 1 the version, line 2 the number of entries, then one entry a line. They are
written to `<name>.tmp`, synced and renamed (``seams.fs.replace_file``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from logstore.errors import DamagedStoreError, UnsupportedStoreVersionError

METADATA_FILE = "partition.metadata"
_UUID = re.compile(r"[A-Za-z0-9_-]{22}")


def encode_pairs(pairs: Sequence[tuple[int, int]]) -> bytes:
    lines = ["0", str(len(pairs)), *(f"{left} {right}" for left, right in pairs)]
    return ("\n".join(lines) + "\n").encode("ascii")


def decode_pairs(content: bytes, path: str) -> list[tuple[int, int]]:
    """The entries. UnsupportedStoreVersionError, or DamagedStoreError naming the line."""
    lines = content.decode("ascii", "replace").split("\n")
    if lines and lines[0].strip() not in ("0", ""):
        raise UnsupportedStoreVersionError(f"{path} has version {lines[0].strip()[:40]!r}; 0 is supported")
    try:
        count = int(lines[1])
        pairs = []
        for line in lines[2 : 2 + count]:
            left, right = line.split()
            pairs.append((int(left), int(right)))
        if lines[0].strip() != "0" or len(pairs) != count or any(text.strip() for text in lines[2 + count :]):
            raise ValueError(f"{count} entries announced")
    except (ValueError, IndexError) as error:
        raise DamagedStoreError(f"{path} is not a checkpoint: {error}", path=path) from None
    return pairs


def decode_offsets(content: bytes, path: str) -> dict[tuple[str, int], int]:
    """A Kafka broker's checkpoint of offsets: (topic, partition) -> offset, from `topic partition offset` lines
    under the version and the count. An empty file, which a broker makes when it first starts, has none.
    UnsupportedStoreVersionError, or DamagedStoreError."""
    if not content:
        return {}
    lines = content.decode("utf-8", "replace").split("\n")
    if lines[0].strip() not in ("0", ""):
        raise UnsupportedStoreVersionError(f"{path} has version {lines[0].strip()[:40]!r}; 0 is supported")
    try:
        count = int(lines[1])
        offsets: dict[tuple[str, int], int] = {}
        for line in lines[2 : 2 + count]:
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
        rest = any(text.strip() for text in lines[2 + count :])
        if lines[0].strip() != "0" or len(offsets) != count or rest or min(offsets.values(), default=0) < 0:
            raise ValueError(f"{count} entries announced")
    except (ValueError, IndexError) as error:
        raise DamagedStoreError(f"{path} is not a checkpoint: {error}", path=path) from None
    return offsets


def encode_metadata(topic_id: str) -> bytes:
    """As Kafka's ``PartitionMetadata.encode``: no line end behind the last line."""
    return f"version: 0\ntopic_id: {topic_id}".encode("ascii")


def decode_metadata(content: bytes, path: str) -> str:
    """The topic's id (base64 uuid)."""
    fields: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        name, separator, value = line.partition(":")
        if separator:
            fields[name.strip()] = value.strip()
    if fields.get("version", "0") != "0":
        raise UnsupportedStoreVersionError(f"{path} has version {fields['version'][:40]!r}; 0 is supported")
    topic_id = fields.get("topic_id", "")
    if not _UUID.fullmatch(topic_id):
        raise DamagedStoreError(f"{path} is damaged: topic_id is {topic_id[:60]!r}, no uuid", path=path)
    return topic_id
