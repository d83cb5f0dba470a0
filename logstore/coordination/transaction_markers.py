"""Markers of a decided transaction: one in each partition, all of them made durable with shared syncs.

A marker carries an epoch above that of the transaction's records, and the next transaction of the id runs under
that epoch (KIP-890). So a partition whose log knows the producer under the marker's epoch has its marker already,
or more: it gets no second one, which would end the next transaction.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from logstore.coordination.coordinator import Coordinator
from logstore.coordination.store_view import StoreView
from logstore.coordination.transaction_runtime import TransactionRuntime
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

OFFSETS_PLACE = TopicPartition("__consumer_offsets", 0)


class MarkerWriter:
    """``offsets``: the shared topic of committed offsets, made if it is not there: its log must know the marker's
    epoch before a slow owner of the transaction writes there. Thread-safe."""

    def __init__(
        self,
        store: StoreView,
        runtime: TransactionRuntime,
        offsets: Callable[[], Coordinator[GroupCoordinator] | None],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._offsets = offsets

    def write(
        self, ended: EndedTransaction, *, wait: bool
    ) -> tuple[list[TopicPartition], LogStoreError | None]:
        """The places where the outcome is durable now, and why it is not at the others (None: it is at all).

        ``wait``: for topics that other processes own, up to the store's lock timeout; else those are left to them.
        A topic or partition that was deleted needs no marker.
        """
        if OFFSETS_PLACE not in ended.places:
            return self._write_topics(ended, wait)
        others = ended._replace(places=tuple(set(ended.places) - {OFFSETS_PLACE}))
        if not others.places or not self._store.threads:
            done, failure = self._write_topics(others, wait)
            refusal = self._end_offsets(ended)
        else:
            # Both at a time: each waits for a sync of its own.
            refusals: list[LogStoreError | None] = []
            left_s = self._store.lock_timeout_s  # of this thread

            def end_offsets() -> None:
                with self._store.wait_limit.within(left_s):
                    refusals.append(self._end_offsets(ended))

            beside = threading.Thread(target=end_offsets, name="logstore-markers")
            beside.start()
            try:
                done, failure = self._write_topics(others, wait)
            finally:
                beside.join()
            refusal = refusals[0] if refusals else FatalError("the marker of offsets could not be written")
        if refusal is None:
            done.append(OFFSETS_PLACE)
        return done, failure or refusal

    def _write_topics(
        self, ended: EndedTransaction, wait: bool
    ) -> tuple[list[TopicPartition], LogStoreError | None]:
        marker = Marker(ended.producer_id, ended.marker_epoch, 0, ended.commit, self._store.clock.wall_ms())
        done: list[TopicPartition] = []
        failure: LogStoreError | None = None
        pending: list[tuple[TopicPartition, PendingAppend]] = []
        locked: set[str] = set()
        try:
            for place in sorted(ended.places):
                try:
                    if place.topic not in locked:
                        pending.append((place, self._append(place, marker, wait)))
                except (UnknownTopicError, UnknownPartitionError):
                    done.append(place)
                except TopicLockedError as error:
                    locked.add(place.topic)  # its other partitions are locked, too
                    failure = error if wait else failure
                except LogStoreError as error:
                    failure = error
        finally:
            wait_all([append for _, append in pending])
        for place, append in pending:
            if append.error is None:
                done.append(place)
            else:
                failure = append.error
        return done, failure

    def _append(self, place: TopicPartition, marker: Marker, wait: bool) -> PendingAppend:
        """``UnknownPartitionError``: it is in no catalogue, also not in the newest one."""
        held = self._runtime.partition(*place)
        try:
            return held.append_marker(marker, once=True, wait=wait)
        except UnknownPartitionError:
            self._runtime.look_for_changes()  # another process may have added it to what we own
            return held.append_marker(marker, once=True, wait=wait)

    def _end_offsets(self, ended: EndedTransaction) -> LogStoreError | None:
        """Why the outcome is not durable in the log of offsets; None: it is."""
        try:
            offsets = self._offsets()
            if offsets is not None:
                offsets.end_transaction(ended.producer_id, ended.marker_epoch, commit=ended.commit)
        except ProducerFencedError:
            return None  # a newer epoch was there: it began after this one had its markers
        except LogStoreError as error:
            return error
        return None
