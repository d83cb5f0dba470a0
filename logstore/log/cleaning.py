"""One cleaning of one partition, in steps: what is asked of it and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from logstore.errors import NotAvailableYetError
from logstore.log.file_pool import FilePool
from logstore.log.owned_log import OwnedLog
from logstore.log.retirement import Retirement
from logstore.seams.clock import Clock


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanRequest:
    """``start_offset``: first dirty offset; ``end_offset``: nothing at or past it is touched; ``now_ms``: wall
    clock, for horizons; ``active_producers``: producer id -> offset of its last data batch's last record;
    ``erase``: drop every record with one of these keys instead of compacting; ``file_delete_delay_s``: what
    happens to old files (0: removed at once)."""

    start_offset: int
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    key_map_bytes: int
    active_producers: Mapping[int, int]
    erase: frozenset[bytes] | None = None
    file_delete_delay_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanResult:
    """``cleaned_to``: the new first dirty offset; ``next_horizon_ms``: when another cleaning would have
    something to remove, -1 never."""

    cleaned_to: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    segments_before: int
    segments_after: int
    next_horizon_ms: int


class CleanProgress(NamedTuple):
    """``phase``: map, write, swap or done."""

    phase: str
    bytes_done: int
    bytes_total: int


class Cleaning:
    def __init__(
        self, log: OwnedLog, pool: FilePool, clock: Clock, retirement: Retirement, request: CleanRequest
    ) -> None:
        del pool, clock, retirement, request
        self._where = log.where

    def step(self, budget_s: float) -> CleanResult | None:
        raise NotAvailableYetError(f"cleaning {self._where} for {budget_s} s: the engine is not there yet")

    def cancel(self) -> None:
        """Give up; own temporary files are removed."""

    @property
    def progress(self) -> CleanProgress:
        return CleanProgress("map", 0, 0)
