"""What a backup copies: a store's catalogue and the ends of all its partitions, as they were at one moment.

Later records never enter the copy. Cleaning could still take earlier ones away before they are copied (a record is
removed when a newer one of its key exists, also one behind the cut), so the segments of topics that are cleaned are
held open from before the cut on: a file that was replaced or removed keeps its bytes for who has it open.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.config import parse_topic_config
from logstore.directory.catalogue import Catalogue, TopicEntry
from logstore.errors import LogStoreError, from_os_error
from logstore.log.inspection.inspect import segment_base_offsets, segment_path
from logstore.seams.fs import File, FileSystem
from logstore.types import TopicPartition

logger = logging.getLogger(__name__)


class PartitionCut(NamedTuple):
    """Offsets [start, end) of one partition: what a reader of uncommitted records could see at the cut."""

    start: int
    end: int


class HeldSegment(NamedTuple):
    """A segment of a partition that is cleaned, open for reading."""

    base_offset: int
    file: File


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreCut:
    """``segments``: of the partitions whose segments a cleaning may replace, in the order of their offsets; all
    others are read by their names."""

    catalogue: Catalogue
    partitions: Mapping[TopicPartition, PartitionCut]
    segments: Mapping[TopicPartition, Sequence[HeldSegment]] = field(default_factory=dict)

    def close(self) -> None:
        """Let go of the segments."""
        for held in self.segments.values():
            close_segments(held)


def is_cleaned(entry: TopicEntry) -> bool:
    """Whether a cleaning may take records out of the topic's log."""
    return entry.internal or parse_topic_config(entry.config).cleanup_policy.compact


def hold_segments(fs: FileSystem, folder: str) -> list[HeldSegment]:
    """Open all segments of a partition's folder; none while there is no folder. Errors are named ones."""
    held: list[HeldSegment] = []
    try:
        for base in segment_bases(fs, folder):
            file = fs.open(segment_path(folder, base), "r")
            held.append(HeldSegment(base, file))
    except FileNotFoundError:
        close_segments(held)  # replaced or retired between the listing and the open
        return hold_segments(fs, folder)
    except OSError as error:
        close_segments(held)
        raise from_os_error(error, "open a segment of", folder) from error
    return held


def segment_bases(fs: FileSystem, folder: str) -> list[int]:
    """Base offsets of the segments in a partition's folder; none while nothing was ever appended to it."""
    try:
        return segment_base_offsets(fs, folder)
    except LogStoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise


def close_segments(held: Sequence[HeldSegment]) -> None:
    for segment in held:
        segment.file.close()
