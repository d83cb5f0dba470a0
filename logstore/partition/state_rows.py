"""What a topic's state says of a partition: made from its log, and missed where folder and state are gone."""

from __future__ import annotations

from logstore.directory.topic_state import PartitionState
from logstore.errors import DamagedStoreError
from logstore.log.commit_policy import CommitPolicy
from logstore.log.owned_log import OwnedLog
from logstore.ownership.live import LiveSlot


def row_of(log: OwnedLog) -> PartitionState:
    """The row of an open log, as it is now: what is committed is said as far as it is durable here."""
    return PartitionState(
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
        high_watermark=min(log.high_watermark, log.flushed_offset),
        log_end_offset=log.flushed_offset,
        no_producers_at=log.producers.no_producers_at,
        cleaner_point=log.cleaner_point,
        # After a failed sync the page cache may show what no disk holds: recovery must not trust it, so the row names
        # no boot, which is how a power loss looks.
        boot_id="" if log.poisoned else None,
        clean=False if log.poisoned else None,
        replica=log.commit_policy is CommitPolicy.INDEX,
    )


def refuse_lost(slot: LiveSlot | None, topic: str, directory: str) -> None:
    """``DamagedStoreError`` if the running boot knows of records that neither a state nor a folder shows."""
    if slot is not None and slot.log_end_offset > slot.log_start_offset:
        raise DamagedStoreError(
            f"{directory} and the state of topic {topic!r} are gone, with the records up to offset "
            f"{slot.log_end_offset}",
            path=directory,
        )
