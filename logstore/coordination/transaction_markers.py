"""Markers of a decided transaction: one in each partition, all of them made durable with shared syncs.

A marker carries an epoch above that of the transaction's records, and the next transaction of the id runs under
that epoch (KIP-890). So a partition whose log knows the producer under the marker's epoch has its marker already,
or more: it gets no second one, which would end the next transaction.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from logstore.coordination.coordinator import Coordinator
from logstore.coordination.store_view import StoreView
from logstore.coordination.transaction_runtime import TransactionRuntime
from logstore.coordination.transactional_offsets import OFFSETS_PLACE
from logstore.errors import (
    FatalError,
    LogStoreError,
    ProducerFencedError,
    TopicLockedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logstore.groups.coordinator import GroupCoordinator
from logstore.log.producers.producer_state import Marker
from logstore.partition.partition import PendingAppend, wait_all
from logstore.transactions.coordinator import EndedTransaction
from logstore.types import TopicPartition

logger = logging.getLogger(__name__)

Written: TypeAlias = tuple[list[TopicPartition], LogStoreError | None]
"""The places where the outcome is durable now, and why it is not at others (None: nothing went wrong)."""


class MarkerWriter:
    """``offsets``: the shared topic of committed offsets, made if it is not there: its log must know the marker's
    epoch before a slow owner of the transaction writes there; None: its partitions are marked like all others.
    Thread-safe."""

    def __init__(
        self,
        store: StoreView,
        runtime: TransactionRuntime,
        offsets: Callable[[], Coordinator[GroupCoordinator] | None] | None,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._offsets = offsets

    def write(self, ended: EndedTransaction, *, wait: bool) -> Written:
        """See ``write_all``."""
        (written,) = self.write_all([ended], wait=wait)
        return written

    def write_all(self, ends: Sequence[EndedTransaction], *, wait: bool) -> list[Written]:
        """For each of these transactions, which share syncs.

        ``wait``: for topics that other processes own, up to the store's lock timeout; else those are left to them.
        A topic or partition that was deleted needs no marker.
        """
        coordinator = self._offsets
        with_offsets = [ended for ended in ends if OFFSETS_PLACE in ended.places]
        if coordinator is None or not with_offsets:
            return self._write_topics(ends, wait)
        refusals: list[LogStoreError | None] = []
        if len(with_offsets) == sum(len(ended.places) for ended in ends) or not self._store.threads:
            written = self._write_topics(ends, wait)
            refusals = [_end_offsets(coordinator, ended) for ended in with_offsets]
        else:
            # Both at a time: each waits for a sync of its own.
            left_s = self._store.lock_timeout_s  # of this thread

            def end_offsets() -> None:
                with self._store.wait_limit.within(left_s):
                    refusals.extend([_end_offsets(coordinator, ended) for ended in with_offsets])

            beside = threading.Thread(target=end_offsets, name="logstore-markers")
            beside.start()
            try:
                written = self._write_topics(ends, wait)
            finally:
                beside.join()
        unwritten = FatalError("the marker of offsets could not be written")
        found = iter(refusals or [unwritten] * len(with_offsets))
        return [
            _joined(one, next(found)) if OFFSETS_PLACE in ended.places else one
            for ended, one in zip(ends, written, strict=True)
        ]

    def _write_topics(self, ends: Sequence[EndedTransaction], wait: bool) -> list[Written]:
        """All but what a coordinator of this process writes to the log of offsets."""
        now_ms = self._store.clock.wall_ms()
        done: list[list[TopicPartition]] = [[] for _ in ends]
        failures: list[LogStoreError | None] = [None for _ in ends]
        pending: list[tuple[int, TopicPartition, PendingAppend]] = []
        locked: dict[str, LogStoreError] = {}
        places = sorted(
            (place, number)
            for number, ended in enumerate(ends)
            for place in ended.places
            if self._offsets is None or place != OFFSETS_PLACE
        )
        try:
            for place, number in places:
                producer_id, epoch, commit = ends[number][1:4]
                try:
                    if place.topic not in locked:
                        marker = Marker(producer_id, epoch, 0, commit, now_ms)
                        pending.append((number, place, self._append(place, marker, wait)))
                    elif wait:
                        failures[number] = locked[place.topic]
                except (UnknownTopicError, UnknownPartitionError):
                    done[number].append(place)
                except TopicLockedError as error:
                    locked[place.topic] = error  # its other partitions are locked, too
                    failures[number] = error if wait else failures[number]
                except LogStoreError as error:
                    failures[number] = error
        finally:
            wait_all([append for _, _, append in pending])
        for number, place, append in pending:
            if append.error is None:
                done[number].append(place)
            else:
                failures[number] = append.error
        return list(zip(done, failures, strict=True))

    def _append(self, place: TopicPartition, marker: Marker, wait: bool) -> PendingAppend:
        """``UnknownPartitionError``: it is in no catalogue, also not in the newest one."""
        held = self._runtime.partition(*place)
        try:
            return held.append_marker(marker, once=True, wait=wait)
        except UnknownPartitionError:
            self._runtime.look_for_changes()  # another process may have added it to what we own
            return held.append_marker(marker, once=True, wait=wait)


def _end_offsets(
    coordinator: Callable[[], Coordinator[GroupCoordinator] | None], ended: EndedTransaction
) -> LogStoreError | None:
    """Why the outcome is not durable in the log of offsets; None: it is."""
    try:
        offsets = coordinator()
        if offsets is not None:
            offsets.end_transaction(ended.producer_id, ended.marker_epoch, commit=ended.commit)
    except ProducerFencedError:
        return None  # a newer epoch was there: it began after this one had its markers
    except LogStoreError as error:
        return error
    return None


def _joined(written: Written, refusal: LogStoreError | None) -> Written:
    """With what became of the log of offsets."""
    done, failure = written
    return ([*done, OFFSETS_PLACE], failure) if refusal is None else (done, failure or refusal)
