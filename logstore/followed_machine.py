"""A state machine, and how far it has followed its log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from logstore.format.batch import BatchHeader, check_crc, iter_headers, records_section
from logstore.format.record import decode_rows
from logstore.log.producer_replay import marker_of
from logstore.log.producer_state import Marker
from logstore.log.segment import Chunk
from logstore.machine import Decision, ReplaysMany, StateMachine
from logstore.types import Buffer

Machine = TypeVar("Machine", bound=StateMachine)


class FollowedMachine(Generic[Machine]):
    """Not thread-safe. ``make``: an empty machine; ``applied``: the first offset that it has not seen."""

    def __init__(self, make: Callable[[], Machine]) -> None:
        self._make = make
        self.machine = make()
        self.applied = 0

    def start_over(self) -> None:
        """Records that were replayed are gone, or may be: all of it again is the safe way."""
        self.machine = self._make()
        self.applied = 0

    # --- from the log ---

    def follow(self, chunk: Chunk, where: str) -> None:
        """Replay whole batches, which may begin before ``applied``. Errors: those of decoding, and the machine's."""
        for position, header in iter_headers(chunk.data):
            if header.last_offset < self.applied:
                continue
            check_crc(chunk.data, position, header)
            if header.records_count:
                self._replay_batch(chunk.data, position, header, where)
            self.applied = header.next_offset
        self.applied = max(self.applied, chunk.next_offset)

    def _replay_batch(self, data: Buffer, position: int, header: BatchHeader, where: str) -> None:
        machine: StateMachine = self.machine
        if header.is_control:
            marker = marker_of(memoryview(data)[position : position + header.size], header)
            if marker is not None:
                machine.replay_marker(marker.producer_id, marker.epoch, marker.committed)
            return
        records = decode_rows(
            records_section(data, position, header),
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            where,
            0,
            None,
        )
        if header.is_transactional:
            for record in records:
                machine.replay_pending(header.producer_id, header.producer_epoch, record.key, record.value)
        elif isinstance(machine, ReplaysMany):
            machine.replay_many([(record.key, record.value) for record in records])
        else:
            for record in records:
                machine.replay(record.key, record.value)

    # --- what was just appended ---

    def took(self, decision: Decision[Any], next_offset: int) -> None:
        """The records of a decision are in the log, right behind ``applied``."""
        machine, writer = self.machine, decision.producer
        if writer is None:
            for key, value in decision.records:
                machine.replay(key, value)
        else:
            for key, value in decision.records:
                machine.replay_pending(writer.producer_id, writer.epoch, key, value)
        self.applied = next_offset

    def ended(self, marker: Marker, next_offset: int) -> None:
        """The marker is in the log, right behind ``applied``."""
        self.machine.replay_marker(marker.producer_id, marker.epoch, marker.committed)
        self.applied = next_offset
