"""Verification of a Kafka broker's directory: its root's files, and each partition by the rules of `verify.py`.

A torn end above the recovery point of a broker that was not stopped in order, or that is running, is a warning:
its next start cuts it. So is a swap of the cleaner's that a kill cut short, which the next start finishes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from logstore.errors import LogStoreError, UnknownTopicError
from logstore.kafka_directory.broker_segments import BrokerListing
from logstore.kafka_directory.directory import CHECKPOINTS, CLEAN_MARK, META_FILE, BrokerDirectory
from logstore.log.inspection.inspect import (
    PartitionFolder,
    list_folder,
    partition_folders,
    segment_base_offsets,
)
from logstore.log.inspection.verify import Fault, PartitionFacts, Totals, verify_partition
from logstore.seams.fs import FileSystem

_ROOT_NAMES = re.compile(
    "|".join(
        (
            *(rf"{re.escape(name)}(\.tmp)?" for name in (META_FILE, CLEAN_MARK, *CHECKPOINTS)),
            r"\.lock|bootstrap\.checkpoint(\.tmp)?|remote-log-index-cache|\.metadata-version|lost\+found",
        )
    )
)
_MOVING_FOLDER = re.compile(r".+-\d+\.[0-9a-f]{32}-(delete|future|stray)")


def verify_broker(
    fs: FileSystem, root: str, totals: Totals, *, topics: Collection[str] | None = None
) -> Iterator[Fault]:
    """All faults of a broker's directory, or of some of its topics. Raises UnsupportedStoreVersionError and
    DamagedStoreError for a `meta.properties` that cannot be understood, UnknownTopicError."""
    broker = BrokerDirectory(fs, root)
    catalogue = broker.load(warn=False)
    for name in topics or ():
        if not broker.partitions(name):
            raise UnknownTopicError(f"no folder of {root} belongs to a topic {name!r}")
    if topics is None:
        yield from _check_root(fs, root)
    unreadable = []
    for checkpoint in CHECKPOINTS:
        try:
            broker.checkpoint(checkpoint)
        except LogStoreError as error:
            unreadable.append(checkpoint)
            yield Fault(f"{root}/{checkpoint}", 0, "checkpoint", error.message)
    for folder in partition_folders(fs, root):
        if topics is not None and folder.topic not in topics:
            continue
        yield from _unfinished_swaps(fs, folder)
        topic_id = catalogue.topics[folder.topic].topic_id if folder.topic in catalogue.topics else None
        facts = (
            PartitionFacts(gaps_allowed=True, by_broker=True)
            if unreadable
            else _facts(fs, broker, folder, topic_id)
        )
        yield from verify_partition(fs, folder, facts, totals)


def _check_root(fs: FileSystem, root: str) -> Iterator[Fault]:
    known = {folder.path for folder in partition_folders(fs, root)}
    for name in list_folder(fs, root):
        path = f"{root}/{name}"
        if path in known or _ROOT_NAMES.fullmatch(name):
            continue
        if _MOVING_FOLDER.fullmatch(name):
            yield Fault(
                path, -1, "leftover", "a partition on its way out of, or into, the directory", warning=True
            )
        else:
            yield Fault(path, -1, "name", "nothing that a broker leaves has such a name", warning=True)


def _unfinished_swaps(fs: FileSystem, folder: PartitionFolder) -> Iterator[Fault]:
    listing = BrokerListing.of(list_folder(fs, folder.path))
    for bases, fate in ((listing.swapped, "puts it in place"), (listing.refused, "drops it")):
        for base in bases:
            text = f"a swap that was cut short: the broker's next start {fate}"
            yield Fault(f"{folder.path}/{base:020d}.log.swap", -1, "leftover", text, warning=True)


def _facts(
    fs: FileSystem, broker: BrokerDirectory, folder: PartitionFolder, topic_id: str | None
) -> PartitionFacts:
    state = broker.state(folder.topic, folder.partition)
    noted = (folder.topic, folder.partition) in broker.checkpoint(CHECKPOINTS[0])
    clean = broker.stopped_in_order and noted
    bases = segment_base_offsets(fs, folder.path)
    start = max(state.log_start_offset, bases[0] if bases else 0)
    return PartitionFacts(
        topic_id=topic_id,
        clean=clean,
        recovery_point=state.recovery_point,
        log_start_offset=start,
        log_end_offset=state.recovery_point if clean else None,
        gaps_allowed=True,
        by_broker=True,
    )
