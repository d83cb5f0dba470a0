"""A state machine, and how far it has followed its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from logstore.format.batch import BatchHeader, check_crc, read_header, records_section
from logstore.format.payloads import Payload, payloads, take_plain
from logstore.log.producers.producer_replay import marker_of
from logstore.log.producers.producer_state import Marker
from logstore.log.segments.segment import Chunk
from logstore.machine import Decision, ReplaysMany, StateMachine

Machine = TypeVar("Machine", bound=StateMachine)


class FollowedMachine(Generic[Machine]):
    """Not thread-safe. ``make``: an empty machine; ``applied``: the first offset that it has not seen.

    After an error of ``follow`` or ``took`` what the machine has seen is not known: ``start_over``.
    """

    def __init__(self, make: Callable[[], Machine]) -> None:
        self._make = make
        self.start_over()

    def start_over(self) -> None:
        """Records that were replayed are gone, or may be: all of it again is the safe way."""
        self.machine: Machine = self._make()
        self.applied = 0
        machine: object = self.machine
        self._replay_many = machine.replay_many if isinstance(machine, ReplaysMany) else None

    def load(self, next_offset: int, changes: Sequence[Payload]) -> None:
        """Begin anew with the records that stand for all before ``next_offset``. Errors: the machine's."""
        self.start_over()
        self._replay_run(changes)
        self.applied = next_offset

    # --- from the log ---

    def follow(self, chunk: Chunk) -> None:
        """Replay whole batches, which may begin before ``applied``: runs of plain records together, those of
        transactions and their markers one by one. Errors: those of decoding, and the machine's."""
        view, at, size = memoryview(chunk.data), 0, len(chunk.data)
        while at < size:
            run: list[Payload] = []
            at = take_plain(view, at, self.applied, run)
            if run:
                self._replay_run(run)
            if at < size:
                header = read_header(view, at)
                check_crc(view, at, header)
                if header.last_offset >= self.applied and header.records_count:
                    self._replay_batch(view, at, header)
                at += header.size
        self.applied = max(self.applied, chunk.next_offset)

    def _replay_run(self, run: Sequence[Payload]) -> None:
        if self._replay_many is not None and len(run) > 1:
            self._replay_many(run)
            return
        replay = self.machine.replay
        for key, value in run:
            replay(key, value)

    def _replay_batch(self, data: memoryview, position: int, header: BatchHeader) -> None:
        machine = self.machine
        if header.is_control:
            marker = marker_of(data[position : position + header.size], header)
            if marker is not None:
                machine.replay_marker(marker.producer_id, marker.epoch, marker.committed)
            return
        section = records_section(data, position, header)
        found = payloads(section, header.records_count, header.base_offset)
        if not header.is_transactional:
            self._replay_run(found)
            return
        for key, value in found:
            machine.replay_pending(header.producer_id, header.producer_epoch, key, value)

    # --- what was just appended ---

    def took(self, decision: Decision[Any], next_offset: int) -> None:
        """The records of a decision are in the log, right behind ``applied``."""
        machine, writer = self.machine, decision.producer
        if writer is None:
            self._replay_run(decision.records)
        else:
            for key, value in decision.records:
                machine.replay_pending(writer.producer_id, writer.epoch, key, value)
        self.applied = next_offset

    def ended(self, marker: Marker, next_offset: int) -> None:
        """The marker is in the log, right behind ``applied``."""
        self.machine.replay_marker(marker.producer_id, marker.epoch, marker.committed)
        self.applied = next_offset
