"""Batches on their way to a backend and back, and the offsets of partitions."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from logstore.errors import LogStoreError
from logstore.format.batch import BatchHeader
from logstore.types import Buffer


class ProduceItem(NamedTuple):
    """One encoded batch (record batch v2, base offset ignored) for one partition. ``header``: the batch's, of
    who encoded it right here, so that a backend in this process need not parse and prove it; None: unknown.
    ``expected_offset``: append only if the log ends there, else OffsetMismatchError."""

    topic: str
    partition: int
    batch: Buffer
    header: BatchHeader | None = None
    expected_offset: int | None = None


class ProduceResult(NamedTuple):
    """``base_offset``: of the batch's first record (-1 under acks=0 or on error).

    ``append_time_ms``: the time stamped on every record under LogAppendTime, else -1. ``doubtful``: with an error: the
    batch may be in all the same, or get in later.
    """

    base_offset: int
    append_time_ms: int = -1
    error: LogStoreError | None = None
    doubtful: bool = False


class FetchRequest(NamedTuple):
    """Read from ``offset``; ``leader_epoch`` is that of the last record read before it (-1: unknown).

    ``reverse``: read the records before ``offset`` instead, the newest first batch by batch; answered at once.
    ``rack``: of the reader, who then may be sent to a replica there (KIP-392); "": it reads from the leader.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    max_bytes: int
    reverse: bool = False
    rack: str = ""


class FetchResult(NamedTuple):
    """Whole batches from the one that contains the offset on; records before the offset are to be dropped.

    ``batches`` is empty when there is nothing new. A first batch larger than the limits is returned whole.
    ``next_offset``: where to read on after these batches; it passes compaction gaps and markers.

    Of a reverse request: whole batches, in the log's order, that hold the records before the offset; those at or
    behind it are to be dropped. ``next_offset`` is the first offset that they may hold, for the next request; at
    the log's start there are no batches. ``preferred_replica``: the node to ask instead, -1: none; there is nothing
    else in the result then.
    """

    topic: str
    partition: int
    batches: Buffer
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    error: LogStoreError | None = None
    preferred_replica: int = -1


OffsetSpec: TypeAlias = Literal["earliest", "latest", "max_timestamp"] | int  # int: a timestamp in ms


class ListedOffset(NamedTuple):
    """Answer to an ``OffsetSpec``. ``offset`` is None where no record is that new (or the log is empty)."""

    offset: int | None
    timestamp_ms: int = -1
    leader_epoch: int = -1
