"""Backup and restore of a store in a directory: what `logstore backup` and `logstore restore` do."""

from __future__ import annotations

from collections.abc import Callable, Collection

from logstore.arguments import truth
from logstore.directory.backup import BackupReport, copy_store
from logstore.errors import DamagedStoreError
from logstore.log.inspection.verify import Totals
from logstore.log.inspection.verify_store import verify_store
from logstore.log.recovery.salvage import require_new, require_outside
from logstore.partition.context import StoreContext
from logstore.seams.clock import Clock
from logstore.seams.fs import FileSystem
from logstore.upkeep.store_cut import PartitionOffsets, take_cut

_SHOWN_FAULTS = 3


def back_up(
    context: StoreContext,
    partition_of: Callable[[str, int], PartitionOffsets],
    target: str,
    *,
    topics: Collection[str] | None = None,
    link: bool = True,
    progress: Callable[[int], None] | None = None,
) -> BackupReport:
    """Copy the open store to the new directory ``target``; see ``LogStore.backup``."""
    context.check_usable()
    truth(link, "link")
    require_outside(target, context.root)
    require_new(context.fs, target)
    cut = take_cut(context, partition_of)
    try:
        return copy_store(
            context.fs,
            context.root,
            target,
            context.clock,
            cut,
            log_start=lambda topic, partition: partition_of(topic, partition).log_start_offset,
            topics=topics,
            link=link,
            progress=progress,
        )
    finally:
        cut.close()


def check_backup(
    fs: FileSystem,
    source: str,
    clock: Clock,
    *,
    topics: Collection[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Totals:
    """Read all of the copy at ``source`` that is to be restored. ``DamagedStoreError`` names its first faults;
    ``StoreNotFoundError`` and its kin: it is no store."""
    totals = Totals(progress=progress)
    found = verify_store(fs, source, clock.boot_id(), totals, topics=topics)
    faults = [fault for fault in found if not fault.warning]
    if faults:
        shown = "; ".join(f"{fault.path}: {fault.message}" for fault in faults[:_SHOWN_FAULTS])
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        raise DamagedStoreError(
            f"{source} is not restored, it has {len(faults)} faults: {shown}{more}",
            hint="restore an older copy, or copy what is readable of this one with `logstore log salvage`",
            path=faults[0].path,
            position=faults[0].position,
        )
    return totals
